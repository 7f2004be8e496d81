// The ticket: what is to be bought or sold, and what became of it.
//
// Every order has a name. As long as no answer came, the same order is sent again under the same
// name, so that it happens once, whatever was lost on the way; this tab remembers it even when it is
// loaded again. Whoever changes the ticket makes another order, with a name of its own.

import { failed, refresh } from "./account.js";
import { writeOwn } from "./api.js";
import { wantBook } from "./book.js";
import { choose } from "./markets.js";
import { questionOf } from "./names.js";
import { newName, orderOf, outcomeOf } from "./order.js";
import { previewSoon } from "./preview.js";
import { chosenPrice, isStale, pendingOrder, stageOf, state, update } from "./store.js";

const PENDING_ITEM = "paperbourse-order";
const NO_ANSWER = "No answer came, so it is not known whether the order happened. Send it again: it "
  + "happens only once.";

/** Changes the ticket, which makes it another order. */
export function fill(changes) {
  if (pendingOrder() && !state.pending.isWaiting) forget();
  update({ ticket: { ...state.ticket, ...changes }, result: null, news: "" });
  previewSoon();
}

/** Makes this price the limit. */
export function limitAt(price) {
  fill({ type: "limit", price });
}

/** Why the ticket cannot be sent, as a sentence; empty if it can. */
export function obstacle() {
  const { me, market, ticket, isSignedIn } = state;
  if (!isSignedIn) return "Sign in to trade.";
  if (!me || !market) return " ";
  if (!me.permissions.includes("trade")) return "This key may only read.";
  const stage = stageOf(market, chosenPrice());
  if (stage !== "open") return `This market is ${stage}: it takes no orders.`;
  if (ticket.type === "market" && isStale()) return "The book is stale: market orders are refused.";
  return "";
}

/** Sends the order, or sends it again. */
export async function send() {
  if (state.pending?.isWaiting || obstacle()) return;
  const { ticket, me } = state;
  const order = pendingOrder()?.order ?? { ...orderOf(state), client_order_id: newName() };
  const pending = { order, ticket, account: me.id, isWaiting: true };
  keep(pending);
  update({ pending, result: null, news: "" });
  try {
    const answer = await writeOwn("POST", "v1/orders", order);
    forget();
    // A second click finds nothing to send.
    if (state.ticket === ticket) update({ ticket: { ...ticket, quantity: "" } });
    // Its fills are no news.
    update({ preview: null, tradeCount: null, result: { tone: "up", text: said(order, outcomeOf(answer)) } });
  } catch (refusal) {
    refused(refusal, pending);
  }
  wantBook();
  refresh();
}

function refused(refusal, pending) {
  const { message, code, status } = refusal;
  // 504: the server itself does not know whether the order happened.
  const isAnswer = status > 0 && status !== 504;
  if (isAnswer) forget();
  else update({ pending: { ...pending, isWaiting: false } });
  if (status === 401 || code === "SIGNED_OUT") return failed(refusal);
  const text = said(pending.order, isAnswer ? message : NO_ANSWER);
  update({ result: { tone: isAnswer ? "down" : "warn", text, code } });
}

/** What is said about an order, with its market if another one is shown by now. */
function said(order, text) {
  return order.market_id === state.id ? text : `${questionOf(order.market_id)}: ${text}`;
}

function keep(pending) {
  const { order, ticket, account } = pending;
  sessionStorage.setItem(PENDING_ITEM, JSON.stringify({ order, ticket, account }));
}

function forget() {
  sessionStorage.removeItem(PENDING_ITEM);
  if (state.pending) update({ pending: null });
}

/** Takes up the order that was not answered before the page was loaded again. */
export function startTicket() {
  const text = sessionStorage.getItem(PENDING_ITEM);
  if (!text) return;
  const { order, ticket, account } = JSON.parse(text);
  choose(order.market_id, { outcome: order.outcome, show: true });
  const pending = { order, ticket, account, isWaiting: false };
  update({ ticket, pending, result: { tone: "warn", text: NO_ANSWER } });
}

/** Cancels an open order. */
export async function cancel(id) {
  update({ cancelling: new Set([...state.cancelling, id]) });
  try {
    await writeOwn("DELETE", `v1/orders/${id}`);
  } catch (refusal) {
    failed(refusal);
  }
  update({ cancelling: new Set([...state.cancelling].filter((other) => other !== id)) });
  refresh();
}

/** Cancels all open orders, once that was confirmed. */
export async function cancelAll() {
  update({ asksCancelAll: false });
  try {
    await writeOwn("POST", "v1/cancel-all", undefined, { "X-Confirm-Cancel-All": "true" });
  } catch (refusal) {
    failed(refusal);
  }
  refresh();
}
