// The sockets through the library `ws`.

import assert from "node:assert";
import { once } from "node:events";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// Node looks for modules beside this file, and they are installed elsewhere.
const { WebSocket } = createRequire(`${process.env.MODULES}/`)("ws");
const [url, key, ...markets] = process.argv.slice(2);

const open = (path) => new WebSocket(`${url}${path}`, { headers: { "X-API-Key": key } });
const newest = new Map();
let prices = 0;
let seq = null;
const orders = [];
let changed = () => {};
const until = async (holds) => {
  while (!holds()) await new Promise((resolve) => { changed = resolve; });
};

const ofPrices = open("/v1/ws/prices");
ofPrices.on("message", (text) => {
  const frame = JSON.parse(text);
  if (frame.type !== "price") return;
  assert(frame.seq > (newest.get(frame.condition_id) ?? 0), text);
  newest.set(frame.condition_id, frame.seq);
  prices += 1;
  changed();
});
const ofFills = open("/v1/ws/executions");
ofFills.on("message", (text) => {
  const frame = JSON.parse(text);
  if (frame.type === "connected") seq = frame.seq;
  if (frame.type === "fill") {
    seq += 1;
    assert.equal(frame.seq, seq, text);
    orders.push(frame.order_id);
  }
  changed();
});
await once(ofPrices, "open");
assert.equal(ofPrices.extensions, "", "compression is declined");
ofPrices.send(JSON.stringify({ action: "subscribe", markets }));
await until(() => newest.size === markets.length && seq !== null);
console.log("ready");
const [last] = await once(createInterface({ input: process.stdin }), "line");
await until(() => orders.at(-1) === Number(last));
const pong = once(ofPrices, "pong");
ofPrices.ping("are you there");
assert.equal((await pong).toString(), "are you there");
const closes = [];
for (const socket of [ofPrices, ofFills]) {
  const closed = once(socket, "close");
  socket.close(1000);
  closes.push((await closed)[0]);
}
// To exit before a pipe has taken all of it would cut off the rest.
process.stdout.write(`${JSON.stringify({ prices, orders, closes })}\n`, () => process.exit(0));
