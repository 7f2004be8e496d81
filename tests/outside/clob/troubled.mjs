// Polymarket's newer TypeScript client, which makes calls while the server has trouble, as
// `troubled.py` describes.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

import { KEY } from "./orders.mjs";

const require = createRequire(`${process.env.MODULES}/`);
const load = (name) => import(require.resolve(name));
const { ClobClient, OrderType, Side } = await load("@polymarket/clob-client-v2");
const { Wallet } = await load("@ethersproject/wallet");

const [host] = process.argv.slice(2);
// What the client logs of failed requests is no answer.
console.error = () => {};

const connection = { host, chain: 137, signer: new Wallet(KEY) };
const creds = await new ClobClient(connection).createOrDeriveApiKey();
const { data: markets } = await new ClobClient(connection).getSamplingMarkets();
const market = markets.find((it) => it.minimum_tick_size === 0.01);
const order = { tokenID: market.tokens[0].token_id, price: 0.01, size: 5, side: Side.BUY };

const taking = { tokenID: order.tokenID, price: 0.99, amount: 2, side: Side.BUY };

async function create(options) {
  const client = new ClobClient({ ...connection, creds, ...options });
  await client.createOrder(order);
  return client;
}

const client = await create({ throwOnError: true });
const retrying = await create({ throwOnError: true, retryOnError: true });
const timed = await create({ throwOnError: true, useServerTime: true });
// Returns errors, as the client does unless it is told otherwise.
const quiet = await create({});

const place = async (client) => (await client.createAndPostOrder(order)).status;
const orders = async (client) => `${(await client.getOpenOrders()).length} orders`;
const calls = {
  take: async () => {
    const answer = await client.createAndPostMarketOrder(taking, undefined, OrderType.FAK);
    const hashes = answer.transactionsHashes ?? [];
    return hashes.length > 0 ? `${answer.status} in ${hashes.length}` : answer.status;
  },
  place: () => place(client),
  "place retrying": () => place(retrying),
  "place quietly": async () => {
    const { status, error } = await quiet.createAndPostOrder(order);
    return error === undefined ? status : `returned ${status ?? "error"}`;
  },
  orders: () => orders(client),
  "orders by server time": () => orders(timed),
  cancel: async () => (await client.cancelAll()) && "done",
  time: async () => {
    const ahead = (await client.getServerTime()) - Date.now() / 1000;
    return `${Math.round(ahead / 10) * 10} s ahead`;
  },
};

await calls.place();
await calls.take();
await calls.cancel();
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const began = performance.now();
  let outcome;
  try {
    outcome = await calls[line]();
  } catch (error) {
    outcome = [error.name, error.status].filter(Boolean).join(" ");
  }
  console.log(JSON.stringify({ outcome, seconds: (performance.now() - began) / 1000 }));
}
