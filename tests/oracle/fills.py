#!/usr/bin/env python3
"""Computes the expected fills of orders on recorded books, independently and in exact fractions.

    fills.py DIR --list
    fills.py DIR STARTING_BALANCE < orders.jsonl > results.jsonl

DIR is a recording (DIR/gamma, DIR/clob, DIR/ws), which `books.py` reads: the whole tape is played
first, and orders see its last state. `--list` prints every tradable market, one JSON object per
outcome:
    {"market_id", "outcome", "book": "own" | "mirrored", "asks", "bids", "rate"}
with asks and bids as [[price, size], ...], best first. Otherwise one account with STARTING_BALANCE
dollars (decimal text) executes the orders in turn:
    {"market_id", "outcome", "side": "BUY" | "SELL", "quantity": "decimal text"}
and each gives one line, a fill or a refusal that changes nothing. Numbers are trimmed decimal text:
    {"levels": [[price, size], ...], "price", "notional", "fee", "balance",
     "position": {"quantity", "cost", "avg_entry_price"}}
    {"rejected": CODE}
"""
import json, sys
from fractions import Fraction as F

sys.dont_write_bytecode = True
from books import load, quoted, tradable

MICRO = 10**6
floor_micro = lambda x: F(x * MICRO // 1, MICRO)
ceil_micro = lambda x: F(-(-x * MICRO // 1), MICRO)
even = lambda x, places: F(round(x * 10**places), 10**places)  # Rounds half to even.


def text(x):
    whole, part = divmod(abs(x) * MICRO, MICRO)
    assert part.denominator == 1, "not whole millionths"
    return ("-" if x < 0 else "") + f"{whole}.{int(part):06}".rstrip("0").rstrip(".")


def fill(markets, books, account, market_id, outcome, side, quantity):
    """Executes an order by the exchange's rules, in their order. A fill changes the account."""
    market = markets.get(market_id)
    if market is None:
        return "MARKET_NOT_FOUND"
    labels = [label.lower() for label, _ in market["outcomes"]]
    name = outcome.lower()
    if name not in labels and len(labels) == 2 and name in ("yes", "no"):
        name = labels[name == "no"]
    if name not in labels:
        return "OUTCOME_NOT_FOUND"
    index = labels.index(name)
    if market["status"] != "open" or market["rate"] is None:
        return "MARKET_CLOSED"
    levels, _ = quoted(books, market, index, side)
    if levels is None:
        return "VENUE_UNAVAILABLE"
    held, cost = account["positions"].get((market["id"], index), (F(0), F(0)))
    if side == "SELL" and quantity > held:
        return "INSUFFICIENT_POSITION"
    taken, left = [], quantity
    for price, size in levels:
        if left > 0:
            taken.append((price, min(size, left)))
            left -= taken[-1][1]
    if left > 0:
        return "INSUFFICIENT_LIQUIDITY"
    exact = sum(price * size for price, size in taken)
    rate, exponent = market["rate"]
    fee = sum(even(size * rate * (p * (1 - p)) ** exponent, 5) for p, size in taken)
    if side == "BUY":
        notional = ceil_micro(exact)
        if notional + fee > account["cash"]:
            return "INSUFFICIENT_BALANCE"
        account["cash"] -= notional + fee
        held, cost = held + quantity, cost + notional
    else:
        notional = floor_micro(exact)
        account["cash"] += notional - fee
        held, cost = held - quantity, cost - floor_micro(cost * quantity / held)
    account["positions"][market["id"], index] = (held, cost)
    return {
        "levels": [[text(p), text(size)] for p, size in taken],
        "price": text(even(notional / quantity, 6)), "notional": text(notional),
        "fee": text(fee), "balance": text(account["cash"]),
        "position": {"quantity": text(held), "cost": text(cost),
                     "avg_entry_price": text(even(cost / held, 6) if held else F(0))},
    }


if __name__ == "__main__":
    markets, books = load(sys.argv[1])
    if sys.argv[2] == "--list":
        for row in tradable(markets, books):
            print(json.dumps(row, default=text))
        sys.exit()
    account = {"cash": F(sys.argv[2]), "positions": {}}
    for line in sys.stdin:
        order = json.loads(line)
        result = fill(markets, books, account, order["market_id"], order["outcome"], order["side"],
                      F(order["quantity"]))
        print(json.dumps({"rejected": result} if isinstance(result, str) else result))
