// Whether pages can be read: no fault of layout, and each kind of fault is seen when it is there.
import assert from "node:assert/strict";
import test from "node:test";
import { opened } from "./open.mjs";
import { KINDS, look } from "./faults.mjs";
import { WIDTHS, viewed } from "./views.mjs";

const PAGES = [["stack", WIDTHS], ["stats", [WIDTHS[0]]], ["diff", [WIDTHS[2]]], ["two", [WIDTHS[1]]], ["chain", [WIDTHS[0], WIDTHS[3]]]];
for (const [name, sizes] of PAGES)
  for (const [width, height] of sizes)
    test(`${name} can be read in a window of ${width} pixels`, () => opened(name, page => viewed(page, (view, mode, faults) => assert.deepEqual(faults, [], `${view}, ${mode}`)), { viewport: { width, height } }));

/** What puts a fault of a kind into a page. `svg` adds an element to the picture, in the coordinates of what is drawn; a class `line bridge` makes a path a band. */
const PLANTED = {
  "text over text": ({ step, svg }) => svg("text", { x: step.x + 9, y: step.y + 18, "font-size": 12 }, "another"),
  "line through text": ({ step, svg }) => svg("path", { d: `M${step.x},${step.y + 14}L${step.x + 100},${step.y + 14}`, stroke: "black" }),
  "text outside its box": ({ step }) => { step.text.textContent = "a_name_that_is_much_too_long_for_the_box_that_it_is_in"; },
  "low contrast": ({ step }) => { step.text.style.fill = "#b0b8c0"; },
  "small font": ({ step }) => step.text.setAttribute("font-size", "6"),
  "empty box": ({ step }) => step.text.remove(),
  "band without an end": ({ step, svg }) => svg("path", { d: `M${step.x},${step.y + 14}L${step.x - 60},${step.y - 40}`, stroke: "var(--save)", fill: "none" }),
  "hidden scroll": () => { document.querySelector(".panel").style.overflow = "hidden"; document.querySelector(".panel dl").style.width = "900px"; },
  "on the picture": () => {
    const note = document.querySelector(".stage").appendChild(document.createElement("div"));
    Object.assign(note.style, { position: "absolute", top: "200px", left: "40px" });
    note.textContent = "a note";
  },
};
const ENDS = {
  "in nothing": PLANTED["band without an end"],
  "no dot": ({ step, svg }) => svg("path", { d: `M${step.x},${step.y + 14}L${step.x + step.w},${step.y + 14}`, stroke: "var(--save)", fill: "none" }),
  "behind a box": ({ step, svg }) => {
    const [x, y] = [step.x, step.y + 14];
    svg("path", { d: `M${x},${y}L${x - 30},${y}`, stroke: "var(--save)", fill: "none" });
    svg("circle", { cx: x, cy: y, r: 2 });
    svg("rect", { x: x - 40, y: y - 40, width: 80, height: 80, fill: "white", stroke: "black" });
  },
};

/** Plant a fault at a step of the forward, and return the faults that are seen then. */
async function planted(page, plant) {
  await page.waitForSelector(".base .step.forward:not(.view), .base .folded .half");
  await page.evaluate(source => {
    const group = document.querySelector(".base .step.forward:not(.view)") ?? document.querySelector(".base .folded .half"), rect = group.querySelector("rect"), number = name => Number(rect.getAttribute(name));
    const svg = (tag, attributes, text = "") => {
      const element = document.querySelector("svg.picture .base > g").appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      element.textContent = text;
    };
    (0, eval)(`(${source})`)({ step: { x: number("x"), y: number("y"), w: number("width"), text: group.querySelector("text") }, svg });
  }, plant.toString());
  return page.evaluate(look, {});
}

const narrow = { viewport: { width: 400, height: 800 }, bypassCSP: true }, wide = { viewport: { width: 1280, height: 900 }, bypassCSP: true };
assert.deepEqual(Object.keys(PLANTED), KINDS);
for (const [kind, plant] of Object.entries(PLANTED))
  test(`the check sees: ${kind}`, () => opened("stack", async page => {
    const found = await planted(page, plant);
    assert.ok(found.some(([one]) => one === kind), JSON.stringify(found));
  }, kind === "on the picture" ? narrow : wide));
for (const [why, plant] of Object.entries(ENDS))
  test(`the check sees a band that ends ${why}`, () => opened("stack", async page => {
    const found = await planted(page, plant);
    assert.ok(found.some(([kind, what]) => kind === "band without an end" && what.endsWith(why)), JSON.stringify(found));
  }, wide));
