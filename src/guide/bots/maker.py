"""A maker: bids for one outcome at the best bid, and offers what it has bought at the best ask.

    pip install httpx websockets
    KEY=ps_live_... python3 maker.py

Ctrl-C cancels its orders. If the program dies, the server does: their heartbeats stop.
"""

import asyncio
import json
import os
import sys
import time
from decimal import Decimal

import httpx
import websockets

SERVER = os.environ.get("BOURSE", "http://127.0.0.1:8080")
HEADERS = {"X-API-Key": os.environ["KEY"]}
SIZE = Decimal(5)  # Shares of one order.
HELD_MAX = Decimal(50)  # Shares after which it buys no more.
PAUSE = 2.0  # Seconds between two rounds of at most three requests. The free tier has 5 a second.
HEARTBEAT_MS = 10_000


class Maker:
    def __init__(self, http, market, outcome):
        self.http = http
        self.market = market
        self.outcome = outcome
        self.price = None  # The newest frame of the price socket.
        self.held = Decimal(0)
        self.fill_seq = None  # The number of the last fill that is counted in `held`.

    async def call(self, method, path, **request):
        """Sends a request until it is answered with something else than "later".

        To send it twice does no harm: cancels are idempotent, and orders have names.
        """
        wait = 1.0
        while True:
            try:
                answer = await self.http.request(method, path, **request)
            except httpx.TransportError as error:
                print(f"no answer ({error!r}): again in {wait} s")
                await asyncio.sleep(wait)
            else:
                if answer.status_code not in (429, 503):
                    return answer
                print(answer.json()["error"], "- again later")
                await asyncio.sleep(max(wait, float(answer.headers.get("Retry-After", 1))))
            wait = min(2 * wait, 30.0)

    async def cancel(self):
        path = "/v1/cancel-market-orders"
        answer = await self.call("DELETE", path, params={"market": self.market})
        return answer.raise_for_status().json()["canceled"]

    async def begin(self):
        """Starts from what the account has, without orders of an earlier run."""
        await self.cancel()
        answer = await self.call("GET", "/v1/account/positions")
        for position in answer.raise_for_status().json():
            if (position["market_id"], position["outcome"]) == (self.market, self.outcome):
                self.held = Decimal(position["quantity"])

    async def follow(self, path, take):
        """Gives `take` every frame of a socket, and opens it again whenever it closes."""
        url = SERVER.replace("http", "ws", 1) + path
        while True:
            try:
                async with websockets.connect(url, additional_headers=HEADERS) as socket:
                    async for text in socket:
                        await take(socket, json.loads(text))
            except (OSError, websockets.WebSocketException) as error:
                print(f"{path}: {error}")
            await asyncio.sleep(1)

    async def take_price(self, socket, frame):
        if frame["type"] == "connected":
            self.price = None
            await socket.send(json.dumps({"action": "subscribe", "markets": [self.market]}))
        elif frame["type"] == "price":
            self.price = frame

    async def take_fill(self, socket, frame):
        if frame["type"] == "connected" and self.fill_seq is None:
            self.fill_seq = frame["seq"]
        elif frame["type"] == "connected":
            # What was filled meanwhile comes first, each fill once.
            await socket.send(json.dumps({"action": "resume", "after": self.fill_seq}))
        elif frame["type"] == "fill" and frame["seq"] > self.fill_seq:
            self.fill_seq = frame["seq"]
            if (frame["market_id"], frame["outcome"]) == (self.market, self.outcome):
                bought = frame["side"] == "BUY"
                self.held += Decimal(frame["quantity"]) * (1 if bought else -1)
                print("fill", frame["seq"], frame["side"], frame["quantity"], "at", frame["price"],
                      "- holds", self.held)

    def quotes(self):
        """The orders that should be on the book now."""
        price = self.price
        if not price or price["stale"] or not price["active"] or self.fill_seq is None:
            return []
        quotes = []
        if price.get("best_bid") and self.held < HELD_MAX:
            quotes.append(("BUY", price["best_bid"], SIZE))
        if price.get("best_ask") and self.held >= SIZE:
            quotes.append(("SELL", price["best_ask"], SIZE))
        return quotes

    async def place(self, quotes):
        """Returns whether all of them are on the book."""
        name = f"maker-{time.time_ns()}"
        orders = [
            {
                "market_id": self.market, "outcome": self.outcome, "side": side,
                "order_type": "limit", "post_only": True, "price": price, "quantity": str(size),
                "client_order_id": f"{name}-{side}",
            }
            for side, price, size in quotes
        ]
        answer = await self.call("POST", "/v1/orders/batch", json={"orders": orders})
        if answer.is_error:
            print(answer.json()["message"])
            return False
        for (side, price, size), order in zip(quotes, answer.json()["results"]):
            print(side, size, "at", price, order["status"], order.get("error_message", ""))
        return answer.json()["failed"] == 0

    async def quote(self):
        placed = None  # The quotes on the book, and what was held when they were placed.
        alive = time.monotonic()
        while True:
            quotes, held = self.quotes(), self.held
            if (quotes, held) != placed:
                await self.cancel()
                is_placed = not quotes or await self.place(quotes)
                placed = (quotes, held) if is_placed else None
            await self.call("POST", "/v1/heartbeats", json={"interval_ms": HEARTBEAT_MS})
            if time.monotonic() - alive > HEARTBEAT_MS / 1000:
                placed = None  # The heartbeat was late, so the orders may be gone.
            alive = time.monotonic()
            await asyncio.sleep(PAUSE)


async def main():
    async with httpx.AsyncClient(base_url=SERVER, headers=HEADERS) as http:
        query = {"active_only": True, "limit": 1}
        market = (await http.get("/v1/markets", params=query)).raise_for_status().json()[0]
        print(market["question"])
        maker = Maker(http, market["condition_id"], market["outcomes"][0])
        await maker.begin()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(maker.follow("/v1/ws/prices", maker.take_price))
                tasks.create_task(maker.follow("/v1/ws/executions", maker.take_fill))
                tasks.create_task(maker.quote())
        finally:
            print("cancelled", len(await maker.cancel()), "orders")


sys.stdout.reconfigure(line_buffering=True)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
