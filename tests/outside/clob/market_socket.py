"""Keeps books from the frames of the market socket of the server whose address is the first
argument, and checks each of their hashes: once from the raw frames, and once from what Polymarket's
unified client makes of them. Prints the number of hashes that either has checked.
"""

import asyncio
import dataclasses
import hashlib
import json
import sys
import urllib.request
from decimal import Decimal

import websockets
from polymarket import AsyncPublicClient
from polymarket._internal.environment import PRODUCTION_CONFIG, create_environment
from polymarket.streams import MarketSpec

HASHES = 1_000
SECONDS_MAX = 60

SIDES = {"BUY": "bids", "SELL": "asks"}


def text(number):
    """A decimal as Polymarket writes it."""
    return f"{Decimal(number).normalize():f}"


class Books:
    """Books by asset. `markets` has the market of each asset, as the server describes it."""

    def __init__(self, markets):
        self.markets = markets
        self.books = {}
        self.hashes = 0
        self.kinds = set()

    def digest(self, asset, at_ms):
        book, market = self.books[asset], self.markets[asset]
        best_last = {"bids": sorted(book["bids"]), "asks": sorted(book["asks"], reverse=True)}
        levels = {
            side: [{"price": text(price), "size": text(book[side][price])} for price in prices]
            for side, prices in best_last.items()
        }
        hashed = {
            "market": market["condition_id"],
            "asset_id": asset,
            "timestamp": str(at_ms),
            "hash": "",
            **levels,
            "min_order_size": text(market["minimum_order_size"]),
            "tick_size": text(book["tick"]),
            "neg_risk": market["neg_risk"],
            "last_trade_price": "" if book["last"] is None else f"{book['last']:.3f}",
        }
        compact = json.dumps(hashed, separators=(",", ":"))
        return hashlib.sha1(compact.encode()).hexdigest()

    def check(self, asset, at_ms, expected):
        assert self.digest(asset, at_ms) == expected, (asset, at_ms)
        self.hashes += 1

    def renew(self, asset, at_ms, bids, asks, tick, last, expected):
        self.books[asset] = {"bids": dict(bids), "asks": dict(asks), "tick": tick, "last": last}
        self.check(asset, at_ms, expected)

    def change(self, at_ms, changes):
        """`changes` has an asset, price, size, side, hash and best prices each."""
        last_of_asset = {}
        for asset, price, size, side, *rest in changes:
            levels = self.books[asset][SIDES[side]]
            if size == 0:
                del levels[price]
            else:
                levels[price] = size
            last_of_asset[asset] = rest
        for asset, (expected, bid, ask) in last_of_asset.items():
            self.check(asset, at_ms, expected)
            book = self.books[asset]
            assert (bid, ask) == (max(book["bids"], default=0), min(book["asks"], default=1))


def from_frame(books, frame):
    """What a raw frame says."""
    kind, asset, at_ms = frame["event_type"], frame.get("asset_id"), frame["timestamp"]
    books.kinds.add(kind)
    if kind == "book":
        sides = [
            [(Decimal(level["price"]), Decimal(level["size"])) for level in frame[side]]
            for side in SIDES.values()
        ]
        last = frame["last_trade_price"]
        last = Decimal(last) if last else None
        books.renew(asset, at_ms, *sides, Decimal(frame["tick_size"]), last, frame["hash"])
    elif kind == "price_change":
        numbers = ("price", "size", "best_bid", "best_ask")
        changes = [
            {**change, **{name: Decimal(change[name]) for name in numbers}}
            for change in frame["price_changes"]
        ]
        names = ("asset_id", "price", "size", "side", "hash", "best_bid", "best_ask")
        books.change(at_ms, [[change[name] for name in names] for change in changes])
    elif kind == "last_trade_price":
        books.books[asset]["last"] = Decimal(frame["price"])
    elif kind == "tick_size_change":
        books.books[asset]["tick"] = Decimal(frame["new_tick_size"])


def from_event(books, event):
    """What the client says of the same frame."""
    books.kinds.add(event.type)
    said = event.payload
    at_ms = round(said.timestamp.timestamp() * 1_000)
    if event.type == "book":
        sides = [
            [(level.price, level.size) for level in levels] for levels in (said.bids, said.asks)
        ]
        last = said.last_trade_price
        books.renew(said.asset_id, at_ms, *sides, said.tick_size, last, said.hash)
    elif event.type == "price_change":
        changes = [
            (it.asset_id, it.price, it.size, it.side, it.hash, it.best_bid, it.best_ask)
            for it in said.price_changes
        ]
        books.change(at_ms, changes)
    elif event.type == "last_trade_price":
        books.books[said.asset_id]["last"] = said.price
    elif event.type == "tick_size_change":
        books.books[said.asset_id]["tick"] = said.new_tick_size


async def by_frames(url, books):
    async with websockets.connect(url, max_size=None) as socket:
        await socket.send("PING")
        assert await socket.recv() == "PONG"
        asked = {"type": "market", "assets_ids": list(books.markets), "initial_dump": True}
        await socket.send(json.dumps({**asked, "custom_feature_enabled": True}))
        while books.hashes < HASHES:
            from_frame(books, json.loads(await socket.recv()))


async def by_client(host, url, books):
    config = dataclasses.replace(PRODUCTION_CONFIG, clob_url=host, clob_market_ws_url=url)
    environment = create_environment(name="paper", config=config)
    async with AsyncPublicClient(environment=environment) as client:
        spec = MarketSpec(asset_ids=list(books.markets), custom_feature_enabled=True)
        async with await client.subscribe(spec) as events:
            async for event in events:
                from_event(books, event)
                if books.hashes >= HASHES:
                    break
            assert events.dropped == 0 and client._market_manager.dropped_events == 0


def markets_by_asset(host):
    with urllib.request.urlopen(f"{host}/sampling-markets") as answer:
        page = json.load(answer)
    assert page["next_cursor"] == "LTE=", page["next_cursor"]
    return {token["token_id"]: it for it in page["data"] for token in it["tokens"]}


async def main(host):
    url = f"ws{host.removeprefix('http')}/ws/market"
    markets = markets_by_asset(host)
    by_hand, typed = Books(markets), Books(markets)
    both = asyncio.gather(by_frames(url, by_hand), by_client(host, url, typed))
    await asyncio.wait_for(both, SECONDS_MAX)
    for books in (by_hand, typed):
        expected = {"book", "price_change", "last_trade_price", "best_bid_ask"}
        assert expected <= books.kinds, books.kinds
    print(min(by_hand.hashes, typed.hashes))


asyncio.run(main(sys.argv[1]))
