// A table of the account. On a phone each row is a card, whose numbers carry the names of their
// columns.

import { html } from "./html.js";

/**
 * `columns` are objects with the `head` of a column, its `kind` ("text", "question" or "number"), and
 * `cell`, which makes the content from a row. `note` is said below the rows.
 */
export function Table({ name, columns, rows, keyOf, note }) {
  return html`<table aria-label=${name}>
    <thead><tr>${columns.map(({ head, kind }) => html`<th scope="col" class=${kind}>
      ${head || html`<span class="unseen">Actions</span>`}</th>`)}</tr></thead>
    <tbody>
      ${rows.map((row) => html`<tr key=${keyOf(row)}>
        ${columns.map(({ head, kind, cell }) => html`<td class=${kind} data-head=${head}>
          ${cell(row)}</td>`)}
      </tr>`)}
      ${note && html`<tr key="note"><td class="note-row" colspan=${columns.length}>${note}</td></tr>`}
    </tbody>
  </table>`;
}
