// A page as a person uses it: open, close, search, select, follow, copy, export.
import assert from "node:assert/strict";
import test from "node:test";
import { readFileSync } from "node:fs";
import { address, dataOf, drawn, fact, heading, opened, search, total } from "./open.mjs";

const stack = dataOf("stack").pairs[0], text = id => stack.strings[id];
const named = name => stack.nodes.name.findIndex(id => text(id) === name);
const loop = stack.frames.findIndex(frame => frame.kind === "loop");
const folded = page => page.locator(".base .folded");
const layers = page => page.locator(`.base .frame[data-unit="${-loop - 1}"]`).filter({ hasText: "×" });

test("the first picture shows the program with its layers as one box", () => opened("stack", async page => {
  assert.match(await layers(page).textContent(), /× 8/);
  assert.match(await page.title(), /Stack/);
  assert.equal(await page.locator(".base .step, .base .folded").count() > 3, true);
}));

test("a click opens a frame where it is, a click on its head closes it", () => opened("stack", async page => {
  await page.keyboard.press("0");
  const first = folded(page).first(), unit = await first.getAttribute("data-unit"), before = await first.boundingBox();
  await first.click({ position: { x: 12, y: 12 } });
  const open = page.locator(`.base .open[data-unit="${unit}"]`), box = await open.boundingBox();
  assert.ok(Math.abs(box.y - before.y) < 2, "the top of the frame stays");
  assert.equal(await page.locator(`.base .folded[data-unit="${unit}"]`).count(), 0);
  await page.locator(`.base [data-fold="${-unit - 1}"]`).click({ position: { x: 30, y: 8 } });
  assert.equal(await page.locator(`.base .folded[data-unit="${unit}"]`).count(), 1);
}));

test("Enter opens and closes the selection; a double click opens all inside", () => opened("stack", async page => {
  await page.keyboard.press("0");
  const inside = () => page.locator(".base .step").count(), before = await inside();
  await layers(page).dblclick({ position: { x: 12, y: 12 } });
  await drawn(page);
  assert.equal(await folded(page).evaluateAll((boxes, unit) => boxes.some(box => box.dataset.unit === unit), String(-loop - 1)), false);
  await page.keyboard.press("a");
  await drawn(page);
  assert.ok(await inside() > before + 5);
  await page.keyboard.press("Enter");
  assert.equal(await page.locator(`.base .folded[data-unit="${-loop - 1}"]`).count(), 1);
  await page.keyboard.press("Enter");
  assert.equal(await page.locator(`.base .folded[data-unit="${-loop - 1}"]`).count(), 0);
}));

test("depth opens every frame to a level", () => opened("stack", async page => {
  await page.keyboard.press("9");
  await page.keyboard.press("a");
  await drawn(page);
  assert.equal(await folded(page).count(), 0);
  await page.getByTitle("close one level").click();
  assert.ok(await folded(page).count() > 0);
  await page.keyboard.press("0");
  assert.match(await page.locator("header").innerText(), /depth 1/);
}));

test("the name of an open frame stays in the window where its head does", () => opened("stack", async page => {
  await page.keyboard.press("2");
  for (const key of "a+++++") await page.keyboard.press(key);
  await page.mouse.move(300, 400);
  await page.mouse.wheel(300, 0);
  await drawn(page);
  const body = await page.locator(`.base .open[data-unit="-1"] .body`).boundingBox(), name = await page.locator(`.base [data-fold="0"] .title`).boundingBox();
  assert.ok(body.x < -50, "the frame begins left of the window");
  assert.ok(name.x >= 0 && name.x < 40, `its name is at ${name.x}`);
}));

