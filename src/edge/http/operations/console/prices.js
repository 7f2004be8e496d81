// The stream of prices. It takes no credential and none of the tier's sockets. There is one for a
// tab: browsers open only six connections to a server, and a person may have several tabs.

// The server sends something at least every 5 s.
const SILENCE_MS_MAX = 12_000;
// A connection that failed is usually back at once.
const FAILED_MS_MAX = 3_000;
const REOPEN_MS = 2_000;

/** The most markets of a stream. */
export const FOLLOWED_MAX = 50;

/** Follows markets, and tells `listener` about prices, changes of status and of ticks, and silence. */
export class Prices {
  #listener;
  #ids = [];
  #source = null;
  #heardMs = performance.now();
  #failedMs = null;
  #isLost = false;

  constructor(listener) {
    this.#listener = listener;
    setInterval(() => this.#watch(), 500);
    document.addEventListener("visibilitychange", () => this.#show());
  }

  /** Follows these markets and no others. */
  follow(ids) {
    const wanted = ids.slice(0, FOLLOWED_MAX);
    if (wanted.length === this.#ids.length && wanted.every((id) => this.#ids.includes(id))) return;
    this.#ids = wanted;
    this.#open();
  }

  /** A hidden tab needs no prices, and would keep a connection from the others. */
  #show() {
    if (!document.hidden) {
      this.#heardMs = performance.now();
      this.#open();
    } else {
      this.#source?.close();
      this.#source = null;
    }
  }

  #open() {
    this.#source?.close();
    this.#source = null;
    if (!this.#ids.length || document.hidden) return;
    const source = new EventSource(`prices/stream?condition_ids=${this.#ids.join()}`);
    const on = (name, take) => source.addEventListener(name, (event) => {
      this.#heard();
      take?.(JSON.parse(event.data));
    });
    on("snapshot", ({ prices }) => this.#listener.priced(prices));
    on("market_price", (price) => this.#listener.priced([price]));
    on("market_status", (change) => this.#listener.ended(change));
    on("tick_size_change", (change) => this.#listener.tickChanged(change));
    on("keepalive");
    source.onerror = () => {
      this.#failedMs ??= performance.now();
      // The browser comes back by itself, except after an answer that is no stream.
      if (source.readyState === EventSource.CLOSED) {
        setTimeout(() => this.#source === source && this.#open(), REOPEN_MS);
      }
    };
    this.#source = source;
  }

  #heard() {
    this.#heardMs = performance.now();
    this.#failedMs = null;
    if (this.#isLost) this.#listener.lost((this.#isLost = false));
  }

  #watch() {
    if (document.hidden || this.#isLost || !this.#source) return;
    const now = performance.now();
    const isSilent = now - this.#heardMs > SILENCE_MS_MAX;
    const hasFailed = this.#failedMs !== null && now - this.#failedMs > FAILED_MS_MAX;
    if (isSilent || hasFailed) this.#listener.lost((this.#isLost = true));
  }
}
