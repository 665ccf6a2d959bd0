// What a page says, against other counts; what it says of data that are wrong or hostile.
import assert from "node:assert/strict";
import test from "node:test";
import { dataOf, drawn, expected, fact, heading, opened, search, total } from "./open.mjs";

const stack = dataOf("stack").pairs[0], text = id => stack.strings[id], sum = row => row.reduce((all, one) => all + one, 0);
const number = said => {
  const [, digits, unit] = /([\d.,]+)\s*([A-Za-z]*)/.exec(said), powers = ["", "k", "M", "G", "T"], bytes = ["B", "KiB", "MiB", "GiB"];
  const name = unit.replace("FLOP", "");
  return Number(digits.replaceAll(",", "")) * (bytes.includes(unit) ? 1024 ** bytes.indexOf(unit) : 1000 ** powers.indexOf(name));
};
const near = (said, right, what) => assert.ok(Math.abs(number(said) - right) <= 0.006 * right, `${what}: the page says ${said}, counted were ${right}`);

test("FLOPs are those of torch's FlopCounterMode", () => opened("stack", async page => {
  near(/, (.*) in products/.exec(await fact(page, "Forward"))[1], expected.counts.forward_flops, "forward");
  near(/, (.*) in products/.exec(await fact(page, "Backward"))[1], expected.counts.backward_flops, "backward");
}));

test("what is saved says what the rest is", () => opened("stack", async page => {
  const rest = stack.saved.filter(one => !one[3]), [, count, bytes] = /\. (\d+) more values?, ([\d.]+ \w+)/.exec(await fact(page, "Saved"));
  assert.equal(Number(count), rest.length);
  near(bytes, sum(rest.map(one => one[2])), "the rest");
  await page.keyboard.press("i");
  const group = await page.locator("summary", { hasText: "Forward gives: saved" }).innerText();
  near(/, ([\d.]+ \w+), of which/.exec(group)[1], sum(stack.saved.map(one => one[2])), "all that is saved");
  near(/of which ([\d.]+ \w+)/.exec(group)[1], expected.counts.saved, "new memory");
}));

test("saved bytes are those that autograd's hooks saw", () => opened("stack", async page => {
  near(await fact(page, "Saved"), expected.counts.saved, "saved");
  await page.keyboard.press("l");
  near(/[\d.]+ [KMG]?i?B/.exec(await page.locator(".panel > p").innerText())[0], expected.counts.saved, "saved by line");
}));

test("the peak is where most is live, and its holders are what is live", () => opened("stack", async page => {
  const { live, peak, spans } = stack.memory, most = Math.max(...live);
  near(await fact(page, "Peak"), most, "peak");
  await page.keyboard.press("m");
  near(/^[\d.]+ \w+/.exec(await fact(page, "Live"))[0], most, "live");
  const holding = spans.filter(([, first, last]) => first <= peak[0] && peak[0] <= last);
  assert.equal(Number(/in (\d+) values/.exec(await fact(page, "Live"))[1]), holding.length);
  assert.equal(sum(holding.map(one => one[3])), most);
  const first = page.locator(".panel tbody tr").first();
  near(await first.locator("td").nth(1).innerText(), Math.max(...holding.map(one => one[3])), "largest holder");
}));

test("a click on the time line goes to a moment, arrows move it, a link goes to the holder", () => opened("stack", async page => {
  const box = await page.locator(".timeline").boundingBox();
  await page.mouse.click(box.x + box.width * 0.25, box.y + 40);
  const at = async () => Number(/^([\d,]+) of/.exec(await fact(page, "Step"))[1].replaceAll(",", "")), steps = stack.nodes.name.length;
  const here = await at();
  assert.ok(Math.abs(here - steps / 4) <= 2, `${here} of ${steps}`);
  await page.locator(".timeline").focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await at(), here + 1);
  near(/^[\d.]+ \w+/.exec(await fact(page, "Live"))[0], stack.memory.live[here], "live");
  const link = page.locator(".panel tbody .link").first(), name = await link.innerText();
  await link.click();
  await page.keyboard.press("d");
  assert.equal(await heading(page), name);
}));

test("operators add up to all steps, and lead to a search", () => opened("stack", async page => {
  await page.keyboard.press("o");
  const tables = page.locator(".panel table");
  for (const at of [0, 1]) {
    const steps = await tables.nth(at).locator("tbody tr td:nth-child(2)").allInnerTexts();
    assert.equal(sum(steps.flatMap(cell => cell.split("\n").map(Number))), stack.nodes.name.length);
  }
  await tables.nth(1).getByRole("button", { name: "gelu", exact: true }).click();
  assert.equal(await total(page), 8);
}));

