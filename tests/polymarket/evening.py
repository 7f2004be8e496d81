#!/usr/bin/env python3
"""Folds the recorded ticks of an evening into candles of a minute, independently and in exact fractions.

    evening.py TICKS

TICKS is a file of rows as recorded: a level of a token's book with its new size, or a trade. Each
pair of tokens is a market, and a change of one is mirrored to the other. Prints a JSON object: for
each token a list of [t, [o, h, l, c]], from its first price to the newest time of any token.

A book that a trade has left crossed shows no level that its newest level has consumed. The price is
the middle of the best bid and the best ask, else the last trade, else the only best price.
"""
import json, sys
from fractions import Fraction as F

PAIRS = [("72034", "92414"), ("45956", "56376"), ("66111", "94018")]
number = lambda x: F(str(x))


class Token:
    def __init__(self):
        self.bids, self.asks = {}, {}
        self.newest_side = None
        self.trade, self.traded_at, self.booked_at = None, 0, 0
        self.changes = []  # (minute, price)

    def set(self, side, price, size):
        levels = self.bids if side == "BID" else self.asks
        if size == 0:
            levels.pop(price, None)
        else:
            levels[price] = size
            self.newest_side = side

    def price(self):
        bid, ask = max(self.bids, default=None), min(self.asks, default=None)
        if bid is not None and ask is not None and bid >= ask:
            bids = [p for p in self.bids if self.newest_side == "BID" or p < ask]
            asks = [p for p in self.asks if self.newest_side == "ASK" or p > bid]
            bid, ask = max(bids, default=None), min(asks, default=None)
        if bid is not None and ask is not None:
            return (bid + ask) / 2
        return self.trade if self.trade is not None else bid if bid is not None else ask

    def publish(self):
        price = self.price()
        at = max(self.booked_at, self.traded_at)
        if price is not None and (not self.changes or self.changes[-1][1] != price):
            newest = self.changes[-1][0] if self.changes else 0
            self.changes.append((max(at // 60_000, newest), price))
        return at


def candles(changes, last):
    rows, held = [], None
    for minute in range(changes[0][0] if changes else last + 1, last + 1):
        inside = [price for at, price in changes if at == minute]
        prices = ([held] if held is not None else []) + inside
        held = prices[-1]
        ohlc = (prices[0], max(prices), min(prices), held)
        rows.append([minute * 60, [text(price) for price in ohlc]])
    return rows


def text(price):
    micros = price * 10**6
    assert micros.denominator == 1, "not whole millionths"
    whole, part = divmod(int(micros), 10**6)
    return f"{whole}.{part:06}".rstrip("0").rstrip(".")


tokens, sisters, newest = {}, {}, 0
rows = [json.loads(line) for line in open(sys.argv[1])]
for name in {row["asset_id"] for row in rows}:
    tokens[name] = Token()
for one, other in PAIRS:
    pair = [next(n for n in tokens if n.startswith(start)) for start in (one, other)]
    sisters.update(zip(pair, reversed(pair)))
for row in rows:
    name, price, size = row["asset_id"], number(row["price"]), number(row["size"])
    token, sister = tokens[name], tokens[sisters[name]]
    if row["event_type"] == "PRICE_CHANGE":
        at = max(row["ts_ms"], token.booked_at, sister.booked_at)
        token.set(row["side"], price, size)
        sister.set("ASK" if row["side"] == "BID" else "BID", 1 - price, size)
        for changed in (token, sister):
            changed.booked_at = at
            newest = max(newest, changed.publish())
    else:
        token.trade, token.traded_at = price, row["ts_ms"]
        newest = max(newest, token.publish())
last = newest // 60_000
json.dump({name: candles(token.changes, last) for name, token in tokens.items()}, sys.stdout)
