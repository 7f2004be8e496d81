"""The table of the functions in the modules of `polysim_sdk`: pagination, streams, retries and
Up/Down windows. An asynchronous twin has the row of its function."""

import importlib
import inspect
import pkgutil
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from native import BETS, await_settlement, check_fill, rest
from rows import local, raised, same, walk_named, works
from world import text


def functions():
    """The public functions that the modules of the package define, as `module.function`."""
    import polysim_sdk

    named = {}
    for module in pkgutil.iter_modules(polysim_sdk.__path__):
        if module.name.startswith("_"):
            continue
        loaded = importlib.import_module(f"polysim_sdk.{module.name}")
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            if function.__module__ == loaded.__name__ and not name.startswith("_"):
                named[f"{module.name}.{name}"] = function
    return named


class Call(NamedTuple):
    """A function, the client that it takes, and the loop in which it runs if it is
    asynchronous."""

    function: Any
    client: Any
    loop: Any

    def __call__(self, *positional, **named):
        """A stream of what the function yields."""
        return Stream(self.function(self.client, *positional, **named), self.loop)

    def by(self, base_url, key):
        """The same call by another account."""
        return self._replace(client=type(self.client)(api_key=key, base_url=base_url))


class Stream:
    """What a function yields, one item at a time."""

    def __init__(self, items, loop):
        self.items = items
        self.loop = loop if hasattr(items, "__anext__") else None

    def next(self):
        if self.loop is None:
            return next(self.items)
        return self.loop.run_until_complete(anext(self.items))

    def until(self, wanted):
        """The first item for which this holds."""
        while not wanted(item := self.next()):
            pass
        return item

    def all(self):
        """Every item until the end."""
        items = []
        try:
            while True:
                items.append(self.next())
        except (StopIteration, StopAsyncIteration):
            return items

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.loop is None:
            self.items.close()
        else:
            self.loop.run_until_complete(self.items.aclose())


def checked_by(check):
    """Makes the row of a function that takes a client. `check` takes a `Call` of it, a synchronous
    client of the same account, and the world."""

    def row(name):
        def run(clients, world):
            client, twin = clients
            own = twin.target if name.split(".")[1].startswith("a") else client
            check(Call(functions()[name], own, twin.loop), client, world)

        return works(run)

    return row


def iter_markets(call, client, world):
    listed = [market["condition_id"] for market in client.list_markets(limit=200)]
    assert len(listed) > 14, listed
    same([market["condition_id"] for market in call(page_size=7).all()], listed)
    (found,) = call(page_size=7, q="tide").all()
    same(found["condition_id"], world.free.id)


def iter_history(call, client, world):
    """Pages of one fill make the whole ledger, the newest fill first."""
    fill(client, world)
    fills = list(reversed(world.ledger.fills))
    rows = call(page_size=1).all()
    same(len(rows), len(fills))
    for shown, filled in zip(rows, fills):
        check_fill(shown, filled)
    same(call(page_size=1, market_id="0xnone").all(), [])


def iter_orders(call, client, world):
    fill(client, world)
    orders = [rest(client, world)["order_id"] for _ in range(3)]
    open_orders = call(page_size=2, status="OPEN").all()
    same([shown["order_id"] for shown in open_orders], list(reversed(orders)))
    filled = call(page_size=2, status="FILLED").all()
    same([shown["quantity"] for shown in filled],
         [text(fill.quantity) for fill in reversed(world.ledger.fills)])
    same(set(client.cancel_all()["canceled"]), {str(order) for order in orders})


def iter_settlements(call, client, world):
    """Pages of one settlement show both bets."""
    same(call().all(), [])
    await_settlement(type(client)(api_key=world.moving[1], base_url=world.moving[0]))
    rows = call.by(*world.moving)(page_size=1).all()
    same({row["outcome"]: row["quantity"] for row in rows},
         {outcome: text(shares) for outcome, shares in BETS.items()})


def iter_wallets(call, client, world):
    (wallet,) = call(page_size=1).all()
    same(Decimal(wallet["balance"]), world.ledger.cash)


def fill(client, world):
    """Buys a few shares."""
    shares = Decimal(5 + len(world.ledger.fills))
    answer = client.place_order(
        market_id=world.free.id, side="BUY", outcome="Yes", quantity=text(shares)
    )
    check_fill(answer, world.fill(world.free, "BUY", shares))
    return answer


def check_prices(frame, world):
    """A frame with prices has the touch of the book."""
    bid, ask = world.touch(world.free)
    same(frame["market_id"], world.free.id)
    same((Decimal(str(frame["best_bid"])), Decimal(str(frame["best_ask"]))), (bid, ask))


def prices_stream(call, client, world):
    with call([world.free.id]) as stream:
        same(stream.next()["type"], "connected")
        check_prices(stream.until(lambda event: event["type"] == "price"), world)


