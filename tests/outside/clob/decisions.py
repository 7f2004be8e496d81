"""Takes the same decisions twice: with Polymarket's Python client, py-clob-client-v2, on the first
server, and with this server's own interface on the second. Both have the same books, which stand
still. Each decision must do the same to the micro-dollar, and so must all together.

The client rounds in binary floating point before it signs, so what the second server gets is
computed from the amounts that were signed: 0.58 may be signed as 0.57.

`decisions.py HOST OTHER_HOST TOKEN`, where the token opens an account on the second server.
"""

import http.client
import json
import random
import sys
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction

from py_clob_client_v2 import ClobClient
from py_clob_client_v2.clob_types import (
    BalanceAllowanceParams,
    BookParams,
    MarketOrderArgs,
    OrderArgs,
    OrderPayload,
)
from py_clob_client_v2.exceptions import PolyApiException

DECISIONS = 500
KEY = "0x" + "66" * 32
MICRO = Decimal("0.000001")
SIDES = ("bids", "asks")

# What must happen often enough, or little is compared.
SEEN_MIN = 4
SEEN = """
    BUY FOK matched, BUY FAK matched, BUY GTC matched, BUY GTC live, SELL FOK matched,
    SELL FAK matched, SELL GTC matched, SELL GTC live, in part, BUY FOK nothing, BUY FAK nothing,
    free, with a fee, tick 0.01, tick 0.001, cancelled, signed at another price
"""


class Own:
    """An account with this server's own interface."""

    def __init__(self, host, token):
        self._connection = http.client.HTTPConnection(host.removeprefix("http://"))
        self._headers = {"Authorization": f"Bearer {token}"}
        _, answer = self.call("POST", "/v1/keys/bootstrap", {})
        self._headers = {"X-API-Key": answer["raw_key"]}

    def call(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, self._headers)
        response = self._connection.getresponse()
        answer = json.loads(response.read(), parse_float=Decimal)
        return response.status, answer

    def get(self, path):
        status, answer = self.call("GET", path)
        assert status == 200, answer
        return answer

    def cash(self):
        balance = self.get("/v1/account/balance")
        return Decimal(balance["balance"]) + Decimal(balance["reserved"])

    def place(self, order):
        """Returns what happened, the shares and dollars that were traded, the fee and the id."""
        status, answer = self.call("POST", "/v1/orders", order)
        if status != 200:
            assert status == 400, answer
            return "nothing", (0, 0), 0, None
        traded = Decimal(answer["filled_quantity"]), Decimal(answer["notional"])
        rests = answer["status"] == "PENDING"
        what = "matched" if traded[0] else "live" if rests else "nothing"
        return what, traded, Decimal(answer["fee"]), answer["order_id"] if rests else None


class Token:
    """An outcome, and its book, which does not change."""

    def __init__(self, market, token, book):
        self.id, self.outcome = token["token_id"], token["outcome"]
        self.market_id, self.has_fees = market["condition_id"], market["taker_base_fee"] > 0
        self.tick = Decimal(str(market["minimum_tick_size"]))
        self.bid, self.ask = (Decimal(book[side][-1]["price"]) for side in SIDES)

    def at(self, price, ticks):
        """A price that is so many ticks away, if there is one."""
        return min(max(price + ticks * self.tick, self.tick), 1 - self.tick)

    def rounded(self, price):
        """The next higher price of which the client signs the one below; 0 if there is none."""
        while (price := price + self.tick) < 1:
            if int(float(price) * int(1 / self.tick)) < price / self.tick:
                return price
        return 0


