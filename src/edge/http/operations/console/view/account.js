// The account: its tabs, and the table of each.

import { TABLE_ROWS_MAX, chooseTab, saveCsv } from "../account.js";
import { gain, money, price, shares } from "../decimal.js";
import { choose } from "../markets.js";
import { questionOf } from "../names.js";
import { state, update } from "../store.js";
import { cancel, cancelAll } from "../ticket.js";
import { Chart } from "./chart.js";
import { Figure, html, moment, toneOf } from "./html.js";
import { Table } from "./table.js";

const text = (head, cell) => ({ head, kind: "text", cell });
const number = (head, cell) => ({ head, kind: "number", cell });
const profit = (head, of) => number(head, (row) => (
  html`<${Figure} text=${gain(of(row))} tone=${toneOf(of(row))} />`
));

const question = {
  head: "Market",
  kind: "question",
  cell: ({ market_id: id, market_question: known, outcome }) => html`<button type="button" class="text"
    onClick=${() => choose(id, { outcome, show: true })}><bdi>${known ?? questionOf(id)}</bdi></button>`,
};
const outcome = text("Outcome", (row) => html`<bdi>${row.outcome}</bdi>`);
const side = (head) => text(head, ({ side, outcome }) => html`<span
  class=${side === "BUY" ? "up" : "down"}>${side === "BUY" ? "Buy" : "Sell"}</span> <bdi>${outcome}</bdi>`);

const mayTrade = () => Boolean(state.me?.permissions.includes("trade"));

const POSITIONS = [
  question,
  outcome,
  number("Shares", (row) => shares(row.quantity)),
  number("Entry", (row) => price(row.avg_entry_price)),
  number("Now", (row) => html`<${Figure} text=${price(row.current_price)} />`),
  number("Value", (row) => html`<${Figure} text=${money(row.market_value)} />`),
  profit("Gain", (row) => row.unrealized_pnl),
];

const ORDERS = [
  question,
  side("Order"),
  number("Limit", (row) => price(row.limit_price)),
  number("Filled", (row) => shares(row.filled_quantity)),
  number("Of", (row) => shares(row.quantity)),
  number("Placed", (row) => moment(row.created_at)),
  {
    head: "",
    kind: "action",
    cell: ({ order_id: id }) => mayTrade() && html`<button type="button" class="text"
      disabled=${state.cancelling.has(id)} aria-label=${`Cancel order ${id}`}
      onClick=${() => cancel(id)}>Cancel</button>`,
  },
];

const FILLS = [
  question,
  side("Fill"),
  number("Shares", (row) => shares(row.quantity)),
  number("Price", (row) => price(row.price)),
  number("Amount", (row) => money(row.notional)),
  number("Fee", (row) => money(row.fee)),
  number("Time", (row) => moment(row.filled_at)),
];

const SETTLEMENTS = [
  question,
  outcome,
  number("Shares", (row) => shares(row.quantity)),
  number("Cost", (row) => money(row.cost_basis)),
  number("Paid", (row) => money(row.payout)),
  profit("Gain", (row) => row.realized_pnl),
  number("Time", (row) => moment(row.settled_at)),
];

const EQUITY = [
  { ...text("Time", (row) => moment(row.timestamp)), kind: "question" },
  number("Cash", (row) => money(row.cash_balance)),
  number("Positions", (row) => money(row.position_value)),
  number("Total", (row) => money(row.total_value)),
  profit("Gain", (row) => row.pnl),
];

function Equity({ rows, name }) {
  const points = rows.map((row) => [Date.parse(row.timestamp) / 1_000, Number(row.total_value)]);
  const newest = [...rows].reverse().slice(0, TABLE_ROWS_MAX);
  // The chart compares rows by identity.
  if (Equity.rows !== rows) Object.assign(Equity, { rows, points });
  return html`<div class="equity">
    <${Table} name=${name} columns=${EQUITY} rows=${newest} keyOf=${(row) => row.timestamp} />
    <${Chart} kind="money" rows=${Equity.points} label="Equity in the last seven days" empty="" />
  </div>`;
}