test("what is selected and too small to be drawn is a ring around the frame whose name is there", () => opened("stack", async page => {
  const step = named("gelu");
  for (const key of "9") await page.keyboard.press(key);
  await page.evaluate(hash => { location.hash = hash; }, `#pair=0&step=${step}&open=0-${stack.frames.length - 1}`);
  await page.waitForSelector(".overlay .is-self, .overlay .ring");
  await page.keyboard.press("a");
  for (let times = 0; times < 8; times++) await page.keyboard.press("-");
  await drawn(page);
  const placed = all => all.map(one => ["x", "y", "width", "height"].map(name => one.getAttribute(name)).join(" "));
  const rings = await page.locator(".overlay .ring").evaluateAll(placed), bodies = await page.locator(".base .open .body").evaluateAll(placed);
  assert.ok(rings.length > 0);
  for (const ring of rings) assert.ok(bodies.includes(ring), `a ring at ${ring}`);
}));

test("a loop turns: what is open in a turn is open in the next", () => opened("stack", async page => {
  await page.keyboard.press("9");
  await layers(page).locator(".title").first().click();
  await page.keyboard.press("9");
  const step = page.locator(".stepper").first();
  assert.match(await step.textContent(), /1 of 8/);
  const names = () => page.locator(".base .step").evaluateAll(all => all.map(one => one.dataset.unit).join());
  const first = await names(), count = await page.locator(".base .step").count();
  await page.getByLabel("next turn").first().click();
  assert.match(await step.textContent(), /2 of 8/);
  assert.notEqual(await names(), first);
  assert.equal(await page.locator(".base .step").count(), count);
  await page.keyboard.press("]");
  assert.match(await step.textContent(), /3 of 8/);
  await page.getByRole("spinbutton").fill("8");
  await page.getByRole("spinbutton").press("Enter");
  await page.getByRole("spinbutton").blur();
  assert.match(await step.textContent(), /8 of 8/);
}));

test("a step says what it is, and what belongs to it lights up", () => opened("stack", async page => {
  const node = stack.nodes.partners.findIndex((partners, at) => at >= stack.forward && partners.length), partner = stack.nodes.partners[node][0];
  await search(page, text(stack.nodes.name[partner]));
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  assert.equal(await heading(page), text(stack.nodes.name[partner]));
  assert.equal(await fact(page, "Type"), text(stack.nodes.spec[partner]));
  assert.match(await fact(page, "Operator"), new RegExp(text(stack.nodes.op[partner]).replaceAll(".", "\\.")));
  assert.match(await fact(page, "Source"), /\.py:\d+/);
  assert.ok(await page.locator(".overlay .is-partner").count() > 0);
  await page.keyboard.press("ArrowRight");
  assert.match(await fact(page, "In the forward"), new RegExp(text(stack.nodes.name[partner])));
  assert.match(await fact(page, "Echo"), /gradient/);
  await page.keyboard.press("ArrowLeft");
  assert.equal(await heading(page), text(stack.nodes.name[partner]));
}));

test("hovering lights a step up without selecting it", () => opened("stack", async page => {
  await page.keyboard.press("9");
  await page.locator(".base .step.backward").first().hover();
  assert.ok(await page.locator(".overlay .is-self").count());
  assert.match(await page.locator(".caption").innerText(), / = /);
  assert.equal(await page.locator("svg.pinned").count(), 0);
}));

test("links in the panel lead along the graph, opening what is closed", () => opened("stack", async page => {
  await search(page, "op:gelu");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  const user = page.locator('.panel dt:text-is("Users") + dd .link').first(), name = await user.innerText();
  await user.click();
  assert.equal(await heading(page), name);
  const unit = await page.locator(".overlay .is-self").getAttribute("data-unit");
  assert.equal(text(stack.nodes.name[Number(unit)]), name);
}));

test("arrows go along the flow", () => opened("stack", async page => {
  await page.keyboard.press("9");
  await page.locator("svg.picture").focus();
  const seen = new Set();
  for (let at = 0; at < 12; at++) {
    await page.keyboard.press("ArrowDown");
    seen.add(await heading(page));
  }
  assert.ok(seen.size >= 8, [...seen].join());
}));

