// The page of a difference, as a person uses it: what changed, where, and how the step was before.
import assert from "node:assert/strict";
import test from "node:test";
import { dataOf, drawn, expected, fact, heading, opened, search, total } from "./open.mjs";

const data = dataOf("diff"), [after, before] = data.pairs, SIGNS = { added: "+", removed: "−", changed: "~" };
const nameOf = (pair, node) => pair.strings[pair.nodes.name[node]];
const marksOf = (pair, kind) => pair.marks.node.filter((_, at) => pair.marks.kind[at] === kind);
const once = after.marks.node.length + before.marks.kind.filter(kind => kind === "removed").length;
const rows = page => page.locator(".marked li:not(.head)");
const pairOf = page => page.getByLabel("pairs of graphs").locator("option:checked").innerText();

test("it begins with the changes: their lines, and every marked step once", () => opened("diff", async page => {
  assert.equal(await page.getByRole("tab", { selected: true }).innerText(), "Changes");
  assert.deepEqual((await page.locator(".said > div").allTextContents()), data.changes);
  assert.equal(await rows(page).count(), once);
  const heads = await page.locator(".marked .head").allInnerTexts();
  assert.match(heads[0], /^after: .*layers\.5$/);
  assert.match(heads.at(-1), /^before: /);
  assert.match(await page.locator(".base .title").first().textContent(), /^− after: /);
}));

test("it opens where the first change is", () => opened("diff", async page => {
  const step = page.locator(`.base .step[data-unit="${after.marks.node[0]}"]`);
  const box = await step.boundingBox(), stage = await page.locator("svg.picture").boundingBox();
  assert.ok(box && box.x >= stage.x && box.x + box.width <= stage.x + stage.width, "beside the picture");
  assert.ok(box.y >= stage.y && box.y + box.height <= stage.y + stage.height, "above or below the picture");
}));

test("every step that changed has a border and a sign, no other has one", () => opened("diff", async page => {
  for (const pair of data.pairs) {
    await page.getByLabel("pairs of graphs").selectOption({ label: pair.name });
    for (const [at, node] of pair.marks.node.entries()) {
      await page.evaluate(hash => { location.hash = hash; }, `#pair=${data.pairs.indexOf(pair)}&step=${node}`);
      const step = page.locator(`.base .step[data-unit="${node}"]`), kind = pair.marks.kind[at];
      await step.waitFor();
      assert.equal(await step.locator(".changemark").textContent(), SIGNS[kind]);
      assert.match(await step.getAttribute("aria-label"), new RegExp(`, ${kind}$`));
      assert.ok(parseFloat(await step.locator("> rect").evaluate(rect => getComputedStyle(rect).strokeWidth)) > 2);
    }
    const signed = await page.locator(".base .step:has(.changemark)").evaluateAll(all => all.map(one => Number(one.dataset.unit)));
    assert.ok(signed.length && signed.every(unit => pair.marks.node.includes(unit)), "only marked steps have a sign");
  }
}));

test("a folded frame says how many steps in it changed", () => opened("diff", async page => {
  await page.keyboard.press("0");
  const said = (await page.locator(".base .folded .changemark").allTextContents()).join(" ");
  const sum = sign => [...said.matchAll(new RegExp(`\\${sign}(\\d+)`, "g"))].reduce((all, [, count]) => all + Number(count), 0);
  for (const kind of ["added", "changed"]) assert.equal(sum(SIGNS[kind]), marksOf(after, kind).length, kind);
  const frame = page.locator(".base .folded:has(.changemark)").first();
  const count = await frame.locator(".changemark").textContent();
  await frame.click({ position: { x: 12, y: 22 } });
  await page.keyboard.press("d");
  assert.match(await fact(page, "Changes"), new RegExp(`${count.match(/\d+/)[0]} (added|removed|changed)`));
}));

