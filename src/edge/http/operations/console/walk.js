// What an order would do to the levels of a book that are shown, exactly, or nothing.

import { MILLION, micros } from "./decimal.js";

/** How many levels of each side are shown. */
export const LEVELS = 8;

/** A quotient, rounded to even when it lies in the middle. */
function halfEven(dividend, divisor) {
  const [quotient, twice] = [dividend / divisor, (dividend % divisor) * 2n];
  if (twice < divisor) return quotient;
  return twice > divisor || quotient % 2n ? quotient + 1n : quotient;
}

/** What follows from the levels that are shown; null if they do not say. */
export function walk(book, { side, type, quantity, price }) {
  const wanted = micros(quantity);
  const limit = type === "limit" ? micros(price) : null;
  if (!book || wanted === null || wanted <= 0n || (type === "limit" && limit === null)) return null;
  const isBuy = side === "BUY";
  const levels = (isBuy ? book.asks : book.bids).slice(-LEVELS).reverse();
  let [left, notional, isCut] = [wanted, 0n, levels.length === LEVELS];
  for (const level of levels) {
    const at = micros(level.price);
    if (limit !== null && (isBuy ? at > limit : at < limit)) {
      isCut = false;
      break;
    }
    const size = micros(level.size);
    const part = size < left ? size : left;
    notional += at * part;
    left -= part;
    if (!left) break;
  }
  // What lies behind the levels that are shown is not known.
  if (left && isCut) return null;
  const filled = wanted - left;
  const rests = limit === null ? 0n : left;
  const most = notional + (limit ?? 0n) * rests;
  return {
    average: filled ? halfEven(notional, filled) : null,
    // What is paid is rounded up, and what is received down.
    total: isBuy ? (most + MILLION - 1n) / MILLION : notional / MILLION,
    rests,
    missing: limit === null ? left : 0n,
  };
}
