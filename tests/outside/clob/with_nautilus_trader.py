"""Trades with nautilus_trader, whose adapter for Polymarket is pointed at another server, in three
runs. Each is a node that starts with the state in which the one before it has left the account.

`SCRIPT HOST WALLET [KNOWN]` runs a node that signs for a wallet of this type. It prints what the
next one needs to know. `KNOWN` is what the one before has printed. Whatever the node thinks that
the account has must be what the server says: open orders, positions and cash.

The venue of the server stands still.
"""

import asyncio
import json
import os
import sys
import urllib.request
from decimal import Decimal

HOST = sys.argv[1]
# The adapter has no other setting for it, and reads this one when it is imported.
os.environ["GAMMA_API_URL"] = f"{HOST}/gamma"

import pandas
import trading
from nautilus_trader.adapters.polymarket import (
    POLYMARKET,
    POLYMARKET_VENUE,
    PolymarketDataClientConfig,
    PolymarketExecClientConfig,
    PolymarketLiveDataClientFactory,
    PolymarketLiveExecClientFactory,
    get_polymarket_instrument_id,
)
from nautilus_trader.adapters.polymarket.providers import PolymarketInstrumentProviderConfig
from nautilus_trader.config import (
    LiveExecEngineConfig,
    LoggingConfig,
    StrategyConfig,
    TradingNodeConfig,
)
from nautilus_trader.live.node import TradingNode
from nautilus_trader.model.currencies import pUSD
from nautilus_trader.model.enums import BookType, OrderSide, OrderStatus, TimeInForce
from nautilus_trader.model.events import OrderFilled, OrderRejected
from nautilus_trader.trading.strategy import Strategy
from py_clob_client_v2 import AssetType, BalanceAllowanceParams, ClobClient

# The adapter opens its user socket only with the first command in a market, so that it may miss
# what follows from that one. Some seconds later, the node asks about it.
SECONDS_MAX = 60

TICK = Decimal("0.01")
BELOW = 2 * TICK


class Trader(Strategy):
    """Does what the script says, and notes that something has happened."""

    def __init__(self, config):
        super().__init__(config)
        self.events, self.happened = [], asyncio.Event()

    def on_start(self):
        self.msgbus.subscribe("events.account.*", self.note)
        self.happened.set()

    def on_stop(self):
        pass

    def note(self, event):
        self.events.append(event)
        self.happened.set()

    on_event = on_order_book_deltas = note

    async def until(self, what, is_so):
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while not is_so():
                    self.happened.clear()
                    await self.happened.wait()
        except TimeoutError:
            raise AssertionError(f"not within {SECONDS_MAX} s: {what()}") from None

    async def send(self, order, status):
        """Sends an order, and waits until it has this status."""
        self.submit_order(order)
        await self.until(lambda: f"{status!r}: {order}", lambda: order.status == status)
        return order

    async def cancel(self, order):
        self.cancel_order(order)
        await self.until(lambda: f"the end: {order}", lambda: order.status == OrderStatus.CANCELED)

    async def refused(self, order, reason):
        await self.send(order, OrderStatus.REJECTED)
        [event] = [
            event
            for event in self.events
            if isinstance(event, OrderRejected) and event.client_order_id == order.client_order_id
        ]
        assert reason in event.reason, event


def new_node(client, wallet, instruments):
    """A node with both clients of the adapter. It reads markets of the order book's server for the
    signer's own wallet, and those of Gamma for others."""
    both = {
        "private_key": trading.KEY,
        "signature_type": wallet,
        "funder": trading.WALLETS[wallet],
        "api_key": client.creds.api_key,
        "api_secret": client.creds.api_secret,
        "passphrase": client.creds.api_passphrase,
        "base_url_http": HOST,
        "base_url_ws": f"ws{HOST.removeprefix('http')}/ws/",
        "instrument_config": PolymarketInstrumentProviderConfig(
            load_ids=frozenset(instruments), use_gamma_markets=wallet != 0
        ),
    }
    data = PolymarketDataClientConfig(ws_connection_initial_delay_secs=0.1, **both)
    node = TradingNode(
        TradingNodeConfig(
            logging=LoggingConfig(log_level=os.environ.get("LEVEL", "ERROR"), log_colors=False),
            exec_engine=LiveExecEngineConfig(reconciliation_startup_delay_secs=0),
            data_clients={POLYMARKET: data},
            exec_clients={POLYMARKET: PolymarketExecClientConfig(base_url_data_api=HOST, **both)},
            timeout_post_stop=0.1,
        )
    )
    node.add_data_client_factory(POLYMARKET, PolymarketLiveDataClientFactory)
    node.add_exec_client_factory(POLYMARKET, PolymarketLiveExecClientFactory)
    trader = Trader(StrategyConfig(external_order_claims=instruments))
    node.trader.add_strategy(trader)
    node.build()
    return node, trader


class Account:
    """What the server says of the account, as the node would say it."""

    def __init__(self, client, wallet):
        self.client, self.wallet = client, trading.WALLETS[wallet]
        self.compared = 0

    def positions(self):
        path = f"/positions?user={self.wallet}&sizeThreshold=0"
        with urllib.request.urlopen(HOST + path) as answer:
            rows = json.load(answer, parse_float=Decimal)
        return {
            str(get_polymarket_instrument_id(row["conditionId"], row["asset"])): text(row["size"])
            for row in rows
        }

    def orders(self):
        fields = ("price", "original_size", "size_matched", "expiration")
        return {
            row["id"]: [
                str(get_polymarket_instrument_id(row["market"], row["asset_id"])),
                row["side"],
                *(text(row[field]) for field in fields),
            ]
            for row in self.client.get_open_orders()
        }

    def cash(self):
        params = BalanceAllowanceParams(asset_type=AssetType.COLLATERAL)
        balance = Decimal(self.client.get_balance_allowance(params)["balance"])
        return text(balance.scaleb(-6))

    def state(self):
        return {"positions": self.positions(), "orders": self.orders(), "cash": self.cash()}

    async def compare(self, trader):
        """Waits until the node thinks what the server says."""
        state = self.state()
        differ = lambda: f"{state}, but {known_to(trader)}"
        await trader.until(differ, lambda: known_to(trader) == state)
        self.compared += 1 + len(state["positions"]) + len(state["orders"])
        return state


