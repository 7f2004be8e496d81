"""The sockets through the library `websockets`."""

import asyncio
import sys

from websockets.asyncio.client import connect

import checks

URL, KEY, *MARKETS = sys.argv[1:]


async def read_prices(socket, prices):
    await socket.send(prices.subscription())
    async for text in socket:
        if prices.take(text) == "price" and prices.is_complete():
            complete.set()


async def read_fills(socket, fills):
    async for text in socket:
        fills.take(text)
        changed.set()


async def main():
    prices, fills = checks.Prices(MARKETS), checks.Fills()
    headers = {"X-API-Key": KEY}
    async with (
        connect(f"{URL}/v1/ws/prices", additional_headers=headers) as of_prices,
        connect(f"{URL}/v1/ws/executions", additional_headers=headers) as of_fills,
        asyncio.TaskGroup() as tasks,
    ):
        assert of_prices.protocol.extensions == [], "compression is declined"
        tasks.create_task(read_prices(of_prices, prices))
        tasks.create_task(read_fills(of_fills, fills))
        await complete.wait()
        while fills.seq is None:
            changed.clear()
            await changed.wait()
        checks.ready()
        last = await asyncio.to_thread(checks.last_order)
        while last not in fills.orders[-1:]:
            changed.clear()
            await changed.wait()
        await (await of_prices.ping(b"are you there"))
        await of_prices.close()
        await of_fills.close()
    checks.report(prices, fills, [of_prices.close_code, of_fills.close_code])


complete, changed = asyncio.Event(), asyncio.Event()
asyncio.run(main())
