// A maker: bids for one outcome at the best bid, and offers what it has bought at the best ask.
//
//     npm install ws
//     KEY=ps_live_... npx tsx maker.ts
//
// Ctrl-C cancels its orders. If the program dies, the server does: their heartbeats stop.

import WebSocket from "ws";

const SERVER = process.env.BOURSE ?? "http://127.0.0.1:8080";
const KEY = process.env.KEY!;
const SIZE = 5; // Shares of one order.
const HELD_MAX = 50; // Shares after which it buys no more.
const PAUSE_MS = 2000; // Between rounds of at most three requests. The free tier has 5 a second.
const HEARTBEAT_MS = 10_000;
const TIMEOUT_MS = 10_000;
const SILENCE_MS = 45_000; // The server pings every 20 seconds.

interface Quote {
  side: "BUY" | "SELL";
  price: string;
}

interface Answer<T> {
  status: number;
  ok: boolean;
  body: T & { message?: string };
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Sends a request until it is answered with something else than "later". To send it twice does no
 * harm: cancels are idempotent, and orders have names.
 */
async function call<T = any>(method: string, path: string, body?: object): Promise<Answer<T>> {
  const headers = { "X-API-Key": KEY, "Content-Type": "application/json" };
  for (let waitMs = 1000; ; waitMs = Math.min(2 * waitMs, 30_000)) {
    try {
      const answer = await fetch(SERVER + path, {
        method, headers, body: body && JSON.stringify(body),
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      const { status, ok } = answer;
      const said: any = await answer.json();
      if (status !== 429 && status !== 503) return { status, ok, body: said };
      console.log(said.error, "- again later");
      await sleep(Math.max(waitMs, 1000 * Number(answer.headers.get("Retry-After") ?? 1)));
    } catch (error) {
      console.log(`no answer (${error}): again in ${waitMs / 1000} s`);
      await sleep(waitMs);
    }
  }
}

/** Like `call`, for what must not be refused. */
async function must<T = any>(method: string, path: string, body?: object): Promise<T> {
  const answer = await call<T>(method, path, body);
  if (!answer.ok) throw new Error(answer.body.message);
  return answer.body;
}

/** Gives `take` every frame of a socket, and opens it again whenever it closes. */
function follow(path: string, take: (frame: any, send: (message: object) => void) => void) {
  const url = SERVER.replace("http", "ws") + path;
  const socket = new WebSocket(url, { headers: { "X-API-Key": KEY } });
  let timer = setTimeout(() => socket.terminate(), SILENCE_MS);
  const live = () => {
    clearTimeout(timer);
    timer = setTimeout(() => socket.terminate(), SILENCE_MS);
  };
  socket.on("ping", live);
  socket.on("message", (text) => {
    live();
    take(JSON.parse(text.toString()), (message) => socket.send(JSON.stringify(message)));
  });
  socket.on("error", (error) => console.log(path, error.message));
  socket.on("close", (code, reason) => {
    clearTimeout(timer);
    console.log(path, "closed", code, reason.toString());
    setTimeout(() => follow(path, take), 1000);
  });
}

async function main() {
  type Market = { condition_id: string; question: string; outcomes: string[] };
  const [listed] = await must<Market[]>("GET", "/v1/markets?active_only=true&limit=1");
  console.log(listed.question);
  const market = listed.condition_id;
  const outcome = listed.outcomes[0];
  const cancel = async (): Promise<string[]> =>
    (await must("DELETE", `/v1/cancel-market-orders?market=${market}`)).canceled;

  // Starts from what the account has, without orders of an earlier run.
  await cancel();
  type Position = { market_id: string; outcome: string; quantity: string };
  const positions = await must<Position[]>("GET", "/v1/account/positions");
  const isOwn = (it: { market_id: string; outcome: string }) =>
    it.market_id === market && it.outcome === outcome;
  let held = Number(positions.find(isOwn)?.quantity ?? 0);

  let price: any; // The newest frame of the price socket.
  follow("/v1/ws/prices", (frame, send) => {
    if (frame.type === "connected") {
      price = undefined;
      send({ action: "subscribe", markets: [market] });
    } else if (frame.type === "price") price = frame;
  });

  let fillSeq: number | undefined; // The number of the last fill that is counted in `held`.
  follow("/v1/ws/executions", (frame, send) => {
    if (frame.type === "connected") {
      // What was filled meanwhile comes first, each fill once.
      if (fillSeq === undefined) fillSeq = frame.seq;
      else send({ action: "resume", after: fillSeq });
    } else if (frame.type === "fill" && frame.seq > fillSeq!) {
      fillSeq = frame.seq;
      if (!isOwn(frame)) return;
      held += Number(frame.quantity) * (frame.side === "BUY" ? 1 : -1);
      console.log(
        "fill", frame.seq, frame.side, frame.quantity, "at", frame.price, "- holds", held);
    }
  });

  /** The orders that should be on the book now. */
  const wanted = (): Quote[] => {
    if (!price || price.stale || !price.active || fillSeq === undefined) return [];
    const quotes: Quote[] = [];
    if (price.best_bid && held < HELD_MAX) quotes.push({ side: "BUY", price: price.best_bid });
    if (price.best_ask && held >= SIZE) quotes.push({ side: "SELL", price: price.best_ask });
    return quotes;
  };

  /** Returns whether all of them are on the book. */
  const place = async (quotes: Quote[]): Promise<boolean> => {
    const name = `maker-${Date.now()}`;
    const orders = quotes.map((quote) => ({
      ...quote, market_id: market, outcome, quantity: String(SIZE), order_type: "limit",
      post_only: true, client_order_id: `${name}-${quote.side}`,
    }));
    const answer = await call("POST", "/v1/orders/batch", { orders });
    if (!answer.ok) {
      console.log(answer.body.message);
      return false;
    }
    for (const [at, { side, price }] of quotes.entries()) {
      const { status, error_message } = answer.body.results[at];
      console.log(side, SIZE, "at", price, status, error_message ?? "");
    }
    return answer.body.failed === 0;
  };

  let isRunning = true;
  process.on("SIGINT", () => (isRunning = false));
  let placed = ""; // The quotes on the book, and what was held when they were placed.
  let aliveMs = Date.now();
  while (isRunning) {
    const quotes = wanted();
    const now = JSON.stringify([quotes, held]);
    if (now !== placed) {
      await cancel();
      placed = quotes.length === 0 || (await place(quotes)) ? now : "";
    }
    await call("POST", "/v1/heartbeats", { interval_ms: HEARTBEAT_MS });
    // If the heartbeat was late, the orders may be gone.
    if (Date.now() - aliveMs > HEARTBEAT_MS) placed = "";
    aliveMs = Date.now();
    await sleep(PAUSE_MS);
  }
  console.log("cancelled", (await cancel()).length, "orders");
  process.exit(0);
}

main();
