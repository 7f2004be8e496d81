// The chosen market: what it asks, its outcomes, its chart and its book.

import { money, price, shares } from "../decimal.js";
import { chooseOutcome } from "../markets.js";
import { chosenPrice, stageOf, state } from "../store.js";
import { Book } from "./book.js";
import { Chart } from "./chart.js";
import { Figure, html } from "./html.js";

function Facts({ market }) {
  const { category, tick_size: tick, min_order_size: least, volume_24h: volume } = market;
  const copy = () => navigator.clipboard?.writeText(market.condition_id);
  return html`<p class="facts">
    ${category && html`<bdi>${category}</bdi>`}
    <span>Tick ${tick ?? "–"}</span>
    <span>Minimum ${shares(least)}</span>
    <span>24 h ${money(volume)}</span>
    <button type="button" class="text" title=${market.condition_id} onClick=${copy}>Copy id</button>
  </p>`;
}

function Outcomes({ market }) {
  const shown = chosenPrice()?.outcomes ?? market.live_price?.outcomes ?? [];
  return html`<fieldset class="outcomes">
    <legend class="unseen">Outcome</legend>
    ${market.outcomes.map((label, at) => html`<label key=${label}>
      <input type="radio" name="outcome" aria-label=${label} aria-describedby=${`price-${at}`}
        checked=${label === state.outcome} onChange=${() => chooseOutcome(label)} />
      <bdi>${label}</bdi>
      <b id=${`price-${at}`}>
        <${Figure} of=${market.condition_id} text=${price(shown[at]?.price, market.tick_size)} />
      </b>
    </label>`)}
  </fieldset>`;
}

export function Market() {
  const { id, market, isMissing, outcome, history } = state;
  if (!market) {
    const text = isMissing ? "This market is not listed here." : id ? "Loading the market …" : "Choose a market.";
    return html`<main class="market"><h1>${text}</h1></main>`;
  }
  const stage = stageOf(market, chosenPrice());
  return html`<main class="market">
    <h1><bdi>${market.question ?? id}</bdi></h1>
    <${Facts} market=${market} />
    <${Outcomes} market=${market} />
    <${Chart} key=${`${id} ${outcome}`} kind="price" rows=${history} tick=${market.tick_size}
      label=${`Price of ${outcome} in the last day`} empty="No price is known yet." />
    <${Book} market=${market} stage=${stage} />
  </main>`;
}
