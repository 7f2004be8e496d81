// The header: what this is, how the venue does, and the account at a glance or the way to sign in.

import { signIn, signOut } from "../account.js";
import { gain, micros, money } from "../decimal.js";
import { chosenPrice, state } from "../store.js";
import { Figure, html, toneOf } from "./html.js";

function Venue() {
  const { status, isLost } = state;
  const isStale = Boolean(chosenPrice()?.stale) || Boolean(status?.venue.trouble);
  const [tone, word] = isLost ? ["down", "disconnected"] : isStale ? ["warn", "stale"] : ["up", "live"];
  return html`<p class="venue">
    <span class=${`dot ${tone}`} role="img" aria-label=${word}>●</span>
    <span>${status?.venue.name ?? ""}</span>
    ${status && html`<small class="wide">
      ${status.markets.tradable} of ${status.markets.listed} markets can be traded
    </small>`}
  </p>`;
}

function Balance() {
  const { balance, limits } = state;
  const profit = balance && micros(balance.total_value) - micros(balance.starting_balance);
  return html`<dl class="balance" aria-label="Balance">
    <div>
      <dt>Equity</dt>
      <dd><${Figure} field="total_value" text=${money(balance?.total_value)} />
        ${balance && html` <small class=${`wide ${toneOf(profit)}`}>${gain(profit)}</small>`}</dd>
    </div>
    <div class="wide">
      <dt>Available</dt>
      <dd><${Figure} field="available" text=${money(balance?.available)} /></dd>
    </div>
    <div class="wide">
      <dt title="Requests that this key may still send this minute">Left</dt>
      <dd>${limits?.left ?? "–"}${limits && html`<small> of ${limits.of}</small>`}</dd>
    </div>
  </dl>`;
}

function submitKey(event) {
  event.preventDefault();
  const field = event.target.elements.key;
  const key = field.value.trim();
  field.value = "";
  if (key) signIn(key);
}

function SignIn() {
  return html`<form class="sign-in" aria-label="Sign in" onSubmit=${submitKey}>
    <p class="down" role="alert">${state.keyTrouble}</p>
    <input name="key" type="password" autocomplete="off" spellcheck=${false} aria-label="API key"
      placeholder="Paste an API key to trade" />
    <button class="main">Sign in</button>
  </form>`;
}

export function Header() {
  return html`<header class=${state.isSignedIn ? "" : "out"}>
    <a class="mark" href="./">paperbourse</a>
    <${Venue} />
    ${state.isSignedIn
      ? html`<${Balance} /><button type="button" onClick=${() => signOut()}>Sign out</button>`
      : html`<${SignIn} />`}
  </header>`;
}