test("a step that changed says what it was, and leads to it and back", () => opened("diff", async page => {
  const at = after.marks.kind.indexOf("changed"), node = after.marks.node[at], [was, is] = after.marks.text[at].split("\n");
  await search(page, nameOf(after, node));
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  await page.keyboard.press("d");
  assert.equal(await heading(page), nameOf(after, node));
  assert.equal(await fact(page, "before"), was.slice(2));
  assert.equal(await fact(page, "after"), is.slice(2));
  await page.getByRole("button", { name: `see ${before.name}` }).click();
  assert.equal(await pairOf(page), before.name);
  assert.equal(await heading(page), nameOf(before, after.marks.other[at]));
  await page.waitForFunction(wanted => location.hash.includes(wanted), `pair=1&step=${after.marks.other[at]}`);
  await page.getByRole("button", { name: `see ${after.name}` }).click();
  assert.equal(await heading(page), nameOf(after, node));
}));

test("a removed step is reached from the list, in the pair that has it", () => opened("diff", async page => {
  const node = marksOf(before, "removed")[0];
  await page.locator(".marked button", { hasText: new RegExp(`^${nameOf(before, node)}$`) }).last().click();
  await drawn(page);
  assert.equal(await pairOf(page), before.name);
  assert.equal(await page.locator(".overlay .is-self").getAttribute("data-unit"), String(node));
  const chosen = page.locator(".marked .chosen");
  assert.match(await chosen.innerText(), /removed/);
  assert.equal(await chosen.locator("dt").allInnerTexts().then(texts => texts.join()), "before");
  await page.keyboard.press("9");
  assert.equal(await page.locator(`.base .step.removed[data-unit="${node}"]`).evaluate(step => getComputedStyle(step.querySelector("rect")).strokeDasharray), "5px, 3px");
}));

test("n and p go through every change and round, a search takes them over", () => opened("diff", async page => {
  const seen = [];
  for (let at = 0; at <= once; at++) {
    await page.keyboard.press("n");
    seen.push(await page.locator(".marked li:not(.head)").evaluateAll(all => all.findIndex(one => one.classList.contains("chosen"))));
    assert.ok(await page.locator(".overlay .is-self").count() > 0);
  }
  assert.deepEqual(seen, [...Array.from({ length: once }, (_, at) => at), 0]);
  await page.keyboard.press("p");
  assert.equal(await pairOf(page), before.name);
  await page.keyboard.press("p");
  await search(page, "op:addmm");
  await page.keyboard.press("Escape");
  await page.keyboard.press("n");
  await page.keyboard.press("d");
  assert.match(await fact(page, "Operator"), /addmm/);
}));

test("is:added, is:removed and is:changed find what they say", () => opened("diff", async page => {
  for (const pair of data.pairs) {
    await page.getByLabel("pairs of graphs").selectOption({ label: pair.name });
    for (const kind of Object.keys(SIGNS)) {
      await search(page, `is:${kind}`);
      assert.equal(await total(page), marksOf(pair, kind).length, `${kind} of ${pair.name}`);
      await page.keyboard.press("Escape");
    }
  }
  await search(page, "is:new");
  assert.match(await page.locator(".results").innerText(), /added, removed, changed/);
}));

test("a click on a step leaves the list for its details; the code has the signs", () => opened("diff", async page => {
  await page.keyboard.press("9");
  await page.locator(".base .step").first().click();
  assert.equal(await page.getByRole("tab", { selected: true }).innerText(), "Details");
  await page.keyboard.press("n");
  await page.keyboard.press("c");
  assert.equal(await page.locator(".row.chosen .sign").innerText().then(said => said.trim()), "~");
  await page.keyboard.press("h");
  assert.equal(await page.locator(".marked .chosen").count(), 1);
  await page.keyboard.press("?");
  assert.match(await page.getByRole("dialog").innerText(), /next or previous change/);
}));

test("strangers' words of a difference are text", () => opened("hostile_diff", async page => {
  assert.match(await page.locator(".said").innerText(), /<\/script><img src=x onerror=alert\(1\)>/);
  await page.keyboard.press("n");
  assert.match(await page.locator(".marked .chosen dd").first().innerText(), /<img src=x/);
  assert.equal(await page.locator("img").count(), 0);
  assert.ok(!(await page.locator("#app").innerText()).includes("\u202e"));
}));

assert.ok(marksOf(after, "changed").length && marksOf(before, "removed").length && expected.damage.includes("has no marks"));