class Both:
    """The accounts on both servers."""

    def __init__(self, client, own):
        self.client, self.own = client, own
        # The ids of orders that may rest, on either server.
        self.resting = []
        self.fees = Decimal(0)
        self.seen = Counter()

    def cash(self):
        params = BalanceAllowanceParams(asset_type="COLLATERAL")
        return micros(self.client.get_balance_allowance(params)["balance"])

    def shares(self, token):
        params = BalanceAllowanceParams(asset_type="CONDITIONAL", token_id=token.id)
        return micros(self.client.get_balance_allowance(params)["balance"])

    def place(self, token, signed, order_type):
        """Places an order on both servers, which must do the same."""
        side = "SELL" if signed.side else "BUY"
        before = self.cash()
        try:
            answer = self.client.post_order(signed, order_type)
            assert answer["success"], answer
        except PolyApiException as error:
            assert error.status_code == 400, error
            answer = {"status": "nothing", "takingAmount": "", "makingAmount": ""}
        making, taking = (Decimal(answer[it] or 0) for it in ("makingAmount", "takingAmount"))
        shares, dollars = (taking, making) if side == "BUY" else (making, taking)
        after = self.cash()
        fee = before - after + (-dollars if side == "BUY" else dollars)

        order = terms(token, signed, side, order_type)
        what, traded, own_fee, own_id = self.own.place(order)
        assert (answer["status"], (shares, dollars), fee) == (what, traded, own_fee), (
            order,
            answer,
            traded,
            fee,
            own_fee,
        )
        assert self.own.cash() == after, order
        if own_id is not None:
            self.resting.append((answer["orderID"], own_id))
        self.fees += fee
        self.note(what, side, order_type, token, traded, order)
        return Decimal(order["price"])

    def note(self, what, side, order_type, token, traded, order):
        self.seen["with a fee" if token.has_fees else "free"] += what == "matched"
        self.seen[f"tick {token.tick}"] += what == "matched"
        self.seen[f"{side} {order_type} {what}"] += 1
        asked = order.get("quantity", traded[0])
        self.seen["in part"] += 0 < traded[0] < Decimal(asked)

    def cancel(self, number):
        """Cancels an order on both servers, if it still rests."""
        order_id, own_id = self.resting.pop(number)
        done = self.client.cancel_order(OrderPayload(orderID=order_id))["canceled"]
        status, answer = self.own.call("DELETE", f"/v1/orders/{own_id}")
        assert (done == [order_id]) == (status == 200), (done, answer)
        self.seen["cancelled" if done else "not cancelled"] += 1

    def check(self, tokens):
        """Whatever either account has is the same."""
        held = {(it.market_id, it.outcome): shares for it in tokens if (shares := self.shares(it))}
        own = {
            (row["market_id"], row["outcome"]): Decimal(row["quantity"])
            for row in self.own.get("/v1/account/positions")
        }
        assert held == {key: shares for key, shares in own.items() if shares}, (held, own)
        names = ("status", "size_matched", "original_size", "price")
        for order_id, own_id in self.resting:
            row = self.client.get_order(order_id)
            own = self.own.get(f"/v1/orders/{own_id}")
            assert own["status"] == {"LIVE": "PENDING", "MATCHED": "FILLED"}[row["status"]]
            expected = [own[it] for it in ("filled_quantity", "quantity", "limit_price")]
            assert [Decimal(row[it]) for it in names[1:]] == [*map(Decimal, expected)], (row, own)
        resting = {order_id for order_id, _ in self.resting}
        assert {it["id"] for it in self.client.get_open_orders()} == resting
        assert self.own.cash() == self.cash()
        for what in SEEN.split(","):
            assert self.seen[what.strip()] >= SEEN_MIN, (what, self.seen)


def micros(text):
    return int(text) * MICRO


def terms(token, signed, side, order_type):
    """What was signed, in the words of this server's own interface."""
    making, taking = micros(signed.makerAmount), micros(signed.takerAmount)
    shares, dollars = (taking, making) if side == "BUY" else (making, taking)
    ticks = Fraction(dollars) / Fraction(shares) / Fraction(token.tick)
    price = token.tick * round(ticks)
    order = {
        "market_id": token.market_id,
        "outcome": token.outcome,
        "side": side,
        "price": str(price),
        "time_in_force": order_type,
    }
    if order_type == "GTC":
        assert ticks == round(ticks), ticks
        return {**order, "order_type": "limit", "quantity": str(shares)}
    # What its limit is worth is rounded.
    assert abs(ticks - round(ticks)) < Fraction(1, 4), ticks
    size = {"amount": str(dollars)} if side == "BUY" else {"quantity": str(shares)}
    return {**order, "order_type": "market", **size}