def known_to(trader):
    """What the node thinks that the account has."""
    positions = {
        str(it.instrument_id): text(it.signed_decimal_qty()) for it in trader.cache.positions_open()
    }
    orders = {
        it.venue_order_id.value: [
            str(it.instrument_id),
            it.side_string(),
            text(it.price.as_decimal()) if it.has_price else None,
            text(it.quantity.as_decimal()),
            text(it.filled_qty.as_decimal()),
            text(Decimal(it.expire_time_ns).scaleb(-9)),
        ]
        for it in trader.cache.orders_open()
    }
    cash = trader.portfolio.account(POLYMARKET_VENUE).balance_total(pUSD).as_decimal()
    return {"positions": positions, "orders": orders, "cash": text(cash)}


def text(number):
    return f"{Decimal(number).normalize():f}"


async def trade(trader, account, outcome):
    """Sells what a former node has bought, and trades in each way that the adapter has."""
    instrument_id = get_polymarket_instrument_id(outcome.condition, outcome.token)
    instrument = trader.cache.instrument(instrument_id)
    assert instrument.price_increment.as_decimal() == TICK, instrument
    assert instrument.taker_fee == outcome.fee_rate, instrument
    trader.subscribe_order_book_deltas(instrument_id, book_type=BookType.L2_MBP)

    def best():
        book = trader.cache.order_book(instrument_id)
        prices = (book.best_bid_price(), book.best_ask_price()) if book else ()
        return [price.as_decimal() for price in prices if price]

    await trader.until(lambda: f"the book: {best()}", lambda: best() == [outcome.bid, outcome.ask])

    def limit(shares, price, **terms):
        return trader.order_factory.limit(
            instrument_id,
            OrderSide.BUY,
            instrument.make_qty(shares),
            instrument.make_price(price),
            **terms,
        )

    def market(side, amount, **terms):
        return trader.order_factory.market(
            instrument_id, side, instrument.make_qty(amount), **terms
        )

    async def fill(order):
        """Has an order filled. Trades of the same second confuse the next node, which does not know
        their order; the cash is right a second later."""
        await trader.send(order, OrderStatus.FILLED)
        await account.compare(trader)

    before = Decimal((await account.compare(trader))["cash"])
    for order in trader.cache.orders_open(instrument_id=instrument_id):
        await trader.cancel(order)
    first = len(trader.events)
    for position in trader.cache.positions_open(instrument_id=instrument_id):
        # Clients sign for hundredths of a share.
        shares = round(position.quantity.as_decimal() / 2, 2)
        await fill(market(OrderSide.SELL, shares, time_in_force=TimeInForce.FOK))

    rests = await trader.send(limit(10, outcome.bid - BELOW, post_only=True), OrderStatus.ACCEPTED)
    await account.compare(trader)
    await trader.cancel(rests)

    await trader.refused(limit(10, outcome.ask, post_only=True), trading.CROSSES)
    cheap = limit(10, outcome.bid, time_in_force=TimeInForce.FOK)
    await trader.refused(cheap, trading.FOK_KILLED)

    await fill(market(OrderSide.BUY, 5, time_in_force=TimeInForce.IOC, quote_quantity=True))
    await fill(limit(6, outcome.ask))
    await fill(market(OrderSide.SELL, 2, time_in_force=TimeInForce.FOK))
    expires = pandas.Timestamp.now(tz="UTC").floor("s") + pandas.Timedelta(hours=1)
    stays = limit(10, outcome.bid - BELOW, time_in_force=TimeInForce.GTD, expire_time=expires)
    await trader.send(stays, OrderStatus.ACCEPTED)
    after = Decimal((await account.compare(trader))["cash"])

    # What the node has noted of its trades is what they have cost.
    spent = Decimal(0)
    for fill in trader.events[first:]:
        if isinstance(fill, OrderFilled):
            dollars = fill.last_qty.as_decimal() * fill.last_px.as_decimal()
            spent += dollars if fill.is_buy else -dollars
            spent += fill.commission.as_decimal()
    assert before - after == spent, (before, after, spent)
    account.compared += 1


async def main(wallet, known):
    client = ClobClient(
        HOST,
        chain_id=137,
        key=trading.KEY,
        signature_type=wallet,
        funder=trading.WALLETS[wallet],
    )
    client.set_api_creds(client.create_or_derive_api_key())
    account = Account(client, wallet)
    outcomes = trading.outcomes(HOST)
    instruments = [get_polymarket_instrument_id(it.condition, it.token) for it in outcomes]
    node, trader = new_node(client, wallet, instruments)
    running = asyncio.create_task(node.run_async())
    try:
        await trader.until(lambda: "the start", lambda: trader.is_running)
        state = await account.compare(trader)
        if known:
            assert state == known["state"], (state, known["state"])
        for outcome in outcomes:
            await trade(trader, account, outcome)
        state = account.state()
    finally:
        await node.stop_async()
        await running
    compared = account.compared + (known["compared"] if known else 0)
    print(json.dumps({"state": state, "compared": compared}))


asyncio.run(main(int(sys.argv[2]), json.loads(sys.argv[3]) if sys.argv[3:] else None))
