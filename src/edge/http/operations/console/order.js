// What an order says to the server, and the answer in words.

import { money, price, shares } from "./decimal.js";

/** A name that nobody else gives an order. */
export function newName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `console-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** What the order of the ticket says to the server, without its name. */
export function orderOf({ id, outcome, ticket }) {
  const { side, type, quantity, price } = ticket;
  const order = { market_id: id, outcome, side, order_type: type, quantity: quantity.trim() };
  return type === "limit" ? { ...order, price: price.trim() } : order;
}

/** What became of the order, in words. */
export function outcomeOf({ order_id: id, status, filled_quantity: filled, remaining_quantity: left, ...it }) {
  const got = `Filled ${shares(filled)} at ${price(it.price)} for ${money(it.notional)}, `
    + `fee ${money(it.fee)}.`;
  const isFilled = filled !== "0";
  const rest = `${shares(left)} at ${price(it.limit_price)} ${isFilled ? "rest" : "rests"} on the book.`;
  const waits = it.hold_reason === "venue_outage" ? " It waits for a fresh book." : "";
  const parts = [];
  if (isFilled) parts.push(got);
  if (status === "PENDING") parts.push((isFilled ? "" : "Placed: ") + rest + waits);
  else if (status !== "FILLED") parts.push(`${status === "CANCELLED" ? "Cancelled" : "Expired"}.`);
  return `${parts.join(" ")} Order ${id}.`;
}
