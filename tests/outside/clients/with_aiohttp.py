"""The sockets through the library `aiohttp`."""

import asyncio
import sys

import aiohttp

import checks

URL, KEY, *MARKETS = sys.argv[1:]


async def read(socket, take):
    async for message in socket:
        assert message.type == aiohttp.WSMsgType.TEXT, message
        take(message.data)
        changed.set()


async def main():
    prices, fills = checks.Prices(MARKETS), checks.Fills()
    headers = {"X-API-Key": KEY}
    async with (
        aiohttp.ClientSession(URL, headers=headers) as session,
        session.ws_connect("/v1/ws/prices", compress=15, heartbeat=1) as of_prices,
        session.ws_connect("/v1/ws/executions", autoping=True) as of_fills,
        asyncio.TaskGroup() as tasks,
    ):
        assert of_prices.compress == 0, "compression is declined"
        tasks.create_task(read(of_prices, prices.take))
        tasks.create_task(read(of_fills, fills.take))
        await of_prices.send_str(prices.subscription())
        while not prices.is_complete() or fills.seq is None:
            changed.clear()
            await changed.wait()
        checks.ready()
        last = await asyncio.to_thread(checks.last_order)
        while last not in fills.orders[-1:]:
            changed.clear()
            await changed.wait()
        await of_prices.close()
        await of_fills.close()
    checks.report(prices, fills, [of_prices.close_code, of_fills.close_code])


changed = asyncio.Event()
asyncio.run(main())
