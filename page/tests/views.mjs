// The views in which a page is checked: in light and dark, as it opens, at fit, at two depths, with a step selected near and at fit, with each panel.
import { KINDS, look } from "./faults.mjs";

export const WIDTHS = [[1280, 900], [900, 900], [400, 800], [500, 900]];

const settled = page => page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));

/** Call `each` with the name of a view, the mode and its faults, view by view. `kinds` are those that count. */
export async function viewed(page, each, kinds = KINDS) {
  await page.waitForSelector("svg.picture [data-unit], .wrong");
  const press = async keys => { for (const key of keys) await page.keyboard.press(key); };
  const seen = async (name, drawn = true) => {
    await settled(page);
    for (const mode of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: mode });
      await each(name, mode, (await page.evaluate(look, { drawn, colors: mode === "dark" })).filter(([kind]) => kinds.includes(kind)));
    }
  };
  await seen("first");
  await press("a");
  await seen("fit");
  for (const depth of ["2", "9"]) {
    await press([depth, "a"]);
    await seen(`depth${depth}`);
  }
  const step = await page.evaluate(() => {
    const steps = [...document.querySelectorAll(".base .step")].map(one => Number(one.dataset.unit));
    return steps[Math.floor(steps.length / 2)] ?? 0;
  });
  await press("0");
  await page.evaluate(hash => { location.hash = hash; }, `#pair=0&step=${step}`);
  await page.waitForSelector(".overlay .is-self, .overlay .ring");
  await seen("step");
  await press("a");
  await seen("stepfit");
  await press("f");
  for (const tab of await page.getByRole("tab").all()) {
    await tab.click();
    await seen(`tab_${(await tab.innerText()).replace(/\W/g, "")}`, false);
  }
}
