// Calls every method of Polymarket's TypeScript clients, `@polymarket/clob-client-v2` and
// `@polymarket/clob-client`, the archived one. The first argument is the package, and the others
// are those that `shared.py` describes; so is the server. `orders.mjs` trades.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

import { KEY, Trader, WALLETS } from "./orders.mjs";

const require = createRequire(`${process.env.MODULES}/`);
const load = (name) => import(require.resolve(name));

const [name, host, known] = process.argv.slice(2);
const library = await load(name);
const { ApiError, AssetType, ClobClient, OrderType, RfqClient, Side } = library;
const { Wallet } = await load("@ethersproject/wallet");
const isOld = name === "@polymarket/clob-client";

const CASH = "1000000000";
const UNLIMITED = (2n ** 256n - 1n).toString();
const UNAUTHORIZED = [401, "Unauthorized/Invalid api key"];
const UNDERIVED = [400, "Could not derive api key!"];
const NO_SUCH_KEYS = [404, "not found: this server has no keys of this kind"];
const DATE = "2026-01-01";
const BUILDER = `0x${"1".repeat(64)}`;
const CHAIN = 137;

const called = new Set();

/** The functions of the package, which are noted when they are looked up. */
const functions = new Proxy(library, {
  get(target, property) {
    called.add(property);
    return target[property];
  },
});
const reader = new Wallet(`0x${(isOld ? "55" : "66").repeat(32)}`);

/** A client that throws on errors, and whose methods are noted when they are looked up. */
function connect({ signer = reader, creds, builderConfig, useServerTime, ...wallet } = {}) {
  const { signatureType, funderAddress } = wallet;
  const options = { host, chain: CHAIN, signer, creds, useServerTime, ...wallet };
  const client = isOld
    ? new ClobClient(
        ...[host, CHAIN, signer, creds, signatureType, funderAddress, undefined, useServerTime],
        ...[builderConfig, undefined, undefined, undefined, true],
      )
    : new ClobClient({ ...options, throwOnError: true });
  const get = (target, property) => {
    const value = target[property];
    if (typeof value !== "function") return value;
    called.add(property);
    // The client's own calls are not noted.
    return value.bind(target);
  };
  return new Proxy(client, { get });
}

async function refused([status, text], call) {
  await assert.rejects(call, (error) => {
    assert.ok(error instanceof ApiError, error);
    assert.deepEqual([error.status, error.message], [status, text]);
    return true;
  });
}

/** All rows of a list. Ends only if the list does. */
async function listed(read) {
  const rows = [];
  for (let cursor = "MA=="; cursor !== "LTE="; ) {
    const page = await read(cursor);
    assert.deepEqual(Object.keys(page), ["data", "next_cursor", "limit", "count"]);
    assert.equal(page.count, page.data.length);
    rows.push(...page.data);
    cursor = page.next_cursor;
  }
  return rows;
}

/** The lists of markets agree with each other, and with what is asked by token. Returns the first
 * market with fees. */
async function checkMarkets(client) {
  const markets = await listed(client.getMarkets);
  const simplified = await listed(client.getSimplifiedMarkets);
  assert.ok(markets.length > 10);
  assert.deepEqual(
    simplified,
    markets.map((it, index) =>
      Object.fromEntries(Object.keys(simplified[index]).map((key) => [key, it[key]])),
    ),
  );
  const isOpen = (it) => it.accepting_orders;
  assert.deepEqual(await listed(client.getSamplingMarkets), markets.filter(isOpen));
  const open = await listed(client.getSamplingSimplifiedMarkets);
  assert.deepEqual(open, simplified.filter(isOpen));
  for (const market of markets) {
    assert.deepEqual(await client.getMarket(market.condition_id), market);
    for (const { token_id: token } of market.tokens) {
      assert.equal(await client.getTickSize(token), String(market.minimum_tick_size));
      assert.equal(await client.getNegRisk(token), market.neg_risk);
      assert.equal(await client.getFeeRateBps(token), market.taker_base_fee);
    }
  }
  return markets.find((market) => market.taker_base_fee > 0);
}

