"""The streams of polymarket-client while the server has trouble: `troubled_streams.py HOST` reads
the names of calls as `troubled.py` does.
"""

import asyncio
import dataclasses
import json
import logging
import sys
import time

from polymarket import AsyncSecureClient
from polymarket._internal.environment import PRODUCTION_CONFIG, create_environment
from polymarket.streams import MarketSpec, UserSpec

import trading


class Streams:
    def __init__(self, client, outcome, events):
        self.client, self.outcome = client, outcome
        self.events = events.__aiter__()

    async def place_and_cancel(self):
        order = {"asset_id": self.outcome.token, "price": 0.01, "size": 5, "side": "BUY"}
        placed = await self.client.place_limit_order(**order)
        await self.client.cancel_order(order_id=placed.order_id)
        return placed.order_id

    async def told(self):
        """Returns the events up to the end of an order that the user stream tells of. Until one
        is told of, the stream may not be connected."""
        events, last, asked = [], None, []
        while (last_id(last), getattr(last, "order_event_type", None)) != (
            asked[-1] if asked else "none",
            "CANCELLATION",
        ):
            coming = asyncio.ensure_future(anext(self.events))
            while not coming.done():
                if not any(last_id(event) in asked for event in events):
                    asked.append(await self.place_and_cancel())
                await asyncio.wait([coming], timeout=0.2)
            last = coming.result().payload
            events.append(last)
        return events

    async def take(self):
        """Takes, and returns what the stream tells of the order, or of no order before."""
        placed = await self.client.place_market_order(
            asset_id=self.outcome.token, side="BUY", amount=2, order_type="FAK"
        )
        print("taken", flush=True)
        # The server's trouble is over.
        await asyncio.to_thread(sys.stdin.readline)
        events = [it for it in await self.told() if last_id(it) == placed.order_id]
        return ", ".join(getattr(it, "order_event_type", None) or it.status for it in events)

    async def watch(self, count):
        spec = MarketSpec(asset_ids=[self.outcome.token])
        async with await self.client.subscribe(spec) as events:
            events = events.__aiter__()
            books = [(await anext(events)).payload for _ in range(count)]
        return ", ".join(f"{it.bids[-1].price}/{it.asks[-1].price}" for it in books)


def last_id(event):
    return getattr(event, "taker_order_id", None) or getattr(event, "id", None)


async def main(host):
    sockets = f"ws{host.removeprefix('http')}/ws"
    config = dataclasses.replace(
        PRODUCTION_CONFIG,
        clob_url=host,
        clob_user_ws_url=f"{sockets}/user",
        clob_market_ws_url=f"{sockets}/market",
    )
    environment = create_environment(name="paper", config=config)
    outcome, _ = trading.outcomes(host)
    async with await AsyncSecureClient.create(
        private_key=trading.KEY, wallet=trading.WALLETS[0], environment=environment
    ) as client:
        async with await client.subscribe(UserSpec()) as events:
            streams = Streams(client, outcome, events)
            await streams.told()
            print("ready", flush=True)
            calls = {
                "take": streams.take,
                "watch": lambda: streams.watch(1),
                "watch two": lambda: streams.watch(2),
            }
            while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
                began = time.monotonic()
                outcome = await calls[name]()
                made = {"outcome": outcome, "seconds": time.monotonic() - began}
                print(json.dumps(made), flush=True)


logging.disable()
asyncio.run(main(sys.argv[1]))
