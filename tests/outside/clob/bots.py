"""Bots of one of Polymarket's Python clients: each reads books, places orders, cancels some, and
keeps account of its trades.

`bots.py PACKAGE HOST FIRST COUNT SECONDS` runs bots for so long, says `half` and `done`, and waits
for a line, before which the server's trouble ends and all markets are resolved. Each bot then
settles: its cash has to be what its own trades and payouts say. Prints what came of it, as JSON.
"""

import collections
import dataclasses
import json
import logging
import random
import sys
import threading
import time
import urllib.request
from decimal import ROUND_HALF_EVEN, Decimal

CASH = Decimal(1000)
PAUSE_SECONDS = 0.25
MICRO, FEE_STEP = Decimal("0.000001"), Decimal("0.00001")


def read(host, path):
    with urllib.request.urlopen(host + path) as answer:
        return json.load(answer, parse_float=Decimal)


class OldClient:
    """py-clob-client-v2 in the words of a bot."""

    def __init__(self, host, key):
        from py_clob_client_v2 import ClobClient, clob_types

        self.types = clob_types
        self.client = ClobClient(host, 137, key, retry_on_error=True)
        self.client.set_api_creds(self.client.create_or_derive_api_key())
        self.address = self.client.get_address()

    def book(self, token):
        book = self.client.get_order_book(token)
        return [Decimal(book[it][-1]["price"]) if book[it] else None for it in ("bids", "asks")]

    def take(self, token, side, amount):
        order = self.types.MarketOrderArgs(token, amount, side, order_type="FAK")
        self.client.create_and_post_market_order(order, order_type="FAK")

    def rest(self, token, price, shares):
        order = self.types.OrderArgs(token, float(price), shares, "BUY")
        self.client.create_and_post_order(order)

    def open_orders(self):
        return [row["id"] for row in self.client.get_open_orders()]

    def cancel(self, order_id):
        self.client.cancel_order(self.types.OrderPayload(orderID=order_id))

    def cancel_all(self):
        self.client.cancel_all()

    def balance(self, token=None):
        asset_type = "CONDITIONAL" if token else "COLLATERAL"
        params = self.types.BalanceAllowanceParams(asset_type=asset_type, token_id=token)
        return Decimal(self.client.get_balance_allowance(params)["balance"]) * MICRO

    def trades(self, after):
        return self.client.get_trades(self.types.TradeParams(after=after))


class UnifiedClient:
    """polymarket-client in the words of a bot."""

    def __init__(self, host, key):
        from eth_account import Account
        from polymarket import SecureClient
        from polymarket._internal.environment import PRODUCTION_CONFIG, create_environment

        config = dataclasses.replace(PRODUCTION_CONFIG, clob_url=host, data_url=host)
        environment = create_environment(name="paper", config=config)
        self.address = Account.from_key(key).address
        self.client = SecureClient._create(
            private_key=key, wallet=self.address, environment=environment
        )

    def book(self, token):
        book = self.client.get_order_book(asset_id=token)
        return [side[-1].price if side else None for side in (book.bids, book.asks)]

    def take(self, token, side, amount):
        size = {"amount": amount} if side == "BUY" else {"shares": amount}
        order = {"asset_id": token, "side": side, "order_type": "FAK", **size}
        answer = self.client.place_market_order(**order)
        if not answer.ok:
            raise Refused(answer.message)

    def rest(self, token, price, shares):
        order = {"asset_id": token, "price": price, "size": shares, "side": "BUY"}
        answer = self.client.place_limit_order(**order)
        if not answer.ok:
            raise Refused(answer.message)

    def open_orders(self):
        return [row.id for row in self.client.list_open_orders().iter_items()]

    def cancel(self, order_id):
        self.client.cancel_order(order_id=order_id)

    def cancel_all(self):
        self.client.cancel_all()

    def balance(self, token=None):
        asset_type = "CONDITIONAL" if token else "COLLATERAL"
        answer = self.client.get_balance_allowance(asset_type=asset_type, asset_id=token)
        return answer.balance * MICRO

    def trades(self, after):
        rows = self.client.list_account_trades(after=str(after)).iter_items()
        return [
            {
                "id": row.id,
                "asset_id": row.asset_id,
                "market": row.condition_id,
                "side": row.side,
                "size": row.size,
                "price": row.price,
                "trader_side": row.trader_side,
                "maker_orders": [
                    {
                        "matched_amount": it.matched_amount,
                        "price": it.price,
                        "asset_id": it.asset_id,
                        "side": it.side,
                    }
                    for it in row.maker_orders
                ],
            }
            for row in rows
        ]


class Refused(Exception):
    """An order that the unified client returns as refused."""


def named(error):
    """An exception by its class, its status and the text of the server, without numbers."""
    status = getattr(error, "status_code", getattr(error, "status", None))
    text = getattr(error, "error_msg", None)
    text = text.get("error", text) if isinstance(text, dict) else text or str(error)
    text = "".join("#" if it.isdigit() else it for it in str(text))[:90]
    return f"{type(error).__name__} {status or '-'} {text}"