/** The hash of a book is what the client computes, and what is asked about its token is in it. */
async function checkBook(client, book) {
  const { asset_id: token, bids, asks, hash, last_trade_price } = book;
  assert.deepEqual(await client.getOrderBook(token), book);
  assert.equal(await client.getOrderBookHash({ ...book }), hash);
  const [bid, ask] = [bids.at(-1).price, asks.at(-1).price];
  assert.equal(Number(bid), Math.max(...bids.map((level) => level.price)));
  assert.equal(Number(ask), Math.min(...asks.map((level) => level.price)));
  assert.deepEqual(await client.getPrice(token, "BUY"), { price: bid });
  assert.deepEqual(await client.getPrice(token, "SELL"), { price: ask });
  const sides = [Side.BUY, Side.SELL].map((side) => ({ token_id: token, side }));
  assert.deepEqual(await client.getPrices(sides), { [token]: { BUY: bid, SELL: ask } });
  const { mid } = await client.getMidpoint(token);
  const { spread } = await client.getSpread(token);
  assert.ok(Math.abs(Number(mid) * 2 - Number(bid) - Number(ask)) < 1e-9, mid);
  assert.ok(Math.abs(Number(spread) - Number(ask) + Number(bid)) < 1e-9, spread);
  const asked = [{ token_id: token }, { token_id: "1" }];
  assert.deepEqual(await client.getMidpoints(asked), { [token]: mid });
  assert.deepEqual(await client.getSpreads(asked), { [token]: spread });
  // No trade was reported with its side yet.
  const last = await client.getLastTradePrice(token);
  assert.deepEqual(last, { price: last_trade_price, side: "" });
  assert.deepEqual(await client.getLastTradesPrices(asked), []);
  // The best level is large enough for either.
  const price = (side) => client.calculateMarketPrice(token, side, 5, OrderType.FOK);
  assert.deepEqual([await price(Side.BUY), await price(Side.SELL)], [Number(ask), Number(bid)]);
  const points = await client.getPricesHistory({ market: token, interval: "max" });
  assert.equal(points.history.at(-1).p, Number(mid));
}

/** What only one of the clients has. */
async function checkOwn(client, market) {
  const tokens = market.tokens.map((it) => it.token_id);
  if (isOld) {
    client.clearTickSizeCache();
    assert.equal(await client.getTickSize(tokens[0]), String(market.minimum_tick_size));
    await refused(NO_SUCH_KEYS, () => client.validateReadonlyApiKey(reader.address, "key"));
    return;
  }
  assert.equal(await client.getVersion(), 2);
  const info = await client.getClobMarketInfo(market.condition_id);
  assert.deepEqual([info.c, info.mts], [market.condition_id, market.minimum_tick_size]);
  assert.deepEqual([info.mos, info.tbf], [market.minimum_order_size, market.taker_base_fee]);
  assert.deepEqual(info.t.map((it) => it.t), tokens);
  assert.equal(await client.getFeeExponent(tokens[0]), info.fd.e);
}

/** A key of a builder, which is nobody to this server. */
async function checkBuilder() {
  const builderConfig = {
    isValid: () => true,
    generateBuilderHeaders: async () => ({ POLY_BUILDER_API_KEY: "key" }),
  };
  const client = connect({ builderConfig });
  const trades = await client.getBuilderTrades({ builder_code: BUILDER });
  assert.deepEqual(trades, { trades: [], next_cursor: "LTE=", limit: 100, count: 0 });
  if (isOld) await refused(UNAUTHORIZED, () => client.revokeBuilderApiKey());
}

/** Reads what needs no credential. Returns a token. */
async function read() {
  const client = connect();
  assert.equal(await client.getOk(), "OK");
  assert.ok(Math.abs((await client.getServerTime()) - Date.now() / 1000) < 60);
  const market = await checkMarkets(client);
  const tokens = market.tokens.map((it) => it.token_id);
  const books = await client.getOrderBooks(tokens.map((token_id) => ({ token_id })));
  assert.deepEqual(books.map((book) => book.asset_id), tokens);
  for (const book of books) await checkBook(client, book);
  assert.deepEqual(await client.getMarketTradesEvents(market.condition_id), []);
  assert.deepEqual(await client.getRawRewardsForMarket(market.condition_id), []);
  assert.deepEqual(await client.getCurrentRewards(), []);
  await checkOwn(client, market);
  await checkBuilder();
  return tokens[0];
}