const TABS = {
  positions: {
    name: "Positions", counted: true, empty: "No positions. Choose a market and buy.",
    columns: POSITIONS, keyOf: (row) => row.id,
  },
  orders: {
    name: "Open orders", counted: true, empty: "No open orders. A limit order rests here until it fills.",
    columns: ORDERS, keyOf: (row) => row.order_id,
  },
  fills: {
    name: "Fills", empty: "No fills. What is bought and sold is listed here.",
    columns: FILLS, keyOf: (row) => row.fill_id ?? row.trade_id, csv: "trades.csv",
  },
  settlements: {
    name: "Settlements", empty: "No settlements. A market that resolves pays here.",
    columns: SETTLEMENTS, keyOf: (row) => row.position_id, csv: "settlements.csv",
  },
  equity: { name: "Equity", empty: "No equity yet.", view: Equity },
};

function count(id, rows) {
  if (!rows?.length) return "";
  const isMore = rows.length > TABLE_ROWS_MAX || (id === "orders" && state.hasMoreOrders);
  return isMore ? ` ${TABLE_ROWS_MAX}+` : ` ${rows.length}`;
}

/** Moves through the tabs as people with keyboards expect. */
function moveTab(event) {
  const steps = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!steps) return;
  event.preventDefault();
  const ids = Object.keys(TABS);
  const next = ids[(ids.indexOf(state.tab) + steps + ids.length) % ids.length];
  chooseTab(next);
  document.getElementById(`tab-${next}`).focus();
}

function Tabs() {
  return html`<div class="tabs">
    <div role="tablist" aria-label="Account" onKeyDown=${moveTab}>
      ${Object.entries(TABS).map(([id, { name, counted }]) => html`<button type="button" role="tab"
        id=${`tab-${id}`} key=${id} aria-selected=${String(state.tab === id)}
        aria-controls="panel" tabindex=${state.tab === id ? 0 : -1} onClick=${() => chooseTab(id)}>
        ${name}${counted && html`<span aria-hidden="true">${count(id, state[id])}</span>`}
      </button>`)}
    </div>
    <${Actions} />
  </div>`;
}

/** Cancelling everything is asked once more. */
function CancelAll() {
  if (!state.asksCancelAll) {
    return html`<button type="button" class="text" onClick=${() => update({ asksCancelAll: true })}>
      Cancel all</button>`;
  }
  return html`<span>Cancel all open orders?</span>
    <button type="button" class="text down" onClick=${cancelAll}>Yes, cancel all</button>
    <button type="button" class="text" onClick=${() => update({ asksCancelAll: false })}>No</button>`;
}

function Actions() {
  const { csv } = TABS[state.tab];
  if (!state[state.tab]?.length) return null;
  if (state.tab === "orders" && mayTrade()) return html`<${CancelAll} />`;
  if (!csv) return null;
  return html`<button type="button" class="text" onClick=${() => saveCsv(csv)}>CSV</button>`;
}

function Panel() {
  const { name, empty, columns, keyOf, view } = TABS[state.tab];
  const rows = state[state.tab];
  if (!state.isSignedIn) return html`<p class="empty">Sign in to see your account.</p>`;
  if (!rows) return html`<p class="empty">Loading ${name.toLowerCase()} …</p>`;
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  if (view) return html`<${view} rows=${rows} name=${name} />`;
  const isMore = rows.length >= TABLE_ROWS_MAX;
  const note = isMore ? `These are ${TABLE_ROWS_MAX}. The API has them all.` : null;
  return html`<${Table} name=${name} columns=${columns} rows=${rows.slice(0, TABLE_ROWS_MAX)} keyOf=${keyOf}
    note=${note} />`;
}

export function Account() {
  return html`<section class="account" aria-label="Account">
    <${Tabs} />
    <div class="panel" id="panel" role="tabpanel" tabindex="0" aria-labelledby=${`tab-${state.tab}`}>
      <${Panel} />
    </div>
  </section>`;
}