class Bot:
    def __init__(self, kind, host, number):
        self.host, self.draw = host, random.Random(number)
        self.client = kind(host, "0x" + f"{number:02x}" * 32)
        self.turns, self.raised = 0, collections.Counter()
        self.tokens, self.trades, self.after = [], {}, int(time.time()) - 1

    def run(self, end):
        while time.monotonic() < end:
            try:
                self.turn()
            except Exception as error:
                self.raised[named(error)] += 1
            self.turns += 1
            time.sleep(PAUSE_SECONDS)

    def turn(self):
        """Does one thing at the market of two that ends next, or the one after it."""
        if self.turns % 4 == 0:
            markets = read(self.host, "/sampling-markets")["data"]
            markets.sort(key=lambda market: market["end_date_iso"])
            self.tokens = [it["token_id"] for market in markets[:2] for it in market["tokens"]]
        if not self.tokens:
            return
        token = self.draw.choice(self.tokens)
        bid, ask = self.client.book(token)
        if bid is None or ask is None:
            return
        act = self.draw.random()
        if act < 0.4:
            self.client.take(token, "BUY", self.draw.randint(2, 6))
        elif act < 0.55:
            shares = int(self.client.balance(token))
            if shares > 0:
                self.client.take(token, "SELL", min(shares, 8))
        elif act < 0.75:
            price = bid - Decimal("0.01") * self.draw.randint(0, 2)
            self.client.rest(token, max(price, Decimal("0.01")), 5)
        elif act < 0.85:
            for order in self.client.open_orders()[:1]:
                self.client.cancel(order)
        elif act < 0.88:
            self.client.cancel_all()
        else:
            self.reconcile()

    def reconcile(self):
        """Reads the trades since a moment before the last time."""
        now = int(time.time()) - 5
        for trade in self.client.trades(self.after):
            self.trades[trade["id"]] = trade
        self.after = now

    def settle(self):
        """Returns what is wrong in the books of this bot."""
        self.client.cancel_all()
        self.reconcile()
        assert self.client.open_orders() == []
        held = collections.Counter()
        markets = {}
        cash = CASH
        for trade in self.trades.values():
            cash += self.change(trade, held, markets)
        wrong, paid = [], collections.defaultdict(list)
        for row in self.payouts():
            paid[row["conditionId"]].append((row["size"], row["usdcSize"]))
        resolved = 0
        for condition, market in markets.items():
            if any(it["winner"] for it in market["tokens"]):
                owned = [(held[it["token_id"]], it["winner"]) for it in market["tokens"]]
                due = sorted((shares, shares * wins) for shares, wins in owned if shares)
                came = sorted(paid.pop(condition, []))
                if came != due:
                    wrong.append(f"{condition}: {due} due, paid {came}")
                cash += sum(dollars for _, dollars in due)
                resolved += len(due)
            else:
                wrong.append(f"{condition} is not resolved")
        wrong += [f"{condition}: {rows} not due" for condition, rows in paid.items()]
        if self.client.balance() != cash:
            wrong.append(f"cash: {self.client.balance()}, not {cash}")
        return {"trades": len(self.trades), "resolved": resolved, "wrong": wrong}

    def change(self, trade, held, markets):
        """By how much a trade has changed the cash."""
        condition = trade["market"]
        if condition not in markets:
            market = read(self.host, f"/markets/{condition}")
            market["rate"] = read(self.host, f"/clob-markets/{condition}").get("fd", {"r": 0})["r"]
            markets[condition] = market
        is_taker = trade["trader_side"] == "TAKER"
        parts = [(trade["size"], trade["price"], trade["asset_id"], trade["side"])]
        if not is_taker:
            names = ("matched_amount", "price", "asset_id", "side")
            parts = [tuple(it[name] for name in names) for it in trade["maker_orders"]]
        cash = Decimal(0)
        for shares, price, token, side in parts:
            shares, price = Decimal(shares), Decimal(price)
            sign = 1 if side == "BUY" else -1
            rate = markets[condition]["rate"] if is_taker else 0
            fee = (shares * rate * price * (1 - price)).quantize(FEE_STEP, ROUND_HALF_EVEN)
            held[token] += sign * shares
            cash -= sign * shares * price + fee
        return cash

    def payouts(self):
        """All payouts in the activity, read a page at a time."""
        rows, count = [], 500
        while count == 500:
            path = f"/activity?user={self.client.address}&type=REDEEM&limit=500&offset={len(rows)}"
            page = read(self.host, path)
            rows, count = rows + page, len(page)
        return rows


logging.disable()
KINDS = {"py-clob-client-v2": OldClient, "polymarket-client": UnifiedClient}
package, host, first, count, seconds = sys.argv[1:]
bots = [Bot(KINDS[package], host, int(first) + it) for it in range(int(count))]
print("ready", flush=True)
end = time.monotonic() + float(seconds)
threads = [threading.Thread(target=bot.run, args=[end]) for bot in bots]
for thread in threads:
    thread.start()
time.sleep(float(seconds) / 2)
print("half", flush=True)
for thread in threads:
    thread.join()
print("done", flush=True)
sys.stdin.readline()
settled = [bot.settle() for bot in bots]
print(
    json.dumps({
        "turns": sum(bot.turns for bot in bots),
        "trades": sum(it["trades"] for it in settled),
        "resolved": sum(it["resolved"] for it in settled),
        "wrong": [text for it in settled for text in it["wrong"]],
        "raised": sum((bot.raised for bot in bots), collections.Counter()),
    })
)
