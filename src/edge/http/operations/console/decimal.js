// Exact numbers. The API writes every quantity as decimal text with at most six decimals. Here it is
// a BigInt of millionths, and never a float.

export const MILLION = 1_000_000n;

/** What stands where a number is not known. */
export const NONE = "–";

/** The millionths of decimal text such as "994.7"; null if it is none. */
export function micros(text) {
  const parts = /^(-?)(\d*)(?:\.(\d{0,6}))?$/.exec(String(text ?? "").trim());
  if (!parts) return null;
  const [, sign, whole, part = ""] = parts;
  if (!whole && !part) return null;
  const size = BigInt(whole) * MILLION + BigInt(part.padEnd(6, "0"));
  return sign ? -size : size;
}

/** The digits of millionths without a sign: "1,000.5". */
function digits(value, decimalsMin) {
  const size = value < 0n ? -value : value;
  const whole = String(size / MILLION).replace(/\B(?=(\d{3})+$)/g, ",");
  const part = String(size % MILLION).padStart(6, "0").replace(/0+$/, "").padEnd(decimalsMin, "0");
  return part ? `${whole}.${part}` : whole;
}

function shown(value, write) {
  const known = typeof value === "bigint" ? value : micros(value);
  return known === null ? NONE : write(known);
}

const minus = (value) => (value < 0n ? "−" : "");

/** A quantity of shares, with at least so many decimals: "1,872.42". */
export function shares(value, decimalsMin = 0) {
  return shown(value, (known) => minus(known) + digits(known, decimalsMin));
}

/** Dollars, with at least two decimals: "−$1,000.50". */
export function money(value) {
  return shown(value, (known) => `${minus(known)}$${digits(known, 2)}`);
}

/** Dollars won or lost, always with their sign: "+$0.62". */
export function gain(value) {
  return shown(value, (known) => (known > 0n ? "+" : "") + money(known));
}

/** How many decimals prices have on this tick. */
export function decimalsOf(tick) {
  return (String(tick ?? "0.01").split(".")[1] ?? "").length;
}

/** A price, with at least the decimals of the tick: "0.50". */
export function price(value, tick) {
  return shown(value, (known) => minus(known) + digits(known, decimalsOf(tick)));
}

/** The sign of a number: 1n, 0n or -1n; 0n if it is not known. */
export function signOf(value) {
  const known = typeof value === "bigint" ? value : micros(value);
  if (known === null || known === 0n) return 0n;
  return known > 0n ? 1n : -1n;
}
