/** The visible part as a file of its own, and links that are copied. */

import { render } from "preact";
import style from "./picture.css";
import type { Picture } from "./picture";
import { Tips } from "./shapes";

/** An SVG file with the look of the page, light or dark as its reader prefers. */
export function svgOf(picture: Picture, title: string): string {
  const { x, y, w, h, node } = picture.visible(), holder = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  render([<title>{title}</title>, <rect class="paper" x={x} y={y} width={w} height={h} />, <Tips />, node], holder);
  const sizes = { viewBox: `${x} ${y} ${w} ${h}`, width: String(Math.round(w)), height: String(Math.round(h)), class: "picture" };
  for (const [name, value] of Object.entries(sizes)) holder.setAttribute(name, value);
  // The style goes in as text: the page's own policy allows no other style element.
  const text = new XMLSerializer().serializeToString(holder).replace("</title>", `</title><style>${style}</style>`);
  render(null, holder);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${text}\n`;
}

export function download(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" })), link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** Copy a text; where the browser does not let a page do so, it is shown to be copied by hand. */
export async function copy(text: string): Promise<string> {
  try {
    await navigator.clipboard.writeText(text);
    return "The link is copied.";
  } catch {
    return text;
  }
}