async function checkBalances(client, token) {
  const contracts = functions.getContractConfig(CHAIN);
  const { exchange, negRiskExchange, exchangeV2 = exchange } = contracts;
  for (const [params, balance] of [
    [{ asset_type: AssetType.COLLATERAL }, CASH],
    [{ asset_type: AssetType.CONDITIONAL, token_id: token }, "0"],
  ]) {
    const answer = await client.getBalanceAllowance(params);
    assert.equal(answer.balance, balance);
    for (const contract of [exchange, negRiskExchange, exchangeV2]) {
      assert.equal(answer.allowances[contract], UNLIMITED);
    }
    assert.deepEqual(await client.updateBalanceAllowance(params), answer);
  }
}

async function checkScores(client) {
  assert.deepEqual(await client.isOrderScoring({ order_id: "0x1" }), { scoring: false });
  const scores = await client.areOrdersScoring({ orderIds: ["0x1", "it's"] });
  assert.deepEqual(scores, { "0x1": false, "it's": false });
}

/** What a new wallet has. */
async function checkAccount(client, token) {
  assert.deepEqual(await client.getClosedOnlyMode(), { closed_only: false });
  await checkBalances(client, token);
  assert.deepEqual(await client.getOpenOrders({ asset_id: token }), []);
  if (!isOld) assert.deepEqual(await client.getPreMigrationOrders(), []);
  assert.deepEqual(await client.getTrades({ asset_id: token, after: "1" }), []);
  const trades = await client.getTradesPaginated();
  assert.deepEqual(trades, { trades: [], next_cursor: "LTE=", limit: 100, count: 0 });
  assert.deepEqual(await client.getNotifications(), []);
  assert.equal(await client.dropNotifications({ ids: ["1", "2"] }), "OK");
  await checkScores(client);
  assert.deepEqual(await client.getEarningsForUserForDay(DATE), []);
  assert.deepEqual(await client.getTotalEarningsForUserForDay(DATE), []);
  assert.deepEqual(await client.getUserEarningsAndMarketsConfig(DATE), []);
  assert.deepEqual(await client.getRewardPercentages(), {});
  assert.deepEqual(await client.getReadonlyApiKeys(), { readonlyApiKeys: [] });
  await refused(NO_SUCH_KEYS, client.createReadonlyApiKey);
  await refused(NO_SUCH_KEYS, () => client.deleteReadonlyApiKey("key"));
  assert.deepEqual(await client.getBuilderApiKeys(), []);
  await refused(NO_SUCH_KEYS, client.createBuilderApiKey);
  if (!isOld) await refused(NO_SUCH_KEYS, client.revokeBuilderApiKey);
}

/** Clients for each wallet of a signer that trades. */
async function trade(known) {
  const signer = new Wallet(KEY);
  const creds = known?.creds ?? (await connect({ signer }).createOrDeriveApiKey());
  // Versions of orders before the second know no deposit wallets.
  const clients = WALLETS.slice(0, isOld ? 3 : 4).map((funderAddress, signatureType) =>
    connect({ signer, creds, signatureType, funderAddress }),
  );
  const names = { isOld, ApiError, AssetType, OrderType, Side };
  const trader = new Trader(names, host, clients, known);
  if (known) return trader.second(known);
  return { creds, ...(await trader.first()) };
}