def executions_stream(call, client, world):
    """Two orders make two events, in their order."""
    with call() as stream:
        same(stream.next()["type"], "connected")
        for _ in range(2):
            answer = fill(client, world)
            event = stream.until(lambda event: event["type"] != "heartbeat")
            same((event["type"], event["order_id"]), ("fill", answer["order_id"]))
            check_fill(event, world.ledger.fills[-1])


def spot_stream(call, client, world):
    """A snapshot, then a sign of life while the books stand still. Without markets there is nothing
    to stream."""
    with call(condition_ids=[world.free.id, "0xnone"]) as stream:
        snapshot = stream.next()
        same((snapshot["event"], snapshot["data"]["unknown"]), ("snapshot", ["0xnone"]))
        (frame,) = snapshot["data"]["prices"]
        check_prices(frame, world)
        event = stream.next()
        same((event["event"], event["data"]["n"]), ("keepalive", 1))
    with call(crypto=["BTC"]) as stream:
        error = raised(stream.next)
    same((error.status_code, error.code), (404, "NOT_OFFERED"))


def retry_on_market_warmup(call, client, world):
    """An order in a market that is not there yet is sent again; nothing else is."""
    retry, waits = call.function, []
    markets = iter(["0xnone", "0xnone", world.free.id])

    def buy(market):
        return client.place_order(market_id=market, side="BUY", outcome="Yes", quantity=5)

    answer = retry(lambda: buy(next(markets)), sleep=waits.append)
    check_fill(answer, world.fill(world.free, "BUY", 5))
    same(waits, [2, 4])
    error = raised(lambda: retry(lambda: buy("0xnone"), attempts=3, sleep=waits.append))
    same((error.code, waits), ("MARKET_NOT_FOUND", [2, 4, 2, 4]))
    error = raised(lambda: retry(lambda: client.get_order(10**12), sleep=waits.append))
    same((error.code, len(waits)), ("ORDER_NOT_FOUND", 4))


def on_windows(check):
    """Makes the row of a function of listed Up/Down windows. `check` takes the function and all
    windows."""

    def row(name):
        def run(clients, world):
            check(functions()[name], clients[0].list_updown(live=True))

        return works(run)

    return row


def end_of(window):
    return datetime.fromisoformat(window["end_date"].replace("Z", "+00:00"))


def with_end(windows):
    """The windows whose end is known, at least one."""
    windows = [window for window in windows if window["end_date"] is not None]
    assert windows, "no window has an end"
    return windows


def seconds_to_expiry(function, windows):
    for window in with_end(windows):
        same(function(window, now=end_of(window) - timedelta(seconds=90)), 90)
        assert function(window) > 0, window
    same(function({**windows[0], "end_date": None}), None)


def is_window_open(function, windows):
    same([function(window) for window in windows], [True] * len(windows))
    same(function({**windows[0], "closed": True}), False)


def price_to_beat(function, windows):
    """The simulated venue has no price to beat."""
    same([function(window) for window in windows], [None] * len(windows))


def open_windows(function, windows):
    same(len(windows), 2)
    same(function(windows), windows)


def next_to_expire(function, windows):
    dated = with_end(windows)
    same(function(windows), min(dated, key=end_of))
    same(function(windows, now=max(map(end_of, dated))), None)


def computes(arguments, expected):
    """Makes the row of a function of numbers alone."""

    def row(name):
        return local(lambda clients, world: same(functions()[name](*arguments), expected))

    return row


ROWS = {
    "pagination.iter_markets": checked_by(iter_markets),
    "pagination.iter_orders": checked_by(iter_orders),
    "pagination.iter_history": checked_by(iter_history),
    "pagination.iter_settlements": checked_by(iter_settlements),
    "pagination.iter_wallets": checked_by(iter_wallets),
    "pagination.aiter_markets": checked_by(iter_markets),
    "pagination.aiter_orders": checked_by(iter_orders),
    "pagination.aiter_history": checked_by(iter_history),
    "pagination.aiter_settlements": checked_by(iter_settlements),
    "ws.prices_stream": checked_by(prices_stream),
    "ws.aprices_stream": checked_by(prices_stream),
    "ws.executions_stream": checked_by(executions_stream),
    "ws.aexecutions_stream": checked_by(executions_stream),
    "sse.spot_stream": checked_by(spot_stream),
    "sse.aspot_stream": checked_by(spot_stream),
    "retry.retry_on_market_warmup": checked_by(retry_on_market_warmup),
    "updown.seconds_to_expiry": on_windows(seconds_to_expiry),
    "updown.is_window_open": on_windows(is_window_open),
    "updown.price_to_beat": on_windows(price_to_beat),
    "updown.open_windows": on_windows(open_windows),
    "updown.next_to_expire": on_windows(next_to_expire),
    "updown.ptb_distance": computes(("101.5", 100), 1.5),
    "updown.ptb_distance_bps": computes((101, 100), 100),
}


HELPERS = {name: row(name) for name, row in ROWS.items()}


def walk(client, twin, world):
    """Calls every function as its row says, and returns what was wrong. `twin` is an asynchronous
    client of the same account."""
    return walk_named("polysim_sdk", (client, twin), set(functions()), HELPERS, world)
