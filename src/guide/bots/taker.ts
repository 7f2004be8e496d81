// A taker: buys when the ask falls below the recent average, and sells when the bid is above it.
//
//     KEY=ps_live_... npx tsx taker.ts
//
// An order names the price that the program has seen, so it is not filled at a much worse one.

import { randomUUID } from "node:crypto";

const SERVER = process.env.BOURSE ?? "http://127.0.0.1:8080";
const HEADERS = { "X-API-Key": process.env.KEY!, "Content-Type": "application/json" };
const EDGE = Number(process.env.EDGE ?? "0.01"); // How far from the average, in dollars.
const SIZE = 5; // Shares of one order.
const HELD_MAX = 50;
const SLIPPAGE_MAX_BPS = 100;
const PAUSE_MS = 2000; // From one order to the next.
const WEIGHT = 0.05; // Of the newest price in the average.
const TIMEOUT_MS = 10_000;
const SILENCE_MS = 15_000; // The stream says something every five seconds.

interface Price {
  stale: boolean;
  active: boolean;
  best_bid?: string;
  best_ask?: string;
}

interface Trade {
  price: number;
  quantity: number;
  position: { quantity: number };
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function get<T>(path: string): Promise<T> {
  const answer = await fetch(SERVER + path, { headers: HEADERS });
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as T;
}

/** Places an order exactly once, however often it has to be sent; undefined if it was refused. */
async function trade(order: object): Promise<Trade | undefined> {
  const body = JSON.stringify({ ...order, client_order_id: `taker-${randomUUID()}` });
  for (let waitMs = 1000; ; waitMs = Math.min(2 * waitMs, 30_000)) {
    let answer: Response;
    let text: string;
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      answer = await fetch(`${SERVER}/trade`, { method: "POST", headers: HEADERS, body, signal });
      text = await answer.text();
    } catch (error) {
      // Nobody knows whether it was filled. The name finds out.
      console.log(`no answer (${error}): again in ${waitMs / 1000} s`);
      await sleep(waitMs);
      continue;
    }
    if (answer.ok) return JSON.parse(text);
    const { error, message } = JSON.parse(text);
    console.log(error, "-", message);
    // On a stale book the price is no longer known, so there is no reason to insist.
    const isLater = answer.status === 429 || answer.status === 503;
    if (!isLater || error === "VENUE_UNAVAILABLE") return undefined;
    await sleep(Math.max(waitMs, 1000 * Number(answer.headers.get("Retry-After") ?? 1)));
  }
}

/** The prices of a market, until the stream breaks off or is silent. */
async function* stream(market: string): AsyncGenerator<Price> {
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(new Error("silent")), SILENCE_MS);
  try {
    const url = `${SERVER}/prices/stream?condition_ids=${market}`;
    const answer = await fetch(url, { signal: stop.signal });
    if (!answer.ok) throw new Error(await answer.text());
    const decoder = new TextDecoder();
    let text = "";
    let event = "";
    for await (const bytes of answer.body!) {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(new Error("silent")), SILENCE_MS);
      const lines = (text + decoder.decode(bytes, { stream: true })).split("\n");
      text = lines.pop()!;
      for (const line of lines) {
        if (line.startsWith("event: ")) event = line.slice(7);
        if (!line.startsWith("data: ")) continue;
        const data = JSON.parse(line.slice(6));
        if (event === "snapshot") yield* data.prices;
        else if (event === "market_price") yield data;
      }
    }
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}

async function* prices(market: string): AsyncGenerator<Price> {
  while (true) {
    try {
      yield* stream(market);
    } catch (error) {
      console.log(`stream: ${error}`);
    }
    await sleep(1000);
  }
}

async function main() {
  type Market = { condition_id: string; question: string; outcomes: string[] };
  const [market] = await get<Market[]>("/v1/markets?active_only=true&limit=1");
  console.log(market.question);
  const about = { market_id: market.condition_id, outcome: market.outcomes[0] };
  type Position = { market_id: string; outcome: string; quantity: string };
  const positions = await get<Position[]>("/v1/account/positions");
  const own = positions.find(
    (it) => it.market_id === about.market_id && it.outcome === about.outcome);
  let shares = Number(own?.quantity ?? 0);
  let average: number | undefined;
  let nextOrderMs = 0;
  for await (const { stale, active, best_bid, best_ask } of prices(market.condition_id)) {
    if (stale || !active || !best_bid || !best_ask) continue;
    const middle = (Number(best_bid) + Number(best_ask)) / 2;
    average ??= middle;
    let seen: [side: string, price: string] | undefined;
    if (Number(best_ask) <= average - EDGE && shares < HELD_MAX) seen = ["BUY", best_ask];
    else if (Number(best_bid) >= average + EDGE && shares >= SIZE) seen = ["SELL", best_bid];
    average += WEIGHT * (middle - average);
    if (!seen || Date.now() < nextOrderMs) continue;
    const [side, expected_price] = seen;
    const filled = await trade({
      ...about, side, quantity: SIZE, expected_price, max_slippage_bps: SLIPPAGE_MAX_BPS,
    });
    if (filled) {
      shares = filled.position.quantity;
      console.log(side, filled.quantity, "at", filled.price, "- holds", shares);
    }
    nextOrderMs = Date.now() + PAUSE_MS;
  }
}

process.on("SIGINT", () => process.exit(0));
main();
