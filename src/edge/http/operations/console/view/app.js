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

export function App() {
  return html`<${Header} />
    <p class="trouble" role="alert" hidden=${!state.trouble}>${state.trouble}</p>
    <${List} /><${Market} /><${Ticket} /><${Account} /><${Views} />
    ${state.showsKeys && html`<${Keys} />`}`;
}
