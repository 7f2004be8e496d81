// The ticket, what it would do, and what is held in the chosen outcome.

import { NONE, gain, micros, money, price, shares } from "../decimal.js";
import { currentPreview } from "../preview.js";
import { pendingOrder, state } from "../store.js";
import { fill, obstacle, send } from "../ticket.js";
import { Figure, html, toneOf } from "./html.js";

function Choice({ name, label, options, value }) {
  return html`<div class="choice" role="radiogroup" aria-label=${label}>
    ${options.map(([option, text, tone]) => html`<label key=${option} class=${tone ?? ""}>
      <input type="radio" name=${name} checked=${option === value}
        onChange=${() => fill({ [name]: option })} />${text}</label>`)}
  </div>`;
}

function Field({ name, label }) {
  // What changes a field without typing, such as an extension, may only say so afterwards.
  const take = ({ target }) => target.value !== state.ticket[name] && fill({ [name]: target.value });
  return html`<label class="field">${label}
    <input name=${name} inputmode="decimal" autocomplete="off" value=${state.ticket[name]}
      onInput=${take} onChange=${take} />
  </label>`;
}

/** The rows of the preview: name, text, and the field that tests and people compare. */
function rowsOf({ answer, local }, { side, type }) {
  const isBuy = side === "BUY";
  const cost = (isBuy ? "Cost" : "Proceeds") + (type === "limit" && isBuy ? ", at most" : "");
  const withFee = isBuy ? ", with fee" : ", after fee";
  if (answer) {
    const [asked, filled, rests] = ["quantity", "filled_quantity", "resting_quantity"]
      .map((name) => micros(answer[name]));
    const missing = asked - filled - rests;
    const reserved = isBuy ? money(answer.reserved_cash) : `${shares(answer.reserved_shares)} shares`;
    return [
      ["Average", price(answer.average_fill_price), "preview-average"],
      ["Fee", money(answer.fee)],
      [(isBuy ? "Cost" : "Proceeds") + withFee, money(answer.total), "preview-cost"],
      ...type === "limit"
        ? [["Rests", shares(answer.resting_quantity)], ["Reserves", reserved]]
        : [["Not offered", shares(missing), null, missing > 0n]],
      ["Left after", money(answer.available_after)],
    ];
  }
  return [
    ["Average", local?.average ? price(local.average) : NONE, "preview-average"],
    ["Fee", NONE],
    [`${cost}, before fee`, local ? money(local.total) : NONE, "preview-cost"],
    ...type === "limit"
      ? [["Rests", local ? shares(local.rests) : NONE], ["Reserves", NONE]]
      : [["Not offered", local ? shares(local.missing) : NONE, null, Boolean(local?.missing)]],
    ["Left after", NONE],
  ];
}

function Preview() {
  const preview = currentPreview();
  return html`<div class="preview">
    <dl aria-label="Preview">
      ${rowsOf(preview, state.ticket).map(([name, text, field, isShort]) => html`<div key=${name}>
        <dt>${name}</dt><dd class=${isShort ? "warn" : ""} data-field=${field}>${text}</dd></div>`)}
    </dl>
    ${preview.refusal && html`<p class="down"><bdi>${preview.refusal.message}</bdi></p>`}
  </div>`;
}

/** What the button says: it begins with Buy or Sell, unless the same order is sent again. */
function buttonText() {
  const { ticket, pending, outcome } = state;
  const isBuy = ticket.side === "BUY";
  if (pendingOrder() && !pending.isWaiting) return "Send again";
  if (pending?.isWaiting) return isBuy ? "Buying …" : "Selling …";
  const quantity = ticket.quantity.trim();
  return [isBuy ? "Buy" : "Sell", quantity, outcome ?? ""].filter(Boolean).join(" ");
}

function Result() {
  const { news } = state;
  const result = state.result ?? (news ? { tone: "", text: news } : null);
  return html`<div role="status">
    ${result && html`<p class=${`note ${result.tone}`}><bdi>${result.text}</bdi>
      ${result.code && html` <small>${result.code}</small>`}</p>`}
  </div>`;
}

function submitOrder(event) {
  event.preventDefault();
  const { elements } = event.currentTarget;
  // Nothing to send, as after an order that was just sent.
  const empty = [elements.quantity, elements.price].find((field) => field && !field.value.trim());
  if (empty && !pendingOrder()) empty.focus();
  else send();
}

function Held() {
  const held = state.positions?.find((row) => (
    row.market_id === state.id && row.outcome === state.outcome
  ));
  if (!held) return null;
  return html`<section class="held" aria-label="Held here">
    <h2>You hold</h2>
    <dl class="preview">
      <div><dt><bdi>${held.outcome}</bdi></dt>
        <dd>${shares(held.quantity)} at ${price(held.avg_entry_price)}</dd></div>
      <div><dt>Worth now</dt><dd><${Figure} text=${money(held.market_value)} /></dd></div>
      <div><dt>Gain</dt><dd><${Figure} text=${gain(held.unrealized_pnl)}
        tone=${toneOf(held.unrealized_pnl)} /></dd></div>
    </dl>
  </section>`;
}

export function Ticket() {
  const { ticket, pending } = state;
  const reason = obstacle();
  return html`<aside class="ticket" aria-label="Ticket">
    <form aria-label="Order" onSubmit=${submitOrder}>
      <${Choice} name="side" label="Side" value=${ticket.side}
        options=${[["BUY", "Buy", "buy"], ["SELL", "Sell", "sell"]]} />
      <${Choice} name="type" label="Order type" value=${ticket.type}
        options=${[["market", "Market"], ["limit", "Limit"]]} />
      <div class="fields">
        <${Field} name="quantity" label="Shares" />
        ${ticket.type === "limit" && html`<${Field} name="price" label="Limit price" />`}
      </div>
      <${Preview} />
      <button class="main" disabled=${Boolean(reason) || Boolean(pending?.isWaiting)}>
        <bdi>${buttonText()}</bdi></button>
      <p class="reason">${reason}</p>
      <${Result} />
    </form>
    <${Held} />
  </aside>`;
}
