/** How numbers and names are written, and what kind of operator a name is. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Three digits and a unit: `12 MiB`. */
export function bytes(count: number): string {
  let power = 0;
  while (count >= 999.5 && power < UNITS.length - 1) [count, power] = [count / 1024, power + 1];
  return `${digits(count, power === 0)} ${UNITS[power]}`;
}

const THOUSANDS = ["", "k", "M", "G", "T", "P", "E"];

/** Three digits and a power of a thousand: `1.35 G`. */
export function flops(count: number): string {
  let power = 0;
  while (count >= 999.5 && power < THOUSANDS.length - 1) [count, power] = [count / 1000, power + 1];
  return `${digits(count, power === 0)} ${THOUSANDS[power]}`.trim();
}

/** The same with its unit: `1.35 GFLOP`, `768 FLOP`. */
export function inFlop(count: number): string {
  const said = flops(count);
  return /\d$/.test(said) ? `${said} FLOP` : `${said}FLOP`;
}

function digits(count: number, whole: boolean): string {
  return whole ? String(Math.round(count)) : count >= 99.95 ? count.toFixed(0) : count >= 9.995 ? count.toFixed(1) : count.toFixed(2);
}

/** FLOPs at the end of a fact; nothing where there are none. */
export function flopsText(count: number): string {
  return count ? `, ${inFlop(count)} in products` : "";
}

/** A whole number with its thousands apart. */
export function whole(count: number): string {
  return count.toLocaleString("en-US");
}

/** Four digits of a number of a tensor. */
export function real(value: number | null): string {
  if (value === null) return "–";
  if (value === 0 || Number.isInteger(value) && Math.abs(value) < 1e6) return whole(value);
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e5 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
}

/** What a badge has for a step that was added, removed or changed. */
export const SIGNS = { added: "+", removed: "−", changed: "~" };

export function plural(count: number, word: string): string {
  return `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** `aten.mm.default` is `mm`. An overload that is not the default one stays only where it says something: `add.Tensor` is `add`. */
export function short(op: string): string {
  const parts = op.split(".");
  return parts.length >= 3 ? parts[parts.length - 2] : parts[parts.length - 1];
}

const FONT = 'system-ui, "Segoe UI", Helvetica, Arial, sans-serif', MEASURED = 100;
const letters: Record<"normal" | "bold", Map<string, number>> = { normal: new Map(), bold: new Map() };
let pen: CanvasRenderingContext2D | null = null;

/** The width of a letter of size 1 in the picture's font; a usual one where there is no browser to ask. */
function letterWidth(letter: string, bold: boolean): number {
  const known = letters[bold ? "bold" : "normal"], had = known.get(letter);
  if (had !== undefined) return had;
  if (typeof document === "undefined") return 0.6;
  pen ??= document.createElement("canvas").getContext("2d");
  if (!pen) return 0.65;
  pen.font = `${bold ? 600 : 400} ${MEASURED}px ${FONT}`;
  const wide = pen.measureText(letter).width / MEASURED;
  known.set(letter, wide);
  return wide;
}

/** The width of a text in the picture. */
export function widthOf(text: string, size: number, bold = false): number {
  let sum = 0;
  for (const letter of text) sum += letterWidth(letter, bold);
  return sum * size;
}

/** A text as far as it fits a width; what is cut off is its end. */
export function cut(text: string, wide: number, size: number, bold = false): string {
  if (widthOf(text, size, bold) <= wide) return text;
  let [room, end] = [wide - widthOf("…", size, bold), 0];
  for (const letter of text) {
    room -= letterWidth(letter, bold) * size;
    if (room < 0) break;
    end += letter.length;
  }
  return end ? `${text.slice(0, end).trimEnd()}…` : "";
}

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]/gu;

/** Letters that hide or reorder others are written out, as Python's `printable` does. */
export function clean(text: string): string {
  return text.replace(HIDDEN, letter => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const OPERATORS: [kind: string, pattern: RegExp][] = [
  ["attention", /^_?(scaled_dot_product|flash_attention|efficient_attention|flex_attention)/],
  ["convolution", /^(_?conv|convolution|cudnn_conv|mkldnn_conv|slow_conv|thnn_conv)/],
  ["matmul", /^_?(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|matmul|linear|scaled_mm|int_mm|grouped_mm|weight_int\w*)(_\w+)?$/],
  ["norm", /(layer|batch|group|rms|instance)_norm|^_?(weight_norm|native_\w*norm)|cudnn_batch_norm/],
  ["softmax", /softmax/],
  ["embedding", /embedding|^gather|^scatter|index|^take/],
  ["pool", /pool|upsample|interpolate|grid_sample/],
  ["random", /dropout|^(rand|bernoulli|normal|uniform|multinomial|philox)/],
  ["reduction", /^(sum|mean|var|std|amax|amin|max|min|argmax|argmin|any|all|prod|logsumexp|norm|linalg_vector_norm|cum\w+|nll_loss\w*|mse_loss\w*)(_|$)/],
  ["creation", /^(full|zeros|ones|empty|arange|new_|scalar_tensor|eye|tril|triu|linspace)/],
  ["copy", /^(clone|_to_copy|copy|contiguous|cat|stack|constant_pad|roll|flip|sort|topk)/],
];

/** The kind of an operator, for filters and tables. */
export function kindOf(name: string, view: boolean, guard: boolean): string {
  if (guard) return "guard";
  if (view) return "view";
  return OPERATORS.find(([, pattern]) => pattern.test(name))?.[0] ?? "pointwise";
}
