"""Trades with Polymarket's unified client at the server whose address is the first argument, and
compares what its user stream tells with the rows that its requests return. Prints the number of
events. The venue of the server stands still.
"""

import asyncio
import dataclasses
import sys

from polymarket import AsyncSecureClient
from polymarket._internal.environment import PRODUCTION_CONFIG, create_environment
from polymarket.streams import UserSpec

import trading

SECONDS_MAX = 60

STATUSES = ("MATCHED", "MINED", "CONFIRMED")


def shown(row, *fields):
    return {field: getattr(row, field) for field in fields}


class Stream:
    """The events of a handle, as they are expected."""

    def __init__(self, events):
        self.events = events.__aiter__()
        self.count = 0

    async def next(self, kind):
        event = await anext(self.events)
        assert event.type == kind, event
        self.count += 1
        return event.payload

    async def order(self, kind, row):
        told = await self.next("order")
        assert told.order_event_type == kind, told
        assert told.status == row.status, told
        assert told.order_owner == row.owner, told
        fields = (
            "id owner condition_id asset_id side original_size size_matched price created_at "
            "expires_at order_type maker_address associate_trades outcome"
        ).split()
        assert shown(told, *fields) == shown(row, *fields), (told, row)

    async def trade(self, row):
        for status in STATUSES:
            told = await self.next("trade")
            assert (told.status, told.trade_owner) == (status, row.owner), told
            fields = (
                "id taker_order_id condition_id asset_id side size price owner fee_rate_bps "
                "matched_at updated_at maker_address transaction_hash bucket_index trader_side "
                "outcome"
            ).split()
            assert shown(told, *fields) == shown(row, *fields), (told, row)
            [other], [other_row] = told.maker_orders, row.maker_orders
            fields = "order_id owner maker_address matched_amount price fee_rate_bps side".split()
            assert shown(other, *fields) == shown(other_row, *fields), (other, other_row)


async def trade(client, stream, outcome):
    terms = {"asset_id": outcome.token, "size": 10, "side": "BUY"}
    resting = await client.place_limit_order(**terms, price=outcome.bid)
    row = await client.get_order(order_id=resting.order_id)
    assert row.status == "LIVE", row
    await stream.order("PLACEMENT", row)

    taken = await client.place_market_order(
        asset_id=outcome.token, side="BUY", amount=20, order_type="FOK"
    )
    row = await client.get_order(order_id=taken.order_id)
    [trade] = [it async for it in client.list_account_trades(id=taken.trade_ids[0]).iter_items()]
    await stream.order("PLACEMENT", row)
    await stream.order("UPDATE", row)
    await stream.trade(trade)

    await client.cancel_order(order_id=resting.order_id)
    row = await client.get_order(order_id=resting.order_id)
    assert row.status == "CANCELED", row
    await stream.order("CANCELLATION", row)


async def main(host):
    sockets = f"ws{host.removeprefix('http')}/ws/user"
    config = dataclasses.replace(PRODUCTION_CONFIG, clob_url=host, clob_user_ws_url=sockets)
    environment = create_environment(name="paper", config=config)
    plain, with_fees = trading.outcomes(host)
    async with await AsyncSecureClient.create(
        private_key=trading.KEY, wallet=trading.WALLETS[0], environment=environment
    ) as client:
        count = 0
        for markets in ([], [plain.condition], [with_fees.condition, plain.condition]):
            async with await client.subscribe(UserSpec(markets=markets or None)) as events:
                stream = Stream(events)
                await until_told(client, stream, plain)
                await trade(client, stream, plain)
                count += stream.count
                assert events.dropped == 0 and client._user_manager.dropped_events == 0
    print(count)


async def until_told(client, stream, outcome):
    """Places and cancels orders until the stream tells of one: the client does not say when the
    server knows its credentials."""
    told = asyncio.ensure_future(anext(stream.events))
    while not told.done():
        terms = {"asset_id": outcome.token, "price": outcome.bid, "size": 10, "side": "BUY"}
        placed = await client.place_limit_order(**terms)
        await client.cancel_order(order_id=placed.order_id)
        await asyncio.wait([told], timeout=0.1)
    first = told.result().payload
    # The events of the last order are the last.
    while (first.order_event_type, first.id) != ("CANCELLATION", placed.order_id):
        first = await stream.next("order")


asyncio.run(asyncio.wait_for(main(sys.argv[1]), SECONDS_MAX))
