// A chart over time: a stepped line, with its axis on the right. Its coordinates are the only floats
// of the page.

import { decimalsOf } from "../decimal.js";
import { WithNode, html } from "./html.js";

const dark = matchMedia("(prefers-color-scheme: dark)");

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const KINDS = {
  price: { write: (value, decimals) => value.toFixed(decimals), size: 52 },
  money: {
    write: (value) => `$${value.toLocaleString("en-US", { maximumFractionDigits: 2 })}`, size: 76,
  },
};

function hours(plot, times) {
  const [first, last] = [plot.scales.x.min, plot.scales.x.max];
  const options = last - first > 3 * 86_400
    ? { day: "numeric", month: "short" }
    : { hour: "2-digit", minute: "2-digit", hour12: false };
  if (last - first < 600) options.second = "2-digit";
  return times.map((time) => new Date(time * 1_000).toLocaleString("en-GB", options));
}

/** Steps between the lines of the grid that so many decimals can tell apart. */
function steps(decimals) {
  const powers = Array.from({ length: decimals + 8 }, (_, at) => 10 ** (at - decimals));
  return powers.flatMap((power) => [power, 2 * power, 5 * power]);
}

/** Keeps a flat line in the middle, between lines of the grid. */
const rangeFor = (decimals) => (_, least, most) => {
  const margin = Math.max((most - least) * 0.1, Math.abs(most) * 0.01, 2.5 / 10 ** decimals);
  return [least - margin, most + margin];
};

/** `rows` are pairs of seconds and a value, oldest first; null until they are known. */
export class Chart extends WithNode {
  componentDidMount() {
    this.resize = new ResizeObserver(() => this.fit());
    this.resize.observe(this.node);
    this.recolour = () => this.make();
    dark.addEventListener("change", this.recolour);
    this.make();
  }

  shouldComponentUpdate(next) {
    return ["rows", "label", "tick"].some((name) => next[name] !== this.props[name]);
  }

  componentDidUpdate({ rows, tick }) {
    if (tick !== this.props.tick) return this.make();
    if (rows === this.props.rows) return;
    if (this.plot && this.hasRows()) this.plot.setData(this.data());
    else this.make();
  }

  componentWillUnmount() {
    this.resize.disconnect();
    dark.removeEventListener("change", this.recolour);
    this.plot?.destroy();
  }

  hasRows() {
    return (this.props.rows?.length ?? 0) > 0;
  }

  data() {
    const { rows } = this.props;
    const columns = [rows.map(([time]) => time), rows.map(([, value]) => value)];
    // A single point is no line.
    if (rows.length === 1) {
      columns[0].unshift(columns[0][0] - 60);
      columns[1].unshift(columns[1][0]);
    }
    return columns;
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.node;
    if (!width || !height) return;
    if (!this.plot) return this.make();
    if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
  }

  make() {
    this.plot?.destroy();
    this.plot = null;
    const { clientWidth: width, clientHeight: height } = this.node;
    if (!width || !height || !this.hasRows()) return;
    const { write, size } = KINDS[this.props.kind];
    const decimals = decimalsOf(this.props.tick);
    const axis = {
      stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
      font: "12px system-ui, sans-serif", gap: 6,
    };
    this.plot = new window.uPlot({
      width, height, padding: [8, 0, 0, 28], legend: { show: false }, cursor: { show: false },
      select: { show: false }, scales: { y: { range: rangeFor(decimals) } },
      axes: [
        { ...axis, size: 24, space: 80, values: hours },
        {
          ...axis, side: 1, size, space: 32, incrs: steps(decimals),
          values: (_, values) => values.map((value) => write(value, decimals)),
        },
      ],
      series: [{}, {
        stroke: colour("--accent"), width: 1.5, points: { show: false },
        paths: window.uPlot.paths.stepped({ align: 1 }),
      }],
    }, this.data(), this.node);
  }

  render({ rows, label, empty }) {
    const text = rows === null ? "Loading the prices …" : rows.length ? null : empty;
    return html`<figure ref=${this.keep} class="chart" role="img" aria-label=${label}>
      ${text && html`<figcaption class="empty">${text}</figcaption>`}
    </figure>`;
  }
}