test("Enter in a search opens frames and turns loops on the way", () => opened("stack", async page => {
  const source = stack.sources.findIndex(one => text(one[4]) === "layers.5.up"), node = stack.nodes.source.indexOf(source);
  assert.ok(node >= 0, "the capture has layers.5.up");
  await page.keyboard.press("0");
  await search(page, "module:layers.5.up");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  assert.equal(await fact(page, "Module"), "layers.5.up");
  assert.match(await page.locator(".stepper").first().textContent(), /6 of 8/);
  const box = await page.locator(".overlay .is-self").boundingBox();
  assert.ok(box.x > 0 && box.y > 40 && box.x + box.width < 1100 && box.y + box.height < 820, "it is in the window");
}));

const counts = test => stack.nodes.name.filter((_, at) => test(at)).length, n = stack.nodes;
const sizes = spec => `,${/\[(.*?)\]/.exec(spec)?.[1].replaceAll(" ", "") ?? ""},`;
const inFrame = (frame, unit) => frame >= 0 && (-frame - 1 === unit || inFrame(stack.frames[frame].parent, unit));
const filters = {
  "op:mm": at => text(n.op[at]).split(".")[1] === "mm",
  "is:saved": at => (n.flags[at] & 4) !== 0,
  "is:view": at => (n.flags[at] & 1) !== 0,
  "side:backward": at => at >= stack.forward,
  ">1KiB": at => n.written[at] > 1024,
  "shape:32,64": at => sizes(text(n.spec[at])).includes(",32,64,"),
  "op:mm side:forward": at => at < stack.forward && text(n.op[at]).split(".")[1] === "mm",
  "module:layers.3": at => (n.source[at] >= 0 && /^layers\.3(\.|$)/.test(text(stack.sources[n.source[at]][4]))) || inFrame(n.frame[at], stack.frames[loop].units[3]),
};
for (const [query, check] of Object.entries(filters))
  test(`the filter ${query} finds what the data have`, () => opened("stack", async page => {
    await search(page, query);
    assert.equal(await total(page), counts(check));
  }));

test("results have counts, and a wrong filter says what is right", () => opened("stack", async page => {
  await search(page, "gelu_backward");
  assert.match(await page.locator(".results .counts").innerText(), /^8 backward · in names 8, operators 8/);
  await page.waitForSelector(".found, .step.match");
  await search(page, "is:wrong");
  assert.match(await page.locator(".results").innerText(), /is is one of saved, view, guard/);
  await search(page, "zzzz");
  assert.match(await page.locator(".results").innerText(), /Nothing has these words/);
}));

test("a word counts names first, and says how many have it elsewhere", () => opened("stack", async page => {
  const named = at => [n.name[at], n.op[at]].some(id => text(id).toLowerCase().includes("gelu"));
  await search(page, "gelu");
  const steps = async () => [...(await page.locator(".results .counts").innerText()).matchAll(/([\d,]+) (?:forward|backward)/g)].reduce((all, [, count]) => all + Number(count.replaceAll(",", "")), 0);
  const first = await steps();
  assert.equal(first, counts(named));
  const more = page.locator(".results .elsewhere"), rest = Number(/^([\d,]+) more/.exec(await more.innerText())[1].replaceAll(",", ""));
  assert.ok(rest > 0);
  await more.click();
  assert.equal(await steps(), first + rest);
  assert.equal(await page.locator(".results .elsewhere").count(), 0);
  await search(page, "layers.5");
  assert.ok(await total(page) > 5, "where no name has the word, it is looked for everywhere");
}));

