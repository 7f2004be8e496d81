// Bots of Polymarket's newer TypeScript client, as `bots.py` describes:
// `bots.mjs HOST FIRST COUNT SECONDS`. Money is counted in millionths.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.MODULES}/`);
const load = (name) => import(require.resolve(name));
const { AssetType, ClobClient, OrderType, Side } = await load("@polymarket/clob-client-v2");
const { Wallet } = await load("@ethersproject/wallet");

const [host, first, count, seconds] = process.argv.slice(2);
const CASH = 1_000_000_000n;
const PAUSE_MS = 250;
// What the client logs of failed requests is no answer.
console.error = () => {};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const micros = (number) => BigInt(Math.round(Number(number) * 1e6));
const read = async (path) => (await fetch(host + path)).json();

/** Numbers below 1 that depend on the seed alone. */
function* numbers(seed) {
  for (let state = seed; ; ) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    yield state / 2 ** 32;
  }
}

/** Shares × rate × p × (1 - p), rounded to five decimals, half to even. */
function fee(shares, rate, price) {
  const product = shares * micros(rate) * price * (1_000_000n - price);
  const unit = 10n ** 19n;
  const [steps, rest] = [product / unit, product % unit];
  const isUp = 2n * rest > unit || (2n * rest === unit && steps % 2n === 1n);
  return (isUp ? steps + 1n : steps) * 10n;
}

/** An exception by its class, its status and its text, without numbers. */
function named(error) {
  const text = String(error.message).replaceAll(/\d/g, "#").slice(0, 90);
  return `${error.name} ${error.status ?? "-"} ${text}`;
}

class Bot {
  constructor(number) {
    this.draws = numbers(number);
    this.signer = new Wallet(`0x${number.toString(16).padStart(2, "0").repeat(32)}`);
    Object.assign(this, { turns: 0, tokens: [], raised: {}, trades: new Map() });
    this.after = Math.floor(Date.now() / 1000) - 1;
  }

  draw() {
    return this.draws.next().value;
  }

  async start() {
    const options = { host, chain: 137, signer: this.signer };
    const creds = await new ClobClient(options).createOrDeriveApiKey();
    this.client = new ClobClient({ ...options, creds, throwOnError: true, retryOnError: true });
  }

  async run(end) {
    while (performance.now() < end) {
      try {
        await this.turn();
      } catch (error) {
        const name = named(error);
        this.raised[name] = (this.raised[name] ?? 0) + 1;
      }
      this.turns += 1;
      await pause(PAUSE_MS);
    }
  }

  /** Does one thing at the market of two that ends next, or the one after it. */
  async turn() {
    const { client } = this;
    if (this.turns % 4 === 0) {
      const { data } = await client.getSamplingMarkets();
      const soonest = data.toSorted((one, two) =>
        one.end_date_iso.localeCompare(two.end_date_iso),
      );
      this.tokens = soonest.slice(0, 2).flatMap((it) => it.tokens.map((token) => token.token_id));
    }
    if (this.tokens.length === 0) return;
    const tokenID = this.tokens[Math.floor(this.draw() * this.tokens.length)];
    const { bids, asks } = await client.getOrderBook(tokenID);
    if (bids.length === 0 || asks.length === 0) return;
    const act = this.draw();
    const take = (side, amount) =>
      client.createAndPostMarketOrder({ tokenID, side, amount }, undefined, OrderType.FAK);
    if (act < 0.4) {
      await take(Side.BUY, 2 + Math.floor(this.draw() * 5));
    } else if (act < 0.55) {
      const shares = Math.floor(Number(await this.balance(tokenID)) / 1e6);
      if (shares > 0) await take(Side.SELL, Math.min(shares, 8));
    } else if (act < 0.75) {
      const ticks = Math.round(Number(bids.at(-1).price) * 100) - Math.floor(this.draw() * 3);
      const price = Math.max(ticks, 1) / 100;
      await client.createAndPostOrder({ tokenID, price, size: 5, side: Side.BUY });
    } else if (act < 0.85) {
      const [order] = await client.getOpenOrders();
      if (order !== undefined) await client.cancelOrder({ orderID: order.id });
    } else if (act < 0.88) {
      await client.cancelAll();
    } else {
      await this.reconcile();
    }
  }

  async balance(token_id) {
    const asset_type = token_id === undefined ? AssetType.COLLATERAL : AssetType.CONDITIONAL;
    return BigInt((await this.client.getBalanceAllowance({ asset_type, token_id })).balance);
  }

