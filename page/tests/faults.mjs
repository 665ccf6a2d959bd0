// What keeps a person from reading a page, counted in the browser from what is drawn, not from how it was laid out.

/** The kinds of faults; page/README.md says what each is. */
export const KINDS = [
  "text over text", "line through text", "text outside its box", "low contrast", "small font", "empty box", "band without an end", "hidden scroll", "on the picture",
];

/**
 * The faults of what a browser shows now: `[kind, what]` of each. This function runs in the page, and sees nothing outside
 * itself. Without `drawn` it looks at the panels and not at the picture; with `colors` at contrast alone, as in dark,
 * where everything has the place that it has in light.
 */
export function look({ drawn = true, colors = false } = {}) {
  const faults = [], report = (kind, what) => faults.push([kind, what]);
  const styles = new Map(), styleOf = element => styles.get(element) ?? (styles.set(element, getComputedStyle(element)), styles.get(element));
  const picture = document.querySelector("svg.picture"), stage = picture?.getBoundingClientRect();
  const area = one => Math.max(0, one.right - one.left) * Math.max(0, one.bottom - one.top);
  const within = (inner, outer, slack = 0) => inner.left >= outer.left - slack && inner.right <= outer.right + slack && inner.top >= outer.top - slack && inner.bottom <= outer.bottom + slack;
  const touch = (a, b, more = 0) => a.left < b.right - more && b.left < a.right - more && a.top < b.bottom - more && b.top < a.bottom - more;
  const has = (rect, x, y) => x >= rect.left && x <= rect.right && y >= rect.top && y <= rect.bottom;
  const cut = (a, b) => ({ left: Math.max(a.left, b.left), right: Math.min(a.right, b.right), top: Math.max(a.top, b.top), bottom: Math.min(a.bottom, b.bottom) });
  const short = text => text.replace(/\s+/g, " ").trim().slice(0, 60);

  // ---- Colors, blended as the browser paints them
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true }), known = new Map();
  const color = text => {
    if (!known.has(text)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = "#000";
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(text, text === "none" ? [0, 0, 0, 0] : [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const blend = (over, under, alpha = 1) => [0, 1, 2].map(at => over[at] * over[3] * alpha + under[at] * (1 - over[3] * alpha)).concat(1);
  const bright = ([r, g, b]) => [r, g, b].map(part => part / 255).map(part => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)).reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const contrast = (a, b) => { const [low, high] = [bright(a), bright(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
  const dims = new Map(), dim = (element, until) => {
    if (!element || element === until) return 1;
    if (until) return Number(styleOf(element).opacity) * dim(element.parentElement, until);
    if (!dims.has(element)) dims.set(element, Number(styleOf(element).opacity) * dim(element.parentElement));
    return dims.get(element);
  };
  const paper = element => {
    const around = [];
    for (let at = element; at; at = at.parentElement) around.push(at);
    return around.reverse().reduce((under, at) => blend(color(styleOf(at).backgroundColor), under, dim(at)), [255, 255, 255, 1]);
  };

  // ---- Shapes of pictures, in the order in which they are painted
  const scaleOf = element => { const matrix = element.getScreenCTM(); return Math.hypot(matrix.a, matrix.b); };
  const shownIn = (element, style) => style.display !== "none" && style.visibility !== "hidden" && dim(element) > 0.02;
  const flat = path => {
    const matrix = path.getScreenCTM(), points = [], parts = path.getAttribute("d").matchAll(/([MLCQHVZ])([^A-Za-z]*)/g);
    let [x, y, first] = [0, 0, null];
    const put = (px, py) => { points.push([matrix.a * px + matrix.c * py + matrix.e, matrix.b * px + matrix.d * py + matrix.f]); [x, y] = [px, py]; first ??= [px, py]; };
    for (const [, command, text] of parts) {
      const n = (text.match(/-?[\d.]+(?:e-?\d+)?/g) ?? []).map(Number);
      if (command === "H") put(n[0], y);
      else if (command === "V") put(x, n[0]);
      else if (command === "Z") put(...first);
      else if (command === "M" || command === "L") for (let at = 0; at < n.length; at += 2) put(n[at], n[at + 1]);
      else {
        const way = [[x, y]];
        for (let at = 0; at < n.length; at += 2) way.push([n[at], n[at + 1]]);
        for (let step = 1; step <= 12; step++) {
          const t = step / 12;
          let level = way;
          while (level.length > 1) level = level.slice(1).map((end, at) => [level[at][0] + (end[0] - level[at][0]) * t, level[at][1] + (end[1] - level[at][1]) * t]);
          put(...level[0]);
        }
      }
    }
    return points;
  };
  /** Where a piece of a line lies in a rectangle: the middle of that part, or nothing. */
  const crossing = ([x1, y1], [x2, y2], box) => {
    let [low, high] = [0, 1];
    for (const [p, q] of [[x1 - x2, x1 - box.left], [x2 - x1, box.right - x1], [y1 - y2, y1 - box.top], [y2 - y1, box.bottom - y1]]) {
      if (p === 0) { if (q < 0) return null; } else if (p < 0) low = Math.max(low, q / p); else high = Math.min(high, q / p);
    }
    const t = (low + high) / 2;
    return low < high ? [x1 + (x2 - x1) * t, y1 + (y2 - y1) * t] : null;
  };
  /** `beyond` are letters too far outside the window to be looked at, which are in a box all the same. */
  const boxes = [], lines = [], dots = [], texts = [], beyond = [];
  for (const svg of document.querySelectorAll("svg")) {
    if (svg === picture && !drawn) continue;
    const window = svg.getBoundingClientRect();
    let order = 0;
    for (const element of svg.querySelectorAll("rect, path, circle, text")) {
      order++;
      const style = styleOf(element);
      if (element.closest("defs") || !shownIn(element, style)) continue;
      const rect = element.getBoundingClientRect(), base = { element, order, svg, style };
      const near = share => touch(rect.width || rect.height ? { left: rect.left - 1, right: rect.right + 1, top: rect.top - 1, bottom: rect.bottom + 1 } : rect, { left: window.left - window.width * share, right: window.right + window.width * share, top: window.top - window.height * share, bottom: window.bottom + window.height * share });
      if (!near(1 / 4)) {
        if (element.tagName === "text" && svg === picture && near(1) && element.textContent.trim()) beyond.push([(rect.left + rect.right) / 2, (rect.top + rect.bottom) / 2]);
        continue;
      }
      const stroked = style.stroke !== "none" && parseFloat(style.strokeWidth) > 0 && color(style.stroke)[3] > 0.02;
      if (element.tagName === "text") {
        const size = parseFloat(style.fontSize) * scaleOf(element), high = rect.bottom - rect.top;
        if (element.textContent.trim()) texts.push({ ...base, text: short(element.textContent), size, whole: within(rect, window, 0.5), rect: { left: rect.left + 0.5, right: rect.right - 0.5, top: rect.top + high * 0.22, bottom: rect.bottom - high * 0.2 } });
      } else if (element.tagName === "rect") boxes.push({ ...base, rect, stroked, fill: color(style.fill)[3] * Number(style.fillOpacity) });
      else if (element.tagName === "circle") dots.push({ ...base, x: (rect.left + rect.right) / 2, y: (rect.top + rect.bottom) / 2 });
      else if (stroked && svg === picture && !colors) lines.push({ ...base, rect, points: flat(element), half: (parseFloat(style.strokeWidth) * scaleOf(element)) / 2 });
    }
  }
  const common = (a, b) => { let at = a; while (!at.contains(b)) at = at.parentElement; return at; };
  /** Whether a box lets nothing through that lies under it, for what is drawn beside it. */
  const covers = (box, other) => box.fill > 0.95 && dim(box.element, common(box.element, other)) > 0.95;
  for (const text of texts) {
    const near = boxes.filter(box => box.svg === text.svg && touch(box.rect, text.rect));
    text.near = near;
    text.plate = Math.max(-1, ...near.filter(box => box.order < text.order && within(text.rect, box.rect, 1) && covers(box, text.element)).map(box => box.order));
    text.hidden = near.some(box => box.order > text.order && within(text.rect, box.rect, 1) && covers(box, text.element));
  }
  const seen = texts.filter(text => !text.hidden);

  // ---- Texts of the page around the pictures
  const words = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const clippedBy = element => { const found = []; for (let at = element; at && at !== document.body; at = at.parentElement) if (/hidden|clip|auto|scroll/.test(styleOf(at).overflowX + styleOf(at).overflowY)) found.push(at); return found; };
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, style = styleOf(element);
    if (!node.data.trim() || element.closest("svg, script, style, noscript, option, title") || !shownIn(element, style) || !element.checkVisibility()) continue;
    const range = document.createRange(), clips = clippedBy(element);
    range.selectNodeContents(node);
    for (const line of range.getClientRects()) {
      if (line.width < 1 || line.height < 1) continue;
      let shown = line;
      for (const clip of clips) shown = cut(shown, clip.getBoundingClientRect());
      shown = cut(shown, { left: 0, right: innerWidth, top: 0, bottom: innerHeight });
      if (area(shown) < 4) { if (line.left >= innerWidth - 1 && !clips.length) report("text outside its box", `${short(node.data)} is right of the window`); continue; }
      const high = shown.bottom - shown.top;
      words.push({ element, style, clips, text: short(node.data), line, size: parseFloat(style.fontSize), rect: { left: shown.left + 0.5, right: shown.right - 0.5, top: shown.top + high * 0.2, bottom: shown.bottom - high * 0.2 } });
    }
  }

  // ---- Text over text
  const inWindow = text => ({ ...text, rect: cut(text.rect, text.svg.getBoundingClientRect()) });
  const all = [...seen.map(inWindow).filter(text => area(text.rect) > 4), ...words].sort((a, b) => a.rect.left - b.rect.left);
  if (!colors) all.forEach((one, at) => {
    for (const other of all.slice(at + 1)) {
      if (other.rect.left > one.rect.right) break;
      const twin = one.text === other.text && Math.abs(one.rect.left - other.rect.left) < 1.5 && Math.abs(one.rect.top - other.rect.top) < 1.5;
      const plate = one.svg && one.svg === other.svg && Math.max(one.plate, other.plate) > Math.min(one.order, other.order);
      if (!twin && !plate && touch(one.rect, other.rect, 0.7)) report("text over text", `${one.text} / ${other.text}`);
    }
  });

  // ---- Lines through text, and text across the border of a box
  for (const text of colors ? [] : seen) {
    if (text.svg !== picture || !touch(text.rect, stage)) continue;
    for (const line of lines) {
      if (line.order < text.plate || !touch({ left: line.rect.left - line.half, right: line.rect.right + line.half, top: line.rect.top - line.half, bottom: line.rect.bottom + line.half }, text.rect)) continue;
      const thick = { left: text.rect.left - line.half * 0.6, right: text.rect.right + line.half * 0.6, top: text.rect.top - line.half * 0.6, bottom: text.rect.bottom + line.half * 0.6 };
      const hit = line.points.slice(1).some((end, at) => {
        const spot = crossing(line.points[at], end, thick);
        return spot && !boxes.some(box => box.svg === picture && box.order > line.order && has(box.rect, ...spot) && covers(box, line.element));
      });
      if (hit) report("line through text", text.text);
    }
    for (const box of text.near) {
      const across = (box.stroked || box.fill * Number(box.style.opacity) > 0.5) && box.order > text.plate && !within(text.rect, box.rect, 1) && touch(text.rect, box.rect, 1);
      const cover = boxes.some(other => other.svg === text.svg && other.order > box.order && other.order < text.order && within(text.rect, other.rect, 1.5) && covers(other, text.element));
      if (across && !cover) report("text outside its box", text.text);
    }
  }
  if (!colors) for (const text of seen) if (text.svg !== picture && !text.whole && area(cut(text.rect, text.svg.getBoundingClientRect())) > 4) report("text outside its box", text.text);
  for (const word of colors ? [] : words) {
    const holder = word.element.closest("button, td, th, dd, dt, li, h1, h2, p"), box = holder?.getBoundingClientRect();
    if (box && !word.clips.some(clip => holder.contains(clip)) && (word.line.left < box.left - 1.5 || word.line.right > box.right + 1.5)) report("text outside its box", `${word.text} leaves its ${holder.tagName.toLowerCase()}`);
    const clip = word.clips.find(clip => word.line.right > clip.getBoundingClientRect().right + 1.5), silent = clip && /hidden|clip/.test(styleOf(clip).overflowX) && styleOf(clip).textOverflow !== "ellipsis";
    if (silent) report("text outside its box", `${word.text} is cut`);
    if (!word.clips.length && (word.line.right > innerWidth + 1 || word.line.left < -1)) report("text outside its box", `${word.text} leaves the window`);
  }

  // ---- Contrast and size
  for (const text of seen) {
    const x = (text.rect.left + text.rect.right) / 2, y = (text.rect.top + text.rect.bottom) / 2;
    if (!has(text.svg.getBoundingClientRect(), x, y)) continue;
    if (text.size < 8.95 && !colors) report("small font", `${text.text}: ${text.size.toFixed(1)} px`);
    const group = element => { for (let at = element; at !== text.svg; at = at.parentElement) if (at.classList.contains("base") && Number(styleOf(at).opacity) < 1) return at; return null; };
    const around = group(text.element), whole = paper(text.svg);
    let under = whole;
    for (const box of text.near) if (box.order < text.order && has(box.rect, x, y)) under = blend(color(box.style.fill), under, Number(box.style.fillOpacity) * dim(box.element, around ?? undefined));
    for (const part of [text.element, ...text.element.querySelectorAll("tspan")]) {
      if (part === text.element && ![...part.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
      const style = styleOf(part), ink = blend(color(style.fill), under, Number(style.fillOpacity) * dim(part, around ?? undefined));
      const fade = around ? Number(styleOf(around).opacity) : 1, [front, back] = [ink, under].map(one => blend([...one.slice(0, 3), fade], whole));
      const ratio = contrast(front, back);
      if (ratio < 4.5) report("low contrast", `${short(part.textContent)}: ${ratio.toFixed(2)}`);
    }
  }
  const dimmed = [...document.querySelectorAll("input[placeholder]")].filter(one => !one.value).map(one => ({ element: one, text: one.placeholder, style: getComputedStyle(one, "::placeholder"), size: parseFloat(styleOf(one).fontSize) }));
  for (const word of [...words, ...dimmed]) {
    if (word.size < 8.95 && !colors) report("small font", `${word.text}: ${word.size.toFixed(1)} px`);
    const back = paper(word.element), ratio = contrast(blend(color(word.style.color), back, dim(word.element) * (word.line ? 1 : Number(word.style.opacity))), back);
    if (ratio < 4.5) report("low contrast", `${word.text}: ${ratio.toFixed(2)}`);
  }

  if (colors) return faults.filter(([kind]) => kind === "low contrast");

  // ---- Boxes without letters
  const marks = /(^|\s)(behind|ring|track)(\s|$)/;
  const letters = seen.filter(text => text.svg === picture).map(text => [(text.rect.left + text.rect.right) / 2, (text.rect.top + text.rect.bottom) / 2]).concat(beyond);
  for (const box of boxes) {
    if (box.svg !== picture || !box.stroked || marks.test(box.element.getAttribute("class") ?? "") || box.rect.width < 3 || box.rect.height < 3) continue;
    const [x, y] = [(box.rect.left + box.rect.right) / 2, (box.rect.top + box.rect.bottom) / 2];
    if (!touch(box.rect, stage) || boxes.some(other => other.svg === picture && other.order > box.order && within(box.rect, other.rect, 0.5) && covers(other, box.element))) continue;
    if (!letters.some(([left, top]) => has(box.rect, left, top))) report("empty box", `${box.element.parentElement.getAttribute("aria-label") ?? box.element.getAttribute("class")} at ${Math.round(x)}, ${Math.round(y)}`);
  }

  // ---- Bands: each end on the border of a box, with a dot, and not behind another
  if (picture) {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.cssText = "color: var(--save)";
    const green = getComputedStyle(probe).color;
    probe.remove();
    const borders = boxes.filter(box => box.svg === picture && box.stroked);
    const onBorder = (box, x, y, slack) => has({ left: box.rect.left - slack, right: box.rect.right + slack, top: box.rect.top - slack, bottom: box.rect.bottom + slack }, x, y)
      && !(x > box.rect.left + slack && x < box.rect.right - slack && y > box.rect.top + slack && y < box.rect.bottom - slack);
    for (const line of lines) {
      const ends = String([line.points[0], line.points.at(-1)]), again = other => other.order > line.order && String([other.points[0], other.points.at(-1)]) === ends;
      if (line.style.stroke !== green || line.points.length < 2 || lines.some(again)) continue;
      for (const [x, y] of [line.points[0], line.points.at(-1)]) {
        if (!has(stage, x, y)) continue;
        const where = `${line.element.parentElement.getAttribute("class")} at ${Math.round(x)}, ${Math.round(y)}`;
        if (!borders.some(box => onBorder(box, x, y, 3))) report("band without an end", `${where}: in nothing`);
        else if (!dots.some(dot => dot.svg === picture && dot.order > line.order && Math.hypot(dot.x - x, dot.y - y) < 3)) report("band without an end", `${where}: no dot`);
        else if (borders.some(box => box.order > line.order && has(box.rect, x, y) && !onBorder(box, x, y, 4) && covers(box, line.element))) report("band without an end", `${where}: behind a box`);
      }
    }
  }

  // ---- What is wider than its place and does not say so; what lies on the picture of a narrow window
  for (const box of document.querySelectorAll(".table, .panel, .code, .side, nav, header, .results")) {
    const style = styleOf(box), over = box.scrollWidth - box.clientWidth;
    if (over < 2 || !box.clientWidth) continue;
    const bar = box.offsetHeight - box.clientHeight - parseFloat(style.borderTopWidth) - parseFloat(style.borderBottomWidth);
    if (!/auto|scroll/.test(style.overflowX) || bar < 6) report("hidden scroll", `${box.className || box.tagName}: ${box.scrollWidth} px in ${box.clientWidth}`);
  }
  if (picture && innerWidth <= 400)
    for (const element of document.body.querySelectorAll("*")) {
      if (element.closest("svg, script, style") || element.contains(picture) || !shownIn(element, styleOf(element)) || !element.checkVisibility()) continue;
      if (!area([element, ...clippedBy(element)].reduce((rect, one) => cut(rect, one.getBoundingClientRect()), stage))) continue;
      const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()), painted = color(styleOf(element).backgroundColor)[3] > 0.05;
      if (own || painted) report("on the picture", short(element.textContent) || element.className);
    }
  return faults;
}
