// The list of markets.

import { price } from "../decimal.js";
import { ROWS_MAX, choose, lookAt, searchSoon, showMore } from "../markets.js";
import { stageOf, state } from "../store.js";
import { Element, Figure, html } from "./html.js";

class Row extends Element {
  shouldComponentUpdate(next) {
    return Object.keys(next).some((name) => next[name] !== this.props[name]);
  }

  componentDidMount() {
    this.reveal({});
  }

  componentDidUpdate(before) {
    this.reveal(before);
  }

  /** A row that was chosen elsewhere may be out of sight. */
  reveal(before) {
    if (this.props.isChosen && !before.isChosen) this.node.scrollIntoView({ block: "nearest" });
  }

  render({ row, shown, stage, isChosen, isHeld }) {
    const { condition_id: id, question, category, outcomes } = row;
    return html`<li ref=${this.keep}>
      <button type="button" aria-current=${isChosen ? "true" : undefined}
        onClick=${() => choose(id, { show: true })}>
        <bdi class="question">${question ?? id}</bdi>
        <span class="figure"><${Figure} text=${shown} /></span>
        <small><bdi>${category ?? ""}</bdi>
          ${isHeld && html`<span class="chip">held</span>`}
          ${stage !== "open" && html`<span class="chip warn">${stage}</span>`}</small>
        <small class="label"><bdi>${outcomes[0]}</bdi></small>
      </button>
    </li>`;
  }
}

/** Tells which rows are looked at, once the list has come to rest. */
function looked(event) {
  const list = event.currentTarget;
  clearTimeout(looked.timer);
  looked.timer = setTimeout(() => {
    const top = list.getBoundingClientRect().top;
    const rows = [...list.querySelectorAll("li")];
    lookAt(Math.max(0, rows.findIndex((row) => row.getBoundingClientRect().bottom > top)));
  }, 300);
}

function Rows() {
  const { rows, query, rowsMax } = state;
  if (!rows) return html`<p class="empty">Loading the markets …</p>`;
  if (!rows.length && query) return html`<p class="empty">No market matches “${query}”.</p>`;
  if (!rows.length) return html`<p class="empty">The venue has listed no market yet.</p>`;
  const held = new Set((state.positions ?? []).map((position) => position.market_id));
  return html`<ul onScroll=${looked}>
    ${rows.map((row) => {
      const id = row.condition_id;
      const frame = state.prices.get(id);
      const newest = frame?.outcomes[0]?.price ?? row.live_price?.outcomes?.[0]?.price ?? row.last_price;
      const tick = id === state.id ? state.market?.tick_size : undefined;
      return html`<${Row} key=${id} row=${row} shown=${price(newest, tick)} stage=${stageOf(row, frame)}
        isChosen=${id === state.id} isHeld=${held.has(id)} />`;
    })}
    ${rows.length >= rowsMax && html`<li key="more" class="more">
      ${rowsMax < ROWS_MAX
        ? html`<button type="button" onClick=${showMore}>More markets</button>`
        : html`<p class="empty">These are the ${ROWS_MAX} most traded. Search for others.</p>`}
    </li>`}
  </ul>`;
}

export function List() {
  return html`<nav class="list" aria-label="Markets">
    <div class="find">
      <input type="search" aria-label="Search markets" placeholder="Search markets  /" maxlength="120"
        autocomplete="off" spellcheck=${false} value=${state.query}
        onInput=${(event) => searchSoon(event.target.value)} />
    </div>
    <${Rows} />
  </nav>`;
}