def decide(draw, both, token):
    """One decision by chance: what to do, at which price, and how much of it."""
    cents = lambda least, most: Decimal(draw.randint(least * 100, most * 100)) / 100
    held = int(both.shares(token) * 100)
    kind = draw.choice(["buy", "buy", "sell", "cross", "rest", "rest", "offer", "cancel"])
    market_type = draw.choice(["FOK", "FAK"])
    if kind == "buy":
        # Sometimes as the client computes it, sometimes just too low.
        near = token.at(token.ask, draw.randint(-1, 4))
        price = draw.choice([0, near, near, token.rounded(token.ask)])
        amount = cents(1, draw.choice([5, 60, 200]))
        return market(both, token, "BUY", amount, price, market_type)
    if kind == "sell" and held:
        price = draw.choice([0, token.at(token.bid, draw.randint(-4, 1))])
        amount = Decimal(draw.randint(1, held)) / 100
        return market(both, token, "SELL", amount, price, market_type)
    if kind == "cross":
        price = token.at(token.ask, draw.randint(0, 3))
        # A purchase that takes liquidity needs a dollar.
        size = cents(5, draw.choice([50, 300])) + (1 / price).quantize(Decimal("0.01"))
        return limit(both, token, "BUY", size, price)
    if kind == "offer" and held >= 500:
        # Some cross the book.
        price = token.at(token.bid, draw.randint(-2, 5))
        return limit(both, token, "SELL", Decimal(draw.randint(500, held)) / 100, price)
    if kind == "cancel" and both.resting:
        return both.cancel(draw.randrange(len(both.resting)))
    return limit(both, token, "BUY", cents(5, 40), token.at(token.bid, -draw.randint(0, 5)))


def market(both, token, side, amount, price, order_type):
    args = MarketOrderArgs(
        token_id=token.id,
        amount=float(amount),
        side=side,
        price=float(price),
        order_type=order_type,
    )
    signed = both.place(token, both.client.create_market_order(args), order_type)
    both.seen["signed at another price"] += price not in (0, signed)


def limit(both, token, side, size, price):
    args = OrderArgs(token_id=token.id, price=float(price), size=float(size), side=side)
    both.place(token, both.client.create_order(args), "GTC")


def read_tokens(client, other):
    """The outcomes of all markets, by the kind of market. Both servers show the same books."""
    markets = client.get_sampling_markets()["data"]
    tokens = {it["token_id"]: (market, it) for market in markets for it in market["tokens"]}
    books, same = (
        {it["asset_id"]: it for it in read.get_order_books([BookParams(it) for it in tokens])}
        for read in (client, other)
    )
    kinds = defaultdict(list)
    for token_id, (market, token) in tokens.items():
        book = books[token_id]
        assert [book[it] for it in SIDES] == [same[token_id][it] for it in SIDES], token_id
        kinds[market["taker_base_fee"], market["minimum_tick_size"]].append(
            Token(market, token, book)
        )
    return list(kinds.values())


def main(host, other_host, token):
    client = ClobClient(host, chain_id=137, key=KEY)
    client.set_api_creds(client.create_or_derive_api_key())
    kinds = read_tokens(client, ClobClient(other_host, chain_id=137))
    both = Both(client, Own(other_host, token))
    draw = random.Random(9)
    start = both.cash()
    assert both.own.cash() == start
    for _ in range(DECISIONS):
        decide(draw, both, draw.choice(draw.choice(kinds)))
    both.check([token for kind in kinds for token in kind])
    assert both.fees > 0 and both.cash() != start
    print(f"{both.cash()} dollars are left, {both.fees} were fees: {json.dumps(both.seen)}")


main(*sys.argv[1:])