  /** Reads the trades since a moment before the last time. */
  async reconcile() {
    const now = Math.floor(Date.now() / 1000) - 5;
    for (const trade of await this.client.getTrades({ after: String(this.after) })) {
      this.trades.set(trade.id, trade);
    }
    this.after = now;
  }

  /** What is wrong in the books of this bot. */
  async settle() {
    await this.client.cancelAll();
    await this.reconcile();
    const [held, markets, wrong] = [new Map(), new Map(), []];
    let cash = CASH;
    for (const trade of this.trades.values()) cash += await this.change(trade, held, markets);
    const paid = await this.payouts();
    let resolved = 0;
    for (const [condition, { tokens }] of markets) {
      const shares = (token) => held.get(token.token_id) ?? 0n;
      if (tokens.some((token) => token.winner)) {
        const owned = tokens.filter((token) => shares(token) > 0n);
        const due = owned.map((token) => [shares(token), token.winner ? shares(token) : 0n]);
        const came = paid.get(condition) ?? [];
        paid.delete(condition);
        if (String(came.toSorted()) !== String(due.toSorted())) {
          wrong.push(`${condition}: ${due} due, paid ${came}`);
        }
        for (const [, dollars] of due) cash += dollars;
        resolved += due.length;
      } else {
        wrong.push(`${condition} is not resolved`);
      }
    }
    for (const [condition, rows] of paid) wrong.push(`${condition}: ${rows} not due`);
    const balance = await this.balance();
    if (balance !== cash) wrong.push(`cash: ${balance}, not ${cash}`);
    return { trades: this.trades.size, resolved, wrong };
  }

  /** By how much a trade has changed the cash. */
  async change(trade, held, markets) {
    if (!markets.has(trade.market)) {
      const market = await read(`/markets/${trade.market}`);
      const { fd } = await read(`/clob-markets/${trade.market}`);
      markets.set(trade.market, { ...market, rate: fd?.r ?? 0 });
    }
    const isTaker = trade.trader_side === "TAKER";
    const parts = isTaker ? [{ ...trade, matched_amount: trade.size }] : trade.maker_orders;
    let cash = 0n;
    for (const { matched_amount, price, asset_id, side } of parts) {
      const [shares, at] = [micros(matched_amount), micros(price)];
      const sign = side === "BUY" ? 1n : -1n;
      held.set(asset_id, (held.get(asset_id) ?? 0n) + sign * shares);
      const rate = isTaker ? markets.get(trade.market).rate : 0;
      cash -= (sign * shares * at) / 1_000_000n + fee(shares, rate, at);
    }
    return cash;
  }

  /** All payouts in the activity by market, read a page at a time. */
  async payouts() {
    const [paid, size] = [new Map(), 500];
    for (let offset = 0; ; offset += size) {
      const user = `user=${this.signer.address}&type=REDEEM`;
      const rows = await read(`/activity?${user}&limit=${size}&offset=${offset}`);
      for (const row of rows) {
        const amounts = [micros(row.size), micros(row.usdcSize)];
        paid.set(row.conditionId, [...(paid.get(row.conditionId) ?? []), amounts]);
      }
      if (rows.length < size) return paid;
    }
  }
}

const bots = Array.from({ length: Number(count) }, (_, index) => new Bot(Number(first) + index));
for (const bot of bots) await bot.start();
console.log("ready");
const end = performance.now() + Number(seconds) * 1000;
const half = pause(Number(seconds) * 500).then(() => console.log("half"));
await Promise.all([half, ...bots.map((bot) => bot.run(end))]);
console.log("done");
for await (const _ of createInterface({ input: process.stdin })) break;
const settled = [];
for (const bot of bots) settled.push(await bot.settle());
const sum = (counts) => counts.reduce((total, count) => total + count, 0);
const raised = {};
for (const [name, count] of bots.flatMap((bot) => Object.entries(bot.raised))) {
  raised[name] = (raised[name] ?? 0) + count;
}
const counts = {
  turns: sum(bots.map((bot) => bot.turns)),
  trades: sum(settled.map((it) => it.trades)),
  resolved: sum(settled.map((it) => it.resolved)),
  wrong: settled.flatMap((it) => it.wrong),
  raised,
};
console.log(JSON.stringify(counts));
process.exit(0);
