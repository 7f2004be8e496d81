// The console: the page that shows markets, books and an account.

import { startAccount } from "./account.js";
import { startMarkets } from "./markets.js";
import { drawWith, state, update } from "./store.js";
import { render } from "./vendor/preact.mjs";
import { App } from "./view/app.js";
import { html } from "./view/html.js";

const page = document.getElementById("app");
page.replaceChildren();

drawWith(() => {
  page.dataset.view = state.view;
  document.title = state.market ? `${state.market.question} · paperbourse` : "paperbourse console";
  render(html`<${App} />`, page);
});

update();
startMarkets();
startAccount();
