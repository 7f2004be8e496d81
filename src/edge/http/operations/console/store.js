// The state of the page: one object. A change is drawn in the next animation frame, with all others
// that came before it.

export const state = {
  // Who is signed in. `me` is null until the server has said so.
  isSignedIn: false,
  me: null,
  // Why the last key is no longer used, or was refused.
  keyTrouble: "",
  limits: null,
  // The account; each part is null until it was read.
  balance: null,
  positions: null,
  orders: null,
  hasMoreOrders: false,
  fills: null,
  settlements: null,
  equity: null,
  // Why the account may be out of date, or what was refused there.
  trouble: "",
  tab: "positions",

  status: null,
  // The list; `rows` is null until it was read.
  rows: null,
  rowsMax: 100,
  query: "",
  // The chosen market: its id, what is known of it, the label of the chosen outcome, its book and its
  // prices of the last day.
  id: null,
  market: null,
  isMissing: false,
  outcome: null,
  book: null,
  bookTrouble: "",
  history: null,
  payouts: null,
  // The newest price frame of each market that is followed, by id.
  prices: new Map(),
  isLost: false,

  // The ticket as it was filled in, what the server says that it would do, and the order that was sent
  // and not answered yet.
  ticket: { side: "BUY", type: "market", quantity: "", price: "" },
  preview: null,
  pending: null,
  // What became of the last order, and of orders that others placed with this account.
  result: null,
  news: "",
  // How many fills the account has; null before that was read, and after an order of ours.
  tradeCount: null,
  cancelling: new Set(),
  asksCancelAll: false,
  showsKeys: false,

  // Which of the three views a phone shows.
  view: "markets",
};

let draw = () => {};
let isQueued = false;
let soon = 0;
const SOON_MS = 100;

/** What draws the page. */
export function drawWith(render) {
  draw = render;
}

/** Changes parts of the state. */
export function update(patch = {}) {
  Object.assign(state, patch);
  if (isQueued) return;
  isQueued = true;
  requestAnimationFrame(() => {
    isQueued = false;
    draw();
  });
}

/** Draws what changes many times a second, no faster than people can read. */
export function updateSoon() {
  soon ||= setTimeout(() => {
    soon = 0;
    update();
  }, SOON_MS);
}

/** The frame with the newest prices of the chosen market, if one came. */
export const chosenPrice = () => state.prices.get(state.id);

/** The order that was sent and not answered, if it is that of the ticket. */
export function pendingOrder() {
  const { pending, me, id, outcome } = state;
  if (!pending || pending.account !== me?.id) return null;
  const { order } = pending;
  return order.market_id === id && order.outcome === outcome ? pending : null;
}

/** Whether the book of the chosen outcome may be out of date. Where there is no book, it is not. */
export function isStale() {
  return !state.bookTrouble && Boolean(state.book?.stale || chosenPrice()?.stale);
}

/**
 * How it stands with a market: "resolved", "closed", "paused" or "open". The price frame is newer than
 * the row of the list.
 */
export function stageOf(row, price) {
  const source = price?.source ?? row?.live_price?.source;
  if (price?.closed ?? row?.closed) return source === "resolution" ? "resolved" : "closed";
  return (price ? price.active : row?.accepting_orders ?? true) ? "open" : "paused";
}
