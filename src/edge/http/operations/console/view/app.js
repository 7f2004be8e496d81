// The page: what stands where is in the style sheet.

import { state, update } from "../store.js";
import { Account } from "./account.js";
import { Header } from "./header.js";
import { html } from "./html.js";
import { Keys } from "./keys.js";
import { List } from "./list.js";
import { Market } from "./market.js";
import { Ticket } from "./ticket.js";

const VIEWS = { markets: "Markets", trade: "Trade", account: "Account" };

function Views() {
  const show = (view) => {
    update({ view });
    scrollTo(0, 0);
  };
  return html`<nav class="views" aria-label="Views">
    ${Object.entries(VIEWS).map(([view, name]) => html`<button type="button" key=${view}
      aria-current=${state.view === view ? "page" : undefined} onClick=${() => show(view)}>${name}</button>`)}
  </nav>`;
}

/** Says that Polymarket's clients meet trouble on purpose: a plan without a percentage has none. */
function OnDemand() {
  const plan = state.status?.clob_trouble?.plan ?? "";
  return plan.includes("%") && html`<p class="on-demand">
    <a href="docs/trouble">Trouble on demand</a> is on, so results say little: ${plan}
  </p>`;
}

export function App() {
  return html`<${Header} />
    <div class="notes">
      <${OnDemand} />
      <p class="trouble" role="alert" hidden=${!state.trouble}>${state.trouble}</p>
    </div>
    <${List} /><${Market} /><${Ticket} /><${Account} /><${Views} />
    ${state.showsKeys && html`<${Keys} />`}`;
}
