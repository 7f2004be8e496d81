// The keys of the page. None of them does anything while somebody types.

import { step } from "./markets.js";
import { state, update } from "./store.js";
import { fill } from "./ticket.js";

/** The field to go to once its view is shown, unless another key is pressed first. */
let awaited = null;

/** Goes to a field of this view, at once or, where the view is not shown, once it is. */
function enter(view, selector) {
  update({ view });
  const field = document.querySelector(selector);
  const focus = () => {
    field?.focus();
    field?.select();
  };
  focus();
  if (document.activeElement === field) return;
  awaited = field;
  requestAnimationFrame(() => requestAnimationFrame(() => awaited === field && focus()));
}

function trade(side) {
  fill({ side });
  enter("trade", "[name=quantity]");
}

/** What each key does. */
export const KEYS = {
  "/": { does: "Search markets", press: () => enter("markets", "[type=search]") },
  j: { does: "Next market", press: () => step(1) },
  k: { does: "Previous market", press: () => step(-1) },
  b: { does: "Buy", press: () => trade("BUY") },
  s: { does: "Sell", press: () => trade("SELL") },
  Enter: { does: "Send the order, from its fields" },
  Esc: { does: "Leave a field" },
  "?": { does: "Show these keys", press: () => update({ showsKeys: !state.showsKeys }) },
};

const isField = (element) => (
  element.matches("input:not([type=radio]), textarea, select, [contenteditable]")
);

export function startKeyboard() {
  addEventListener("keydown", (event) => {
    const { target, key } = event;
    awaited = null;
    if (key === "Escape") {
      update({ showsKeys: false, asksCancelAll: false });
      return target.blur?.();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (target instanceof Element && isField(target)) return;
    const press = Object.hasOwn(KEYS, key) && KEYS[key].press;
    if (!press) return;
    event.preventDefault();
    press();
  });
}
