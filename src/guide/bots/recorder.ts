// A recorder: appends every price of the most traded markets to a file, one JSON object a line.
//
//     npx tsx recorder.ts prices.jsonl
//
// It needs no key. After a lost connection it goes on where it was, with nothing twice.

import { appendFileSync } from "node:fs";

const SERVER = process.env.BOURSE ?? "http://127.0.0.1:8080";
const MARKETS = 50; // The most that a stream takes.
const SILENCE_MS = 15_000; // The stream says something every five seconds.
const TOLD_EVERY = 100; // Prices.

interface Price {
  updated_at: string;
  condition_id: string;
  seq: number;
  best_bid?: string;
  best_ask?: string;
  last_trade?: string;
  stale: boolean;
}

const path = process.argv[2] ?? "prices.jsonl";
const newest = new Map<string, string>(); // The number and the time of each market's last price.
let lastId: string | undefined; // Of the newest event, from which the stream goes on.
let waitMs = 1000;
let count = 0;

function record(price: Price) {
  const { updated_at, condition_id, seq, best_bid, best_ask, last_trade, stale } = price;
  // After a lost connection, the last price of a market may come again.
  const made = `${seq} ${updated_at}`;
  if (made === newest.get(condition_id)) return;
  newest.set(condition_id, made);
  const kept = { updated_at, condition_id, seq, best_bid, best_ask, last_trade, stale };
  appendFileSync(path, `${JSON.stringify(kept)}\n`);
  count += 1;
  if (count % TOLD_EVERY === 0) console.log(count, "prices");
}

function take(event: string, data: any) {
  if (event === "snapshot") data.prices.forEach(record);
  else if (event === "market_price") record(data);
  else if (event === "market_status") console.log(data.condition_id, "is", data.status);
}

/** The lines of a stream, until it breaks off or is silent. */
async function* linesOf(url: string, headers: Record<string, string>) {
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(new Error("silent")), SILENCE_MS);
  try {
    const answer = await fetch(url, { headers, signal: stop.signal });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    console.log("connected");
    const decoder = new TextDecoder();
    let text = "";
    for await (const bytes of answer.body!) {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(new Error("silent")), SILENCE_MS);
      const lines = (text + decoder.decode(bytes, { stream: true })).split("\n");
      text = lines.pop()!;
      yield* lines;
    }
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}

async function read(markets: string[]) {
  const url = `${SERVER}/prices/stream?condition_ids=${markets.join(",")}`;
  let event = "";
  for await (const line of linesOf(url, lastId ? { "Last-Event-ID": lastId } : {})) {
    const colon = line.indexOf(": ");
    const [field, value] = [line.slice(0, colon), line.slice(colon + 2)];
    if (field === "event") event = value;
    else if (field === "data") take(event, JSON.parse(value));
    else if (field === "id") lastId = value;
    else if (field === "retry") waitMs = Number(value);
  }
}

async function main() {
  const listed = await fetch(`${SERVER}/v1/markets?active_only=true&limit=${MARKETS}`);
  if (!listed.ok) throw new Error(await listed.text());
  const markets = (await listed.json()) as { condition_id: string }[];
  process.on("SIGINT", () => {
    console.log("recorded", count, "prices");
    process.exit(0);
  });
  while (true) {
    try {
      await read(markets.map((market) => market.condition_id));
    } catch (error) {
      console.log(`disconnected (${error}): again in ${waitMs / 1000} s`);
    }
    await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
}

main();