test("lines of the program: bytes, and their steps", () => opened("stack", async page => {
  await page.keyboard.press("l");
  const row = page.locator(".panel tbody tr", { hasText: "browser_pages.py" }).first();
  await row.locator(".link").first().click();
  assert.ok(await total(page) > 0);
}));

test("inputs and outputs have links", () => opened("stack", async page => {
  await page.keyboard.press("i");
  assert.match(await page.locator(".panel").innerText(), /Forward takes: parameter/);
  assert.match(await page.locator(".panel").innerText(), /Backward gives: gradient/);
}));

test("NaN and Inf stand out", () => opened("stats", async page => {
  const pair = dataOf("stats").pairs[0], bad = pair.nodes.name.length - 3;
  assert.ok(await page.locator(".badmark").count() > 0);
  await search(page, "has:nan");
  assert.equal(await total(page), 1);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  assert.equal(await heading(page), pair.strings[pair.nodes.name[bad]]);
  assert.equal(await fact(page, "NaN and Inf"), "5 NaN, 0 Inf of 16");
  await search(page, "has:inf");
  assert.equal(await total(page), 1);
  await page.keyboard.press("Escape");
  await page.keyboard.press("v");
  assert.match(await page.locator(".panel").innerText(), /2 of \d+ measured values have NaN or Inf/);
  assert.ok(await page.locator(".panel td .alarm").count() >= 2);
}));

test("a page without statistics says so", () => opened("stack", async page => {
  await search(page, "has:nan");
  assert.match(await page.locator(".results").innerText(), /no statistics of values/);
  assert.equal(await page.getByRole("tab", { name: "Values" }).count(), 0);
}));

test("names of strangers are text everywhere", () => opened("hostile", async page => {
  for (const key of ["c", "m", "l", "o", "v", "i", "d"]) {
    await page.keyboard.press(key);
    await drawn(page);
  }
  await page.keyboard.press("9");
  await search(page, "onerror");
  assert.ok(await total(page) > 0);
  await page.keyboard.press("Enter");
  assert.match(await page.locator(".panel").innerText(), /<\/script><img src=x onerror=alert\(1\)>/);
  assert.equal(await page.locator("img").count(), 0);
  assert.equal(await page.locator("script").count(), 2);
  assert.ok(!(await page.locator("#app").innerText()).includes("\u202e"), "marks that turn text round are written out");
}));

test("one direction alone is drawn", () => opened("one", async page => {
  assert.match(await fact(page, "Backward"), /no backward/);
  assert.equal(await page.locator(".base .step").count(), dataOf("one").pairs[0].nodes.name.length);
  await page.keyboard.press("m");
  await page.keyboard.press("c");
  assert.match(await page.locator(".code").innerText(), /aten\.argmax/);
}));

test("several pairs have a chooser", () => opened("two", async page => {
  await page.getByLabel("pairs of graphs").selectOption({ label: "the second" });
  assert.match(await page.locator(".base").textContent(), /argmax/);
  await page.waitForFunction(() => location.hash.includes("pair=1"));
  await opened(page.url(), async again => assert.match(await again.locator(".base").textContent(), /argmax/));
}));

expected.damage.forEach((words, place) => test(`damaged data (${words}) are named`, () => opened(`broken${place}`, async page => {
  const said = await page.getByRole("alert").innerText();
  assert.match(said, /cannot be drawn/);
  assert.ok(said.includes(words), said);
})));

test("a page without changes has nothing of them", () => opened("stack", async page => {
  assert.equal(await page.getByRole("tab", { name: "Changes" }).count(), 0);
  assert.equal(await page.locator(".changemark").count(), 0);
  await search(page, "is:added");
  assert.match(await page.locator(".results").innerText(), /is is one of saved, view, guard/);
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  assert.doesNotMatch(await page.getByRole("dialog").innerText(), /change/);
}));

for (const [scheme, paper] of [["light", "rgb(255, 255, 255)"], ["dark", "rgb(20, 24, 29)"]])
  test(`${scheme} is ${scheme}`, () => opened("stack", async page => {
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), paper);
    const low = await page.evaluate(contrasts);
    assert.deepEqual(low, []);
  }, { colorScheme: scheme }));

/** Texts whose contrast with the page is below 4.5. */
function contrasts() {
  const light = color => {
    const [r, g, b] = color.match(/[\d.]+/g).map(Number).map(one => one / 255).map(one => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor), found = [];
  for (const name of ["--ink", "--soft", "--fwd", "--bwd", "--save", "--alarm", "--mark"]) {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const own = light(getComputedStyle(probe).color);
    if ((Math.max(own, paper) + 0.05) / (Math.min(own, paper) + 0.05) < 4.5) found.push(name);
    probe.remove();
  }
  return found;
}

assert.ok(text(0) === "");
