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

  // Which of the three views a phone shows.
  view: "markets",
};

let draw = () => {};
let isQueued = false;

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

/** The frame with the newest prices of the chosen market, if one came. */
export const chosenPrice = () => state.prices.get(state.id);

/**
 * How it stands with a market: "resolved", "closed", "paused" or "open". The price frame is newer than
 * the row of the list.
 */
export function stageOf(row, price) {
  const source = price?.source ?? row?.live_price?.source;
  if (price?.closed ?? row?.closed) return source === "resolution" ? "resolved" : "closed";
  return (price ? price.active : row?.accepting_orders ?? true) ? "open" : "paused";
}
