// Trades with Polymarket's TypeScript clients, value by value, as `orders.py` does with those for
// Python. `with_clob_client.mjs` runs both halves.

import assert from "node:assert/strict";
import diagnostics from "node:diagnostics_channel";
import { readFileSync } from "node:fs";

const wallets = JSON.parse(readFileSync(new URL("wallets.json", import.meta.url)));

/** The key of a signer, and its wallets by signature type. */
export const { key: KEY, wallets: WALLETS } = wallets;

// By how many seconds GTD orders expire in the future.
const EXPIRES_SECONDS = 600;

const POOR = "not enough balance / allowance: the balance is not enough -> balance: ";
const FOK_KILLED = "order couldn't be fully filled. FOK orders are fully filled or killed.";
const NO_MATCH =
  "no orders found to match with FAK order. FAK orders are partially filled or killed if no " +
  "match is found.";
const CROSSES = "invalid post-only order: order crosses book";
const ENDED = "order can't be found - already canceled or matched";

const micros = (number) => Math.round(Number(number) * 1e6);
const soon = (seconds) => Math.floor(Date.now() / 1000) + seconds;

/** The paths of requests so far. */
const requested = [];
diagnostics.subscribe("http.client.request.start", ({ request }) => requested.push(request.path));

/** An outcome of a market without fees, and one of a neg-risk market with fees. */
async function outcomes(host) {
  const read = async (path) => (await fetch(host + path)).json();
  const { data: markets } = await read("/sampling-markets");
  const find = async (hasFee) => {
    const market = markets.find(
      (it) =>
        it.minimum_tick_size === 0.01 && it.neg_risk === hasFee && it.taker_base_fee > 0 === hasFee,
    );
    const { condition_id: condition, tokens } = market;
    const [{ token_id: token }] = tokens;
    const { bids, asks } = await read(`/book?token_id=${token}`);
    const { fd = { r: 0, e: 1 } } = await read(`/clob-markets/${condition}`);
    assert.equal(fd.e, 1);
    const [bid, ask] = [Number(bids.at(-1).price), Number(asks.at(-1).price)];
    return { condition, token, bid, ask, feeRate: fd.r };
  };
  return [await find(false), await find(true)];
}

/** Shares × rate × p × (1 - p), rounded to five decimals, half to even, in millionths. */
function fee({ feeRate }, sharesMicros, price) {
  const cents = BigInt(Math.round(price * 100));
  const product = BigInt(sharesMicros) * BigInt(micros(feeRate)) * cents * (100n - cents);
  const unit = 10n ** 11n;
  const [steps, rest] = [product / unit, product % unit];
  const isUp = 2n * rest > unit || (2n * rest === unit && steps % 2n === 1n);
  return Number((isUp ? steps + 1n : steps) * 10n);
}

/** Trades with the clients of each of a signer's wallets. `money` is what the account should have:
 * dollars, and shares by token, in millionths. */
export class Trader {
  constructor({ isOld, ApiError, AssetType, OrderType, Side }, host, clients, known) {
    Object.assign(this, { isOld, ApiError, AssetType, OrderType, Side, host, clients });
    this.client = clients[0];
    this.money = known?.money ?? { cash: 1e9, shares: {} };
    this.hasHashes = known !== undefined;
  }

  async check() {
    const { AssetType, client, money } = this;
    const cash = await client.getBalanceAllowance({ asset_type: AssetType.COLLATERAL });
    assert.equal(cash.balance, String(money.cash));
    for (const [token_id, shares] of Object.entries(money.shares)) {
      const params = { asset_type: AssetType.CONDITIONAL, token_id };
      assert.equal((await client.getBalanceAllowance(params)).balance, String(shares));
    }
  }

  refused(text, call) {
    return assert.rejects(call, (error) => {
      assert.ok(error instanceof this.ApiError && error.message.includes(text), error);
      assert.equal(error.status, 400);
      return true;
    });
  }

  post(client, order, orderType, postOnly = false) {
    if (this.isOld) return client.postOrder(order, orderType, false, postOnly);
    return client.postOrder(order, orderType, postOnly);
  }

