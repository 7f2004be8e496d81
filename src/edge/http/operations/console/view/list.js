// The list of markets.

import { price } from "../decimal.js";
import { LIST_ROWS_MAX, choose, lookAt, searchNow, searchSoon, showMore, step } from "../markets.js";
import { stageOf, state } from "../store.js";
import { Figure, WithNode, html } from "./html.js";

class Row extends WithNode {
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

  render({ row, shown, stage, isChosen, isHeld, isFirst }) {
    const { condition_id: id, question, category, outcomes } = row;
    return html`<li ref=${this.keep}>
      <button type="button" aria-current=${isChosen ? "true" : undefined} tabindex=${isFirst ? 0 : -1}
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

/** Moves through the list as people with keyboards expect. */
function moveRow(event) {
  const rows = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!rows) return;
  event.preventDefault();
  step(rows);
  const focus = () => {
    // Another key may have left the list meanwhile.
    if (!document.activeElement.closest(".list ul")) return;
    document.querySelector(".list [aria-current]")?.focus();
  };
  requestAnimationFrame(() => requestAnimationFrame(focus));
}

function Rows() {
  const { rows, query, rowsMax } = state;
  if (!rows) return html`<p class="empty">Loading the markets …</p>`;
  if (!rows.length && query) return html`<p class="empty">No market matches “${query}”.</p>`;
  if (!rows.length) return html`<p class="empty">The venue has listed no market yet.</p>`;
  const held = new Set((state.positions ?? []).map((position) => position.market_id));
  // One stop for the keyboard, which moves on with the arrows.
  const isListed = rows.some((row) => row.condition_id === state.id);
  const first = isListed ? state.id : rows[0].condition_id;
  return html`<ul onScroll=${looked} onKeyDown=${moveRow}>
    ${rows.map((row) => {
      const id = row.condition_id;
      const frame = state.prices.get(id);
      const newest = frame?.outcomes[0]?.price ?? row.live_price?.outcomes?.[0]?.price ?? row.last_price;
      const tick = id === state.id ? state.market?.tick_size : undefined;
      return html`<${Row} key=${id} row=${row} shown=${price(newest, tick)} stage=${stageOf(row, frame)}
        isChosen=${id === state.id} isHeld=${held.has(id)} isFirst=${id === first} />`;
    })}
    ${rows.length >= rowsMax && html`<li key="more" class="more">
      ${rowsMax < LIST_ROWS_MAX
        ? html`<button type="button" onClick=${showMore}>More markets</button>`
        : html`<p class="empty">These are the ${LIST_ROWS_MAX} most traded. Search for others.</p>`}
    </li>`}
  </ul>`;
}

export function List() {
  const take = ({ target }) => target.value !== state.query && searchSoon(target.value);
  return html`<nav class="list" aria-label="Markets">
    <div class="find">
      <input type="search" aria-label="Search markets" placeholder="Search markets  /" maxlength="120"
        autocomplete="off" spellcheck=${false} value=${state.query}
        onInput=${take} onChange=${take}
        onKeyDown=${(event) => event.key === "Enter" && searchNow()} />
    </div>
    <${Rows} />
  </nav>`;
}
