// The book of the chosen outcome, and what is to know about it: that it is stale, that nobody offers
// anything, that the market takes no orders.

import { micros, price, shares } from "../decimal.js";
import { chosenPrice, isStale, state } from "../store.js";
import { limitAt } from "../ticket.js";
import { LEVELS } from "../walk.js";
import { Figure, html, moment } from "./html.js";

const SIDES = [
  { name: "bids", caption: "Bids, best first", heads: ["Size", "Bid"], tone: "up" },
  { name: "asks", caption: "Asks, best first", heads: ["Ask", "Size"], tone: "down" },
];

/** The best levels of a side, the best one first. The API has it last. */
const best = (levels) => levels.slice(-LEVELS).reverse();

function Level({ level, side, most, tick }) {
  const size = micros(level.size);
  const width = most > 0n ? Number((size * 1_000n) / most) / 10 : 0;
  const cells = [
    html`<td class="size"><span class="bar" style=${{ width: `${Math.max(1, width)}%` }}></span>
      <${Figure} of=${level.price} text=${shares(size, 2)} /></td>`,
    html`<td class="at"><button type="button" class=${`text ${side.tone}`} tabindex="-1"
      title="Make it the limit" onClick=${() => limitAt(level.price)}>
      ${price(level.price, tick)}</button></td>`,
  ];
  return html`<tr key=${level.price}>${side.name === "bids" ? cells : cells.reverse()}</tr>`;
}

function Side({ side, levels, most, tick }) {
  return html`<table class=${side.name}>
    <caption class="unseen">${side.caption}</caption>
    <thead><tr>${side.heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
    <tbody>${levels.map((level) => html`<${Level} key=${level.price} level=${level} side=${side}
      most=${most} tick=${tick} />`)}</tbody>
  </table>`;
}

/** What a share of each outcome pays, as the venue has decided. */
function payoutsOf(market) {
  if (state.payouts) return state.payouts;
  const frame = chosenPrice() ?? market.live_price;
  return (frame?.outcomes ?? []).map(({ label, price }) => ({ label, payout: price }));
}

/** What is to know before anything else about the book, and how bad it is. */
function noticeOf(market, stage) {
  if (stage === "resolved") {
    const payouts = payoutsOf(market).map(({ label, payout }) => `${label} pays $${price(payout)}`);
    return ["", `This market is resolved: ${payouts.join(", ")} a share.`];
  }
  if (stage === "closed") return ["", "This market is closed: its result is not final, and it takes no orders."];
  if (state.isLost) return ["down", "Disconnected: prices are from before. Trying again."];
  if (stage === "paused") return ["warn", "This market is paused: it takes no orders now."];
  if (isStale()) {
    return ["warn", "The book is stale: market orders are refused, limit orders wait for a fresh book."];
  }
  return null;
}

function Levels({ book, market }) {
  const [bids, asks] = [best(book.bids), best(book.asks)];
  if (!bids.length && !asks.length) return html`<p class="empty">Nobody offers anything here.</p>`;
  const sizes = [...bids, ...asks].map((level) => micros(level.size));
  const most = sizes.reduce((one, other) => (one > other ? one : other), 0n);
  const tick = book.tick_size ?? market.tick_size;
  return SIDES.map((side, at) => html`<${Side} side=${side} levels=${[bids, asks][at]} most=${most}
    tick=${tick} />`);
}

export function Book({ market, stage }) {
  const { book, bookTrouble, outcome, isLost } = state;
  const isPast = isStale() || isLost;
  const notice = noticeOf(market, stage);
  const confirmed = book && moment(Number(book.timestamp));
  return html`<section class="book-of" aria-label="Book">
    <h2>Book of <bdi>${outcome}</bdi></h2>
    <div class=${isPast ? "book past" : "book"}>
      ${bookTrouble ? !notice && html`<p class="empty">${bookTrouble}</p>`
        : book ? html`<${Levels} book=${book} market=${market} />`
        : html`<p class="empty">Loading the book …</p>`}
      ${notice && html`<p class=${`note ${notice[0]}`} role="status"><bdi>${notice[1]}</bdi></p>`}
    </div>
    <small class="confirmed">${book ? html`${isPast ? "Not confirmed since" : "Confirmed"} ${confirmed}
      ${book.hash && !isPast && " · hash equals the venue's"}
      ${book.spread && ` · spread ${price(book.spread, book.tick_size)}`}` : " "}</small>
  </section>`;
}
