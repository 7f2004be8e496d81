// What all parts of the page are written with. Text in a template becomes text nodes.

import htm from "../vendor/htm.module.js";
import { Component, h } from "../vendor/preact.mjs";
import { signOf } from "../decimal.js";

// 3 tells htm to keep no node of a template. A kept one links every tree that it was part of with
// the next, so that none is ever freed.
export const html = htm.bind(function node(...parts) {
  this[0] = 3;
  return h(...parts);
});

const WASH_MS = 600;

const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** A component whose element is `this.node`, once it has passed `this.keep` as its `ref`. */
export class WithNode extends Component {
  keep = (node) => {
    if (node) this.node = node;
  };
}

/** A number that is washed with colour for a moment when it changes: `text`, of this `field`. */
export class Figure extends WithNode {
  washedMs = -Infinity;

  shouldComponentUpdate(next) {
    return ["text", "field", "tone"].some((name) => next[name] !== this.props[name]);
  }

  componentDidUpdate({ text, of }) {
    // Another number took the place of this one.
    if (text === this.props.text || of !== this.props.of || calm.matches) return;
    // A number that changes all the time is washed now and then.
    const now = performance.now();
    if (now - this.washedMs < WASH_MS) return;
    this.washedMs = now;
    const washed = { backgroundColor: "var(--pick)" };
    this.node.animate([washed, {}], { duration: WASH_MS, easing: "ease-out" });
  }

  render({ text, field, tone }) {
    return html`<span ref=${this.keep} class=${tone ?? ""} data-field=${field}>${text}</span>`;
  }
}

/** The class of a gain or a loss; its sign says it too. */
export const toneOf = (value) => ({ 1: "up", "-1": "down" })[signOf(value)] ?? "";

/** A point in time as people here read it: the hour, and before today also the day. */
export function moment(time) {
  const date = new Date(time);
  if (!time || Number.isNaN(date.getTime())) return "–";
  const hour = date.toLocaleTimeString("en-GB", { hour12: false });
  if (date.toDateString() === new Date().toDateString()) return hour;
  return `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${hour}`;
}