test("the code is in step with the selection, both ways", () => opened("stack", async page => {
  await page.keyboard.press("c");
  const lines = Number(await page.locator(".code").getAttribute("data-lines"));
  assert.ok(lines > stack.nodes.name.length);
  assert.ok(await page.locator(".code .row").count() < 120, "only what is in sight is drawn");
  await search(page, "op:gelu_backward");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  assert.match(await page.locator(".code .row.chosen").last().innerText(), /= aten\.gelu_backward\.default\(/);
  const other = page.locator(".code .row.lit:not(.note)").first(), name = /(\w+): "/.exec(await other.innerText())[1];
  await other.click();
  await page.keyboard.press("d");
  assert.equal(await heading(page), name);
}));

test("a link restores the selection and what is open", () => opened("stack", async page => {
  await search(page, "module:layers.6.down side:backward");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  const was = await heading(page);
  await page.waitForFunction(() => location.hash.includes("step="));
  const link = page.url(), shown = await page.locator(".base [data-unit]").count();
  await opened(link, async second => {
    assert.equal(await heading(second), was);
    assert.match(await second.locator(".stepper").first().textContent(), /7 of 8/);
    assert.ok(Math.abs(await second.locator(".base [data-unit]").count() - shown) < 40);
  });
  await page.evaluate(() => { location.hash = "#pair=0&step=0"; });
  await page.waitForFunction(name => document.querySelector(".panel h2")?.textContent === name, text(stack.nodes.name[0]));
  await page.evaluate(() => { location.hash = "#pair=7&step=99999999&open=zz&turn=1:1:1"; });
  await drawn(page);
  assert.equal(await page.locator(".wrong").count(), 0);
}));

test("the copy of a link is said", () => opened("stack", async page => {
  await page.getByRole("button", { name: "link" }).click();
  await page.waitForSelector(".told");
  const said = await page.locator("output.told").count() ? await page.locator("output.told").innerText() : await page.locator("input.told").inputValue();
  assert.match(said, /copied|#pair=0/);
}));

test("the visible part becomes a file of its own", () => opened("stack", async page => {
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "SVG" }).click()]);
  const svg = readFileSync(await download.path(), "utf8");
  assert.match(svg, /^<\?xml/);
  assert.ok(!/<script|foreignObject|onload/i.test(svg));
  assert.match(svg, /× 8/);
  const shapes = await page.evaluate(source => {
    const made = new DOMParser().parseFromString(source, "image/svg+xml");
    return made.querySelector("parsererror") ? -1 : made.querySelectorAll(".step rect, .folded rect").length;
  }, svg.replace(/<style>.*<\/style>/s, ""));
  assert.ok(shapes > 5);
  assert.match(svg, /prefers-color-scheme: dark/);
}));

test("every step is reached by its link, and drawn", () => opened("stack", async page => {
  const missing = await page.evaluate(async names => {
    const wrong = [];
    for (let step = 0; step < names.length; step++) {
      location.hash = `#pair=0&step=${step}`;
      await new Promise(done => addEventListener("hashchange", () => requestAnimationFrame(done), { once: true }));
      const self = document.querySelector(".overlay .is-self")?.getAttribute("data-unit");
      if (document.querySelector(".panel h2").textContent !== names[step] || self !== String(step)) wrong.push(step);
    }
    return wrong;
  }, stack.nodes.name.map(text));
  assert.deepEqual(missing, []);
}));

test("? shows the keys, Escape leaves", () => opened("stack", async page => {
  await page.keyboard.press("?");
  assert.match(await page.getByRole("dialog").innerText(), /to the partner/);
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("dialog").count(), 0);
}));

test("a page works inside a notebook's frame", () => opened("stack", async page => {
  const html = readFileSync(new URL(address("stack")), "utf8");
  await page.goto("about:blank");
  await page.setContent("<iframe id=f sandbox='allow-scripts' style='width:900px;height:600px'></iframe>");
  await page.evaluate(source => { document.getElementById("f").srcdoc = source; }, html);
  const frame = page.frameLocator("#f");
  await frame.locator(".base .folded").first().click({ position: { x: 12, y: 12 } });
  assert.ok(await frame.locator(".base .open").count() > 0);
}));

test("a wheel moves, a drag moves, + zooms", () => opened("stack", async page => {
  const place = () => page.locator("svg.picture > g").first().getAttribute("transform"), seen = [await place()];
  await page.mouse.move(500, 400);
  await page.mouse.wheel(0, 120);
  await drawn(page);
  seen.push(await place());
  await page.keyboard.press("+");
  seen.push(await place());
  await page.mouse.move(30, 600);
  await page.mouse.down();
  await page.mouse.move(90, 500, { steps: 4 });
  await page.mouse.up();
  seen.push(await place());
  assert.equal(new Set(seen).size, 4, seen.join("\n"));
}));

assert.ok(named("no such name") === -1 && loop > 0);
