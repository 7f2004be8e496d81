// The account: who is signed in, and what is read for them, one thing at a time.

import { forgetKey, keepKey, keptKey, limitsLeft, readOwn, useKey } from "./api.js";
import { price, shares } from "./decimal.js";
import { remember } from "./names.js";
import { state, update } from "./store.js";

// Half of what the scheduler would let through: the rest is for what people ask for.
const TURN_MS = 2_200;
// While little is left of the minute.
const TURN_MS_SPARING = 6_000;
const SPARING_SHARE = 0.3;

/** The most rows of a table. */
export const TABLE_ROWS_MAX = 100;

const NOTHING = {
  me: null, balance: null, positions: null, orders: null, hasMoreOrders: false, fills: null,
  settlements: null, equity: null, limits: null, trouble: "", tradeCount: null, preview: null,
  news: "", asksCancelAll: false,
};

let turn = 0;
let turnTimer = 0;
// Rises with every sign-in and sign-out; what was asked for before is ignored.
let session = 0;

export async function signIn(key) {
  clearTimeout(turnTimer);
  useKey(key);
  session += 1;
  update({ ...NOTHING, isSignedIn: true, keyTrouble: "", trouble: state.trouble });
  // Only visible ASCII can be sent in a header.
  if (!/^[\x21-\x7e]+$/.test(key)) return signOut("Not an API key.");
  const own = session;
  try {
    const me = await readOwn("me", "v1/me");
    if (own !== session) return;
    keepKey();
    update({ me, trouble: "" });
    refresh();
  } catch (refusal) {
    if (own !== session) return;
    const isFinal = refusal.status >= 400 && refusal.status < 500 && refusal.status !== 429;
    if (isFinal) return signOut(refusal.message);
    update({ trouble: refusal.message });
    turnTimer = setTimeout(() => signIn(key), TURN_MS);
  }
}

/** Signs out, with the reason if nobody asked for it. */
export function signOut(keyTrouble = "") {
  session += 1;
  clearTimeout(turnTimer);
  forgetKey();
  update({ ...NOTHING, isSignedIn: false, keyTrouble });
}

/** What the tabs show, and what is read for them. */
const PARTS = {
  positions: () => part("portfolio", "v1/account/portfolio", (answer) => {
    const { balance, positions, total_trades: tradeCount } = answer;
    for (const row of positions) if (row.market_question) remember(row.market_id, row.market_question);
    const isNews = state.tradeCount !== null && tradeCount > state.tradeCount;
    if (isNews && !state.pending?.isWaiting) readNews();
    return { balance, positions, tradeCount };
  }),
  orders: () => part("orders", `v1/orders?status=PENDING&limit=${TABLE_ROWS_MAX}`, (answer) => (
    { orders: answer.orders, hasMoreOrders: answer.has_more }
  )),
  fills: () => part("fills", `v1/account/history?limit=${TABLE_ROWS_MAX}`, (fills) => ({ fills })),
  settlements: () => part("settlements", `v1/account/settlements?limit=${TABLE_ROWS_MAX}`, ({ data }) => (
    { settlements: data }
  )),
  equity: () => part("equity", "v1/account/equity?days=7", (equity) => ({ equity })),
};

/** Tells of the newest fill, which is of a resting order or of another program. */
async function readNews() {
  await PARTS.fills();
  const [fill] = state.fills ?? [];
  if (!fill) return;
  const side = fill.side === "BUY" ? "Bought" : "Sold";
  update({ news: `${side} ${shares(fill.quantity)} ${fill.outcome} at ${price(fill.price)}.` });
}

async function part(name, path, of) {
  const own = session;
  try {
    const answer = await readOwn(name, path);
    if (own === session) update({ ...of(answer), limits: limitsLeft(), trouble: "" });
  } catch (refusal) {
    // Where no answer comes, the stream of prices says so.
    if (own === session && refusal.status) failed(refusal);
  }
}

/** Shows a refusal; if it was the key's, the key has ended. */
export function failed(refusal) {
  if (refusal.code === "SIGNED_OUT") return;
  if (refusal.status === 401) return signOut(refusal.message);
  update({ limits: limitsLeft(), trouble: refusal.message });
}

/** Reads everything that is shown anew, beginning with what the last trade changed. */
export async function refresh() {
  if (!state.me) return;
  const own = session;
  clearTimeout(turnTimer);
  for (const name of new Set(["positions", "orders", state.tab])) {
    await PARTS[name]();
    if (own !== session) return;
  }
  wait();
}

/** Reads the next part in turn: the balance every other time, between orders and the open tab. */
async function next() {
  if (!state.me) return;
  const own = session;
  turn = (turn + 1) % 4;
  const name = ["positions", "orders", "positions", state.tab][turn];
  await PARTS[name]();
  if (own === session) wait();
}

function wait() {
  clearTimeout(turnTimer);
  const { left, of } = state.limits ?? { left: 1, of: 1 };
  turnTimer = setTimeout(next, left < of * SPARING_SHARE ? TURN_MS_SPARING : TURN_MS);
}

export async function chooseTab(tab) {
  update({ tab });
  if (state.me) PARTS[tab]();
}

/** Saves a CSV file that the server writes of the whole account. */
export async function saveCsv(name) {
  try {
    const file = await readOwn(name, `v1/export/${name}`, { as: "blob" });
    const url = URL.createObjectURL(file);
    Object.assign(document.createElement("a"), { href: url, download: name }).click();
    // The browser has it by then.
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  } catch (refusal) {
    failed(refusal);
  }
}

/** Signs in with the key of this tab, if it has one. */
export function startAccount() {
  const key = keptKey();
  if (key) signIn(key);
}
