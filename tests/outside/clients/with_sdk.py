"""The prices on a socket and on a stream of events, and the fills, through the official SDK."""

import asyncio
import sys

from polysim_sdk.aio import AsyncPolySimClient
from polysim_sdk.sse import aspot_stream
from polysim_sdk.ws import aexecutions_stream, aprices_stream

import checks

URL, KEY, *MARKETS = sys.argv[1:]


async def read_prices(client, prices):
    async for frame in aprices_stream(client, MARKETS, max_reconnects=0):
        prices.take_frame(frame)
        changed.set()
    raise AssertionError("the socket of prices ended")


async def read_events(client, prices):
    async for event in aspot_stream(client, condition_ids=MARKETS, max_reconnects=0):
        data = event["data"]
        for frame in data["prices"] if event["event"] == "snapshot" else [data]:
            if event["event"] in ("snapshot", "market_price"):
                prices.take_frame(frame)
        changed.set()
    raise AssertionError("the stream of events ended")


async def read_fills(client, fills):
    async for frame in aexecutions_stream(client, max_reconnects=0):
        fills.take_frame(frame)
        changed.set()
    raise AssertionError("the socket of fills ended")


async def until(holds):
    while not holds():
        changed.clear()
        await changed.wait()


async def main():
    client = AsyncPolySimClient(api_key=KEY, base_url=URL.replace("ws", "http", 1))
    prices, events, fills = checks.Prices(MARKETS), checks.Prices(MARKETS), checks.Fills()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(read_prices(client, prices)),
            group.create_task(read_events(client, events)),
            group.create_task(read_fills(client, fills)),
        ]
        await until(lambda: prices.is_complete() and events.is_complete() and fills.seq is not None)
        checks.ready()
        last = await asyncio.to_thread(checks.last_order)
        await until(lambda: last in fills.orders[-1:])
        for task in tasks:
            task.cancel()
    await client.aclose()
    assert events.count > len(MARKETS), f"{events.count} prices in the stream of events"
    # The SDK does not tell how its sockets were closed.
    checks.report(prices, fills, [])


changed = asyncio.Event()
asyncio.run(main())