  /** Posts an order that matches, which gives and takes these amounts. Returns its answer. */
  async checkMatched(post, outcome, side, orderType, amounts) {
    const { client, money, hasHashes } = this;
    const before = requested.length;
    const answer = await post();
    const polls = requested.slice(before).filter((path) => path.startsWith("/data/trades"));
    const isResolved = hasHashes || !this.isOld;
    assert.equal(polls.length, isResolved && !hasHashes ? 1 : 0);
    assert.deepEqual([answer.success, answer.status], [true, "matched"]);
    assert.deepEqual([answer.makingAmount, answer.takingAmount].map(micros), amounts);
    const [dollars, shares] = side === "BUY" ? amounts : amounts.toReversed();
    const price = side === "BUY" ? outcome.ask : outcome.bid;
    assert.equal(dollars, Math.round(shares * price));
    const sign = side === "BUY" ? 1 : -1;
    money.cash -= sign * dollars + fee(outcome, shares, price);
    money.shares[outcome.token] = (money.shares[outcome.token] ?? 0) + sign * shares;
    await this.check();
    const [trade, ...others] = await client.getTrades({ id: answer.tradeIDs[0] });
    assert.deepEqual(others, []);
    const hashes = isResolved ? [trade.transaction_hash] : undefined;
    assert.deepEqual(answer.transactionsHashes, hashes);
    assert.deepEqual([trade.taker_order_id, trade.side], [answer.orderID, side]);
    assert.deepEqual([trade.asset_id, trade.market], [outcome.token, outcome.condition]);
    assert.deepEqual([micros(trade.size), Number(trade.price)], [shares, price]);
    assert.deepEqual([trade.status, trade.trader_side], ["CONFIRMED", "TAKER"]);
    const row = await client.getOrder(answer.orderID);
    const fields = [row.status, row.order_type, micros(row.size_matched)];
    assert.deepEqual(fields, ["MATCHED", orderType, shares]);
    return answer;
  }

  /** Buys and sells, once with each kind of wallet. Returns the orders with their answers. */
  async match(outcome) {
    const taken = [];
    const bought = Math.floor((20 / outcome.ask) * 1e4) * 100;
    for (const [kind, client] of this.clients.entries()) {
      const orderType = [this.OrderType.FOK, this.OrderType.FAK][kind % 2];
      for (const [side, amount, amounts] of [
        [this.Side.BUY, 20, [Math.round(bought * outcome.ask), bought]],
        [this.Side.SELL, 12.34, [12_340_000, Math.round(12_340_000 * outcome.bid)]],
      ]) {
        const asked = { tokenID: outcome.token, side, amount, orderType };
        // The newer client also signs orders of the first version, which know no deposit wallets.
        const options = kind === 1 && !this.isOld ? { version: 1 } : undefined;
        const order = await client.createMarketOrder(asked, options);
        assert.deepEqual([order.signatureType, order.maker], [kind, WALLETS[kind]]);
        const isV1 = this.isOld || kind === 1;
        assert.equal("nonce" in order, isV1);
        const post = () => this.post(client, order, orderType);
        const answer = await this.checkMatched(post, outcome, side, orderType, amounts);
        taken.push({ order, orderType, answer });
        const again = () => client.createAndPostMarketOrder(asked, options, orderType);
        await this.checkMatched(again, outcome, side, orderType, amounts);
      }
    }
    return taken;
  }

  limit(outcome, price, size, expiration) {
    const order = { tokenID: outcome.token, price, size, side: this.Side.BUY, expiration };
    return this.client.createOrder(order);
  }

  /** Places orders that rest, and one that takes. Returns them with their answers. */
  async rest(outcome) {
    const { client, OrderType } = this;
    const placed = [];
    for (const [orderType, expiration, postOnly] of [
      [OrderType.GTC, undefined, false],
      [OrderType.GTD, soon(EXPIRES_SECONDS), false],
      [OrderType.GTC, undefined, true],
    ]) {
      const order = await this.limit(outcome, outcome.bid, 10, expiration);
      const answer = await this.post(client, order, orderType, postOnly);
      const { success, status, makingAmount, takingAmount } = answer;
      assert.deepEqual([success, status, makingAmount, takingAmount], [true, "live", "", ""]);
      const row = await client.getOrder(answer.orderID);
      const rows = await client.getOpenOrders({ asset_id: outcome.token });
      assert.deepEqual(rows.filter((it) => it.id === row.id), [row]);
      const numbers = [row.original_size, row.size_matched, row.price].map(Number);
      assert.deepEqual(numbers, [10, 0, outcome.bid]);
      const fields = [row.status, row.side, row.order_type, row.expiration];
      assert.deepEqual(fields, ["LIVE", "BUY", orderType, String(expiration ?? 0)]);
      placed.push({ order, orderType, answer });
    }
    const order = await this.limit(outcome, outcome.ask, 10);
    const amounts = [Math.round(1e7 * outcome.ask), 1e7];
    const post = () => this.post(client, order, OrderType.GTC);
    const answer = await this.checkMatched(post, outcome, "BUY", OrderType.GTC, amounts);
    return [...placed, { order, orderType: OrderType.GTC, answer }];
  }

  /** An order that is sent again, in a list or as another type, gets its first answer, in which
   * only the client or the server may have added transactions. */
  async repeat(placed) {
    const shown = ({ transactionsHashes, ...answer }) => answer;
    for (const { order, orderType, answer } of placed) {
      for (const sentAs of [orderType, this.OrderType.GTC]) {
        const again = await this.post(this.client, order, sentAs);
        assert.deepEqual(shown(again), shown(answer));
      }
    }
    for (let first = 0; first < placed.length; first += 15) {
      const some = placed.slice(first, first + 15);
      const again = await this.client.postOrders(some);
      assert.deepEqual(again.map(shown), some.map(({ answer }) => shown(answer)));
    }
  }

