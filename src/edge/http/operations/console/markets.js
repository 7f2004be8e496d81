// The list of markets, the one that is chosen, and their prices.

import { readOpen } from "./api.js";
import { chooseBook, wantBook } from "./book.js";
import { learn } from "./names.js";
import { previewSoon } from "./preview.js";
import { FOLLOWED_MAX, Prices } from "./prices.js";
import { chosenPrice, state, update, updateSoon } from "./store.js";

const ROWS_PAGE = 100;
/** The most rows of one answer. */
export const LIST_ROWS_MAX = 200;
const LIST_MS = 30_000;
const STATUS_MS = 5_000;
const SEARCH_TYPING_MS = 250;
// A point of the chart for each second at most, and for no more than a day at one a minute and an
// hour at one a second.
const POINT_MS = 1_000;
const POINTS_MAX = 5_000;
// How often the chart is drawn at most.
const DRAW_MS = 250;

let typing = 0;
let drawing = 0;
let firstRow = 0;

const prices = new Prices({
  priced(frames) {
    for (const frame of frames) take(frame);
  },
  ended(change) {
    if (change.condition_id !== state.id) return update();
    if (change.payouts) update({ payouts: change.payouts });
    readMarket();
  },
  tickChanged(change) {
    if (change.market === state.id) readMarket();
  },
  lost(isLost) {
    update({ isLost });
    if (!isLost) readStatus();
  },
});

function take(frame) {
  const id = frame.condition_id;
  const known = state.prices.get(id);
  state.prices.set(id, frame);
  updateSoon();
  if (id !== state.id) return;
  drawing ||= setTimeout(extend, DRAW_MS);
  const isSame = known && ["updated_at", "seq", "stale"].every((name) => known[name] === frame[name]);
  if (!isSame) wantBook();
}

/** Adds the chosen outcome's newest price to the chart. */
function extend() {
  drawing = 0;
  const { history, market, outcome } = state;
  const frame = chosenPrice();
  const at = market?.outcomes.indexOf(outcome);
  const price = Number(frame?.outcomes[at]?.price ?? NaN);
  if (!history || Number.isNaN(price)) return;
  // The venue's time, which on a recording is not that of this machine.
  const changed = Date.parse(frame.updated_at ?? "") || Date.now();
  const last = history.at(-1)?.[0] ?? 0;
  const isSoon = history.length > 1 && changed - last * 1_000 < POINT_MS;
  const kept = history.slice(-POINTS_MAX, isSoon ? -1 : undefined);
  update({ history: [...kept, [isSoon ? last : changed / 1_000, price]] });
}

/** Reads the list for this text. */
export async function search(query) {
  update({ query });
  return readList();
}

/** Reads the list once nothing was typed for a moment. */
export function searchSoon(query) {
  update({ query });
  clearTimeout(typing);
  typing = setTimeout(() => search(query), SEARCH_TYPING_MS);
}

/** Reads the list for what was typed, and chooses the first market. */
export async function searchNow() {
  clearTimeout(typing);
  await search(state.query);
  if (state.rows?.length) choose(state.rows[0].condition_id, { show: true });
}

export function showMore() {
  update({ rowsMax: Math.min(state.rowsMax + ROWS_PAGE, LIST_ROWS_MAX) });
  readList();
}

async function readList() {
  const { query, rowsMax } = state;
  try {
    const rows = await readOpen(`v1/markets?limit=${rowsMax}&q=${encodeURIComponent(query)}`);
    if (query !== state.query) return;
    learn(rows);
    update({ rows });
    if (!state.id && rows.length) return choose(rows[0].condition_id);
    follow();
  } catch {
    // What was there stays; the stream says whether the server is there.
  }
}

/** Follows the rows of the list from this one on, as those that are looked at. */
export function lookAt(row) {
  const isNear = Math.abs(row - firstRow) < FOLLOWED_MAX / 4;
  if (isNear) return;
  firstRow = row;
  follow();
}

function follow() {
  const ids = (state.rows ?? []).map((row) => row.condition_id);
  const from = Math.max(0, Math.min(firstRow - FOLLOWED_MAX / 4, ids.length - FOLLOWED_MAX));
  const followed = new Set([state.id, ...ids.slice(from)].filter(Boolean));
  const kept = [...followed].slice(0, FOLLOWED_MAX);
  for (const id of state.prices.keys()) if (!kept.includes(id)) state.prices.delete(id);
  prices.follow(kept);
}

/** Chooses a market, and one of its outcomes. */
export function choose(id, { outcome = null, show = false } = {}) {
  if (show) update({ view: "trade" });
  if (id === state.id) return outcome && chooseOutcome(outcome);
  history.replaceState(null, "", `#${encodeURIComponent(id)}`);
  const market = state.rows?.find((row) => row.condition_id === id) ?? null;
  update({
    id, market, isMissing: false, outcome: outcome ?? market?.outcomes[0] ?? null,
    book: null, bookTrouble: "", history: null, payouts: null, preview: null, result: null, news: "",
    ticket: { ...state.ticket, price: "" },
  });
  follow();
  readMarket();
  if (market) begin();
}

export function chooseOutcome(outcome) {
  if (outcome === state.outcome) return;
  update({ outcome, history: null, preview: null, result: null });
  begin();
  previewSoon();
}

/** Chooses the market so many rows below the chosen one. */
export function step(rows) {
  const list = state.rows ?? [];
  const at = list.findIndex((row) => row.condition_id === state.id);
  const next = list[at + rows];
  if (next) choose(next.condition_id);
}

function begin() {
  chooseBook();
  readHistory();
}

async function readMarket() {
  const { id } = state;
  try {
    const market = await readOpen(`v1/markets/${encodeURIComponent(id)}`);
    if (id !== state.id) return;
    learn([market]);
    const isFirst = state.outcome === null;
    update({ market, outcome: state.outcome ?? market.outcomes[0] });
    if (isFirst) begin();
  } catch (refusal) {
    if (id === state.id && refusal.status === 404) update({ isMissing: !state.market });
  }
}

async function readHistory() {
  const { id, market, outcome } = state;
  const token = market.clob_token_ids[market.outcomes.indexOf(outcome)];
  const isCurrent = () => id === state.id && outcome === state.outcome;
  let points = [];
  try {
    const answer = token && await readOpen(`v1/prices-history?interval=1d&market=${token}`);
    points = (answer?.history ?? []).slice(-POINTS_MAX).map(({ t, p }) => [t, p]);
  } catch {
    // The chart begins now.
  }
  if (!isCurrent()) return;
  update({ history: points });
  extend();
}

async function readStatus() {
  try {
    update({ status: await readOpen("v1/status") });
  } catch {
    // The stream says whether the server is there.
  }
}

/** Reads what the page begins with, and then what changes. */
export function startMarkets() {
  const chosen = decodeURIComponent(location.hash.slice(1));
  if (chosen) choose(chosen);
  readStatus();
  search("");
  const every = (ms, read) => setInterval(() => !document.hidden && read(), ms);
  every(STATUS_MS, readStatus);
  every(LIST_MS, readList);
  addEventListener("hashchange", () => {
    const id = decodeURIComponent(location.hash.slice(1));
    if (id) choose(id);
  });
}
