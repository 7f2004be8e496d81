// What the ticket would do. The server says it to the micro-dollar, with the fee; as long as it has
// not, what follows from the levels that are shown stands there, and nothing that is not exact.

import { limitsLeft, readOwn } from "./api.js";
import { micros } from "./decimal.js";
import { orderOf } from "./order.js";
import { pendingOrder, state, update } from "./store.js";
import { walk } from "./walk.js";

const PREVIEW_TYPING_MS = 300;
// A book that changes all the time must not use up what the key may send.
const AGAIN_MS = 3_000;

let previewTimer = 0;
let lastPreviewMs = -Infinity;
let isAsking = false;

const nameOf = (order) => JSON.stringify(order);

/** The order of the ticket, if it says all that it needs to. */
function wholeOrder() {
  const order = orderOf(state);
  const isPositive = (text) => (micros(text) ?? 0n) > 0n;
  const isWhole = isPositive(order.quantity) && (order.order_type === "market" || isPositive(order.price));
  return state.id && state.outcome !== null && isWhole ? order : null;
}

/** Asks the server once nothing was typed for a moment. */
export function previewSoon() {
  clearTimeout(previewTimer);
  previewTimer = setTimeout(ask, PREVIEW_TYPING_MS);
}

/** The book has changed, and what the ticket would do with it. */
export function previewAgain() {
  if (performance.now() - lastPreviewMs > AGAIN_MS) previewSoon();
}

async function ask() {
  const order = wholeOrder();
  if (!order || !state.me || pendingOrder()) return;
  // The answer would be taken for that to another order.
  if (isAsking) return previewSoon();
  isAsking = true;
  lastPreviewMs = performance.now();
  const of = nameOf(order);
  try {
    const request = { method: "POST", body: order };
    const answer = await readOwn("preview", "v1/orders/preview", request);
    update({ preview: { of, answer } });
  } catch (refusal) {
    const { status } = refusal;
    if (status >= 400 && status < 500 && status !== 429) update({ preview: { of, refusal } });
  }
  isAsking = false;
  update({ limits: limitsLeft() });
}

/** The preview of the ticket: the server's if it is of this very order. */
export function currentPreview() {
  const order = wholeOrder();
  if (!order) return {};
  const { preview } = state;
  if (preview?.of === nameOf(order)) return preview;
  return { local: walk(state.book, state.ticket) };
}
