"""A taker: buys when the ask falls below the recent average, and sells when the bid is above it.

    pip install httpx
    KEY=ps_live_... python3 taker.py

An order names the price that the program has seen, so it is not filled at a much worse one.
"""

import json
import os
import sys
import time
import uuid
from decimal import Decimal

import httpx

SERVER = os.environ.get("BOURSE", "http://127.0.0.1:8080")
HEADERS = {"X-API-Key": os.environ["KEY"]}
EDGE = Decimal(os.environ.get("EDGE", "0.01"))  # How far from the average, in dollars.
SIZE = Decimal(5)  # Shares of one order.
HELD_MAX = Decimal(50)
SLIPPAGE_MAX_BPS = 100
PAUSE = 2.0  # Seconds from one order to the next.
WEIGHT = Decimal("0.05")  # Of the newest price in the average.
SILENCE = 15.0  # Seconds: the stream says something every five.


def trade(http, order):
    """Places an order exactly once, however often it has to be sent. `None` if it was refused."""
    order = order | {"client_order_id": f"taker-{uuid.uuid4()}"}
    wait = 1.0
    while True:
        try:
            answer = http.post("/trade", json=order)
        except httpx.TransportError as error:
            # Nobody knows whether it was filled. The name finds out.
            print(f"no answer ({error!r}): again in {wait} s")
            time.sleep(wait)
        else:
            if answer.is_success:
                return answer.json()
            error = answer.json()
            print(error["error"], "-", error["message"])
            if answer.status_code == 503 and error["error"] == "VENUE_UNAVAILABLE":
                return None  # The price is no longer known, so there is no reason to insist.
            if answer.status_code not in (429, 503):
                return None
            time.sleep(max(wait, float(answer.headers.get("Retry-After", 1))))
        wait = min(2 * wait, 30.0)


def prices(http, market):
    """Yields the newest price of a market, for as long as the program runs."""
    while True:
        try:
            query = {"condition_ids": market}
            timeout = httpx.Timeout(10, read=SILENCE)
            with http.stream("GET", "/prices/stream", params=query, timeout=timeout) as answer:
                answer.raise_for_status()
                event = ""
                for line in answer.iter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        event = value
                    elif field == "data" and event == "snapshot":
                        yield from json.loads(value)["prices"]
                    elif field == "data" and event == "market_price":
                        yield json.loads(value)
        except httpx.HTTPError as error:
            print(f"stream: {error!r}")
            time.sleep(1)


def held(http, market, outcome):
    for position in http.get("/v1/account/positions").raise_for_status().json():
        if (position["market_id"], position["outcome"]) == (market, outcome):
            return Decimal(position["quantity"])
    return Decimal(0)


def main():
    with httpx.Client(base_url=SERVER, headers=HEADERS) as http:
        query = {"active_only": True, "limit": 1}
        market = http.get("/v1/markets", params=query).raise_for_status().json()[0]
        print(market["question"])
        about = {"market_id": market["condition_id"], "outcome": market["outcomes"][0]}
        shares = held(http, *about.values())
        average, next_order = None, time.monotonic()
        for price in prices(http, about["market_id"]):
            bid, ask = price.get("best_bid"), price.get("best_ask")
            if price["stale"] or not price["active"] or not bid or not ask:
                continue
            middle = (Decimal(bid) + Decimal(ask)) / 2
            average = average or middle
            side = None
            if Decimal(ask) <= average - EDGE and shares < HELD_MAX:
                side, seen = "BUY", ask
            elif Decimal(bid) >= average + EDGE and shares >= SIZE:
                side, seen = "SELL", bid
            average += WEIGHT * (middle - average)
            if side is None or time.monotonic() < next_order:
                continue
            order = about | {
                "side": side, "quantity": str(SIZE), "expected_price": seen,
                "max_slippage_bps": SLIPPAGE_MAX_BPS,
            }
            filled = trade(http, order)
            if filled:
                shares = Decimal(str(filled["position"]["quantity"]))
                print(side, filled["quantity"], "at", filled["price"], "- holds", shares)
            next_order = time.monotonic() + PAUSE


sys.stdout.reconfigure(line_buffering=True)
try:
    main()
except KeyboardInterrupt:
    pass