  /** Orders that the venue refuses, in its words. */
  async refuse(outcome) {
    const { client, OrderType, Side } = this;
    const market = (side, amount, orderType, price) =>
      client.createMarketOrder({ tokenID: outcome.token, side, amount, orderType, price });
    const below = Number((outcome.bid - 0.01).toFixed(2));
    const sale = await market(Side.SELL, 900_000, OrderType.FAK, outcome.bid);
    for (const [text, order, orderType, postOnly] of [
      [POOR, await this.limit(outcome, outcome.bid, 1e5), OrderType.GTC],
      [POOR, sale, OrderType.FAK],
      ["lower than the minimum: 5", await this.limit(outcome, outcome.bid, 2), OrderType.GTC],
      ["min size: $1", await market(Side.BUY, 0.5, OrderType.FOK), OrderType.FOK],
      [FOK_KILLED, await market(Side.BUY, 20, OrderType.FOK, below), OrderType.FOK],
      [NO_MATCH, await market(Side.BUY, 20, OrderType.FAK, below), OrderType.FAK],
      [CROSSES, await this.limit(outcome, outcome.ask, 10), OrderType.GTC, true],
      ["invalid expiration", await this.limit(outcome, 0.1, 10, soon(170)), OrderType.GTD],
    ]) {
      await this.refused(text, () => this.post(client, order, orderType, postOnly));
    }
    const order = await this.limit(outcome, outcome.bid, 2);
    const [answer] = await client.postOrders([{ order, orderType: OrderType.GTC }]);
    assert.deepEqual([answer.success, answer.orderID], [false, ""]);
    assert.ok(answer.errorMsg.endsWith("Size (2) lower than the minimum: 5"), answer.errorMsg);
    if (this.isOld) return;
    // No market here is settled by that contract.
    const amounts = { makerAmount: "4000000", takerAmount: "10000000" };
    const asked = { tokenID: outcome.token, side: Side.BUY, ...amounts };
    const foreign = await client.createExchangeV3OrderFromAmounts(asked);
    await this.refused("invalid signature", () => this.post(client, foreign, "GTC"));
  }

  /** Cancels one order, a list, those of an outcome, those of a market, and all. */
  async cancel(ids, standard, negRisk) {
    const { client } = this;
    const done = (canceled) => ({ canceled, not_canceled: {} });
    assert.deepEqual(await client.cancelOrder({ orderID: ids[0] }), done([ids[0]]));
    assert.equal((await client.getOrder(ids[0])).status, "CANCELED");
    const failed = { [ids[0]]: ENDED };
    const again = await client.cancelOrder({ orderID: ids[0] });
    assert.deepEqual(again, { canceled: [], not_canceled: failed });
    const { canceled, not_canceled } = await client.cancelOrders(ids);
    assert.deepEqual([canceled.toSorted(), not_canceled], [ids.slice(1).toSorted(), failed]);
    const place = async (outcome) => {
      const asked = { tokenID: outcome.token, price: outcome.bid, size: 10, side: this.Side.BUY };
      return (await client.createAndPostOrder(asked)).orderID;
    };
    const placed = [];
    for (const outcome of [standard, negRisk, standard, negRisk]) placed.push(await place(outcome));
    const inToken = await client.cancelMarketOrders({ asset_id: standard.token });
    assert.deepEqual(inToken, done([placed[0], placed[2]]));
    const inMarket = await client.cancelMarketOrders({ market: negRisk.condition });
    assert.deepEqual(inMarket, done([placed[1], placed[3]]));
    const rest = [await place(standard), await place(negRisk)];
    assert.deepEqual(await client.cancelAll(), done(rest));
    assert.deepEqual(await client.cancelAll(), done([]));
    assert.deepEqual(await client.getOpenOrders(), []);
  }

  async first() {
    const placed = [];
    for (const outcome of await outcomes(this.host)) {
      placed.push(...(await this.match(outcome)), ...(await this.rest(outcome)));
      await this.refuse(outcome);
    }
    await this.repeat(placed);
    await this.check();
    const [rows, trades] = [await this.client.getOpenOrders(), await this.client.getTrades()];
    return { placed, rows, trades, money: this.money };
  }

  /** What was there before the server was killed is there after it. */
  async second({ placed, rows, trades }) {
    const { client } = this;
    await this.check();
    assert.deepEqual(await client.getOpenOrders(), rows);
    assert.deepEqual(await client.getTrades(), trades);
    await this.repeat(placed);
    await this.check();
    const [standard, negRisk] = await outcomes(this.host);
    await this.match(standard);
    await this.cancel(rows.map((row) => row.id), standard, negRisk);
    await this.check();
    const beat = (await client.postHeartbeat()).heartbeat_id;
    assert.notEqual((await client.postHeartbeat(beat)).heartbeat_id, beat);
    await this.refused("Invalid Heartbeat ID", () => client.postHeartbeat("x"));
  }
}
