// The list of keys, in a dialog that Esc closes.

import { KEYS } from "../keyboard.js";
import { update } from "../store.js";
import { WithNode, html } from "./html.js";

export class Keys extends WithNode {
  componentDidMount() {
    this.node.showModal();
  }

  render() {
    const close = () => update({ showsKeys: false });
    return html`<dialog ref=${this.keep} aria-label="Keys" onClose=${close}>
      <dl>${Object.entries(KEYS).map(([key, { does }]) => html`<div key=${key}>
        <dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl>
      <button type="button" onClick=${close}>Close</button>
    </dialog>`;
  }
}