async function first() {
  const token = await read();
  const client = connect();
  await refused(UNDERIVED, () => client.deriveApiKey());
  const creds = await client.createApiKey();
  assert.match(creds.key, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  assert.equal(Buffer.from(creds.secret, "base64url").length, 32);
  assert.deepEqual(await client.deriveApiKey(), creds);
  assert.deepEqual(await client.createOrDeriveApiKey(), creds);
  const other = await client.createApiKey(7);
  const signed = connect({ creds });
  assert.deepEqual(await signed.getApiKeys(), { apiKeys: [creds.key, other.key] });
  await checkAccount(signed, token);
  await checkHeaders(creds);
  await checkOrders(signed, creds, token);
  await checkRfq(signed);
  return creds;
}

async function second(creds) {
  // Asks for the server's time before each signature.
  const client = connect({ creds, useServerTime: true });
  assert.deepEqual(await client.deriveApiKey(), creds);
  const { apiKeys } = await client.getApiKeys();
  assert.deepEqual([apiKeys.length, apiKeys[0]], [2, creds.key]);
  await checkScores(client);
  assert.equal(await client.deleteApiKey(), "OK");
  await refused(UNAUTHORIZED, () => client.getApiKeys());
}

/** What signs requests makes the headers that the server takes. */
async function checkHeaders(creds) {
  const seconds = Math.floor(Date.now() / 1000);
  const l1 = await functions.createL1Headers(reader, CHAIN, 7, seconds);
  assert.deepEqual([l1.POLY_ADDRESS, l1.POLY_NONCE], [reader.address, "7"]);
  const derived = await (await fetch(`${host}/auth/derive-api-key`, { headers: l1 })).json();
  assert.equal(derived.apiKey, (await connect().deriveApiKey(7)).key);
  const asked = { method: "GET", requestPath: "/auth/api-keys" };
  const l2 = await functions.createL2Headers(reader, creds, asked, seconds);
  const { apiKeys } = await (await fetch(`${host}/auth/api-keys`, { headers: l2 })).json();
  assert.ok(apiKeys.includes(creds.key));
  const signature = createHmac("sha256", Buffer.from(creds.secret, "base64url"))
    .update(`${seconds}GET/auth/api-keys`)
    .digest("base64");
  assert.equal(l2.POLY_SIGNATURE.replaceAll("-", "+").replaceAll("_", "/"), signature);
  if (!isOld) return;
  const builder = { POLY_BUILDER_API_KEY: "key" };
  assert.deepEqual(functions.injectBuilderHeaders(l2, builder), { ...l2, ...builder });
}

/** What makes orders of the newer client: their bodies, their versions, and amounts with fees. */
async function checkOrders(signed, creds, token) {
  if (isOld) return;
  // A fee of 0.04 × 0.5 × 0.5 a share, of which 200 are bought.
  const adjust = functions.adjustBuyAmountForFees;
  assert.equal(adjust(100, 0.5, 100, 0.04, 1, 0), 98);
  assert.equal(adjust(100, 0.5, 103, 0.04, 1, 0), 100);
  const asked = { tokenID: token, price: 0.5, size: 10, side: Side.BUY };
  const v1 = await signed.createOrder(asked, { version: 1 });
  const v2 = await signed.createOrder(asked);
  assert.deepEqual([functions.isV2Order(v1), functions.isV2Order(v2)], [false, true]);
  for (const [order, toJson] of [
    [v1, functions.orderToJsonV1],
    [v2, functions.orderToJsonV2],
  ]) {
    const body = toJson(order, creds.key, OrderType.GTC, true);
    assert.deepEqual([body.owner, body.orderType, body.postOnly], [creds.key, "GTC", true]);
    assert.equal(body.order.side, "BUY");
    assert.equal(body.order.salt, Number(order.salt));
    for (const field of ["maker", "tokenId", "makerAmount", "takerAmount", "signature"]) {
      assert.equal(body.order[field], order[field]);
    }
  }
}

/** What asks for quotes (RFQ), as far as it needs no argument, is not there. */
async function checkRfq(client) {
  if (!isOld) return;
  const { rfq } = client;
  assert.ok(rfq instanceof RfqClient);
  for (const method of [
    "getRfqRequests",
    "getRfqRequesterQuotes",
    "getRfqQuoterQuotes",
    "getRfqBestQuote",
    "rfqConfig",
  ]) {
    await assert.rejects(rfq[method](), (error) => error.status === 404, method);
  }
}

/** The methods that TypeScript does not let anybody else call, by the package's declarations. */
function hidden() {
  const path = join(process.env.MODULES, "node_modules", name, "dist/client.d.ts");
  const declared = readFileSync(path, "utf8").matchAll(/^ +(?:private|protected) (\w+)[;(<]/gm);
  return [...declared].map(([, method]) => method);
}

/** Fails unless every public method and every function of the package was called. */
function checkCalled() {
  const methods = Object.getOwnPropertyNames(ClobClient.prototype);
  const isFunction = (it) => typeof library[it] === "function" && !/^class\b/.test(library[it]);
  const wanted = [...methods, ...Object.keys(library).filter(isFunction)];
  const leftOut = ["constructor", ...hidden()];
  const isMissing = (method) => !called.has(method) && !leftOut.includes(method);
  assert.deepEqual(wanted.filter(isMissing), [], "not called");
  assert.deepEqual(leftOut.filter((method) => called.has(method)), [], "called");
}

if (known === undefined) {
  const [creds, traded] = [await first(), await trade()];
  console.log(JSON.stringify({ creds, traded, called: [...called] }));
} else {
  const { creds, traded, called: before } = JSON.parse(known);
  for (const method of before) called.add(method);
  await second(creds);
  await trade(traded);
  checkCalled();
  console.log(called.size);
}
