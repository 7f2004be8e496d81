// The console: the page on which people watch markets and trade.

import { startAccount } from "./account.js";
import { startKeyboard } from "./keyboard.js";
import { startMarkets } from "./markets.js";
import { drawWith, state, update } from "./store.js";
import { startTicket } from "./ticket.js";
import { render } from "./vendor/preact.mjs";
import { App } from "./view/app.js";
import { html } from "./view/html.js";

const page = document.getElementById("app");
page.replaceChildren();

drawWith(() => {
  page.dataset.view = state.view;
  page.classList.toggle("lost", state.isLost);
  document.title = state.market ? `${state.market.question} · paperbourse` : "paperbourse console";
  render(html`<${App} />`, page);
});

update();
startMarkets();
startTicket();
startAccount();
startKeyboard();
