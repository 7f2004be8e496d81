"""The tables of `polysim_polymarket`: PublicClient, SecureClient and their twins."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from rows import cannot, local, same, works

ADDRESS = "0x" + "ab" * 20
ID = "0x" + "cd" * 32
EVENT_TRIES_MAX = 30


def token(world, outcome=0):
    return world.free.tokens[outcome]


def decimals(levels):
    """Price and size of each level, from objects or from JSON."""
    pairs = [
        (level["price"], level["size"]) if isinstance(level, dict) else (level.price, level.size)
        for level in levels
    ]
    return [(Decimal(price), Decimal(size)) for price, size in pairs]


def get_order_book(client, world):
    book, shown = client.get_order_book(token_id=token(world)), world.book(world.free)
    same(decimals(book.bids), decimals(shown["bids"]))
    same(decimals(book.asks), decimals(shown["asks"]))
    same((book.tick_size, book.min_order_size), (Decimal("0.01"), 5))


def get_order_books(client, world):
    books = client.get_order_books(token_ids=list(world.free.tokens))
    same([decimals(book.asks) for book in books],
         [decimals(world.book(world.free, it)["asks"]) for it in (0, 1)])


def midpoint(world, outcome=0):
    return sum(world.touch(world.free, outcome)) / 2


def spread(world, outcome=0):
    bid, ask = world.touch(world.free, outcome)
    return ask - bid


def of_token(name, value):
    """A method that answers with this value of one token."""
    return works(
        lambda client, world: same(getattr(client, name)(token_id=token(world)), value(world))
    )


def of_tokens(name, value):
    """A method that answers with this value of each token."""

    def check(client, world):
        shown = getattr(client, name)(token_ids=list(world.free.tokens))
        same(shown, {token(world, it): value(world, it) for it in (0, 1)})

    return works(check)


def get_price(client, world):
    bid, ask = world.touch(world.free)
    prices = [client.get_price(token_id=token(world), side=side) for side in ("BUY", "SELL")]
    assert sorted(prices) == [bid, ask], prices


def get_prices(client, world):
    from polysim_polymarket import PriceRequest

    bid, ask = world.touch(world.free)
    both = [PriceRequest(token(world), side) for side in ("BUY", "SELL")]
    same(sorted(client.get_prices(requests=both)[token(world)].values()), [bid, ask])


def trade_price(world, outcome=0):
    shown = world.book(world.free, outcome)["last_trade_price"]
    return shown and Decimal(shown)


def get_last_trade_price(client, world):
    shown = client.get_last_trade_price(token_id=token(world))
    same(shown and shown.price, trade_price(world))


def get_last_trade_prices(client, world):
    shown = client.get_last_trade_prices(token_ids=list(world.free.tokens))
    same([row.price for row in shown], [trade_price(world, outcome) or 0 for outcome in (0, 1)])


def estimate_market_price(client, world):
    """The worst price that the order has to reach."""
    _, ask = world.touch(world.free)
    estimated = client.estimate_market_price(token_id=token(world), side="BUY", amount=1)
    same(estimated, ask)


def get_market(client, world):
    for named in ({"id": world.free.id}, {"slug": world.free.slug}):
        market = client.get_market(**named)
        same((market.id, market.slug), (world.free.id, world.free.slug))
        same(market.state.closed, False)


def list_markets(client, world):
    """Every market once, over several pages; sorted, and none of them closed."""
    everything = world.get("/v1/markets?limit=200")
    listed = [market.id for market in client.list_markets(page_size=7).iter_items()]
    same(listed, [row["id"] for row in everything])
    smallest = client.list_markets(page_size=1, order="volume24hr", ascending=True).first_page()
    same(smallest.items[0].id, min(everything, key=lambda it: Decimal(it["volume_24h"]))["id"])
    same(list(client.list_markets(closed=True).first_page().items), [])


def get_price_history(client, world):
    """Prices that stand still are the same at all times."""
    for outcome in (0, 1):
        points = client.get_price_history(
            token_id=token(world, outcome), interval="max", fidelity=60
        )
        assert points
        for point in points:
            same(Decimal(str(point.p)), midpoint(world, outcome))
    same(client.get_price_history(token_id=token(world), start_ts=0, end_ts=1), ())


PUBLIC = {
    "environment": local(lambda it, world: same(it.environment.name, "production")),
    "get_order_book": works(get_order_book),
    "get_order_books": works(get_order_books),
    "get_midpoint": of_token("get_midpoint", midpoint),
    "get_midpoints": of_tokens("get_midpoints", midpoint),
    "get_price": works(get_price),
    "get_prices": works(get_prices),
    "get_spread": of_token("get_spread", spread),
    "get_spreads": of_tokens("get_spreads", spread),
    "get_last_trade_price": works(get_last_trade_price),
    "get_last_trade_prices": works(get_last_trade_prices),
    "estimate_market_price": works(estimate_market_price),
    "get_market": works(get_market),
    "list_markets": works(list_markets),
    "get_price_history": works(get_price_history),
    "get_trading_approvals_state": local(
        lambda it, world: it.get_trading_approvals_state(wallet=ADDRESS)
    ),
    "close": local(lambda it, world: it.close()),
}


def subscribe_to_market(client, world):
    """The first price of an outcome arrives."""
    from polysim_polymarket.streams import MarketSpec

    wanted = f"{world.charged.id}:UP"
    event = first_event(client, MarketSpec(asset_ids=[wanted]), lambda: None)
    assert wanted in repr(event), event


def subscribe_to_user(client, world):
    """A fill of the account arrives as an event."""
    from polysim_polymarket.streams import UserSpec

    def buy():
        client.place_market_order(token_id=token(world), side="BUY", amount=Decimal(5))
        world.spend(world.free, 5)

    event = first_event(client, UserSpec(), buy)
    assert world.free.id in repr(event), event


def first_event(client, spec, after):
    """The first event of a stream once something has been done. A stream does not say when it is
    open, so that is done again until an event comes."""
    handle = client.subscribe(spec)
    try:
        waiting = asyncio.ensure_future(handle.target.__anext__(), loop=client.loop)
        for _ in range(EVENT_TRIES_MAX):
            after()
            client.loop.run_until_complete(asyncio.wait([waiting], timeout=1))
            if waiting.done():
                return waiting.result()
        raise AssertionError(f"no event in {EVENT_TRIES_MAX} seconds")
    finally:
        handle.close()


ASYNC_PUBLIC = {
    **{name: row for name, row in PUBLIC.items() if name != "close"},
    "subscribe": works(subscribe_to_market),
    "close": local(lambda it, world: it.close()),
    "aclose": local(lambda it, world: it.aclose()),
}


def fetch_api_keys(client, world):
    (own,) = client.fetch_api_keys()
    assert own.isdigit(), own


def get_balance_allowance(client, world):
    """Dollars and shares, in millionths."""
    cash = client.get_balance_allowance(asset_type="COLLATERAL").balance
    same(cash, int(world.ledger.cash * 1_000_000))
    shares = client.get_balance_allowance(asset_type="CONDITIONAL", token_id=token(world))
    held = world.ledger.open_positions().get((world.free.id, world.free.labels[0]), "0")
    same(shares.balance, int(Decimal(held) * 1_000_000))


def create_limit_order(client, world):
    order = client.create_limit_order(
        token_id=token(world), price=Decimal("0.04"), size=Decimal(10), side="BUY"
    )
    same((order.token_id, order.order_type), (token(world), "GTC"))
    world.kept["limit"] = order


def create_market_order(client, world):
    order = client.create_market_order(token_id=token(world), side="BUY", amount=Decimal(15))
    same((order.token_id, order.order_type), (token(world), "FAK"))
    world.kept["market"] = order


def post_order(client, world):
    """The limit order rests, which the client calls delayed; the market order is matched."""
    resting = client.post_order(world.kept["limit"])
    same((resting.ok, resting.status), (True, "delayed"))
    world.kept["resting"] = resting.order_id
    matched = client.post_order(world.kept["market"])
    world.spend(world.free, 15)
    same((matched.ok, matched.status), (True, "matched"))


def post_orders(client, world):
    both = client.post_orders([world.kept["limit"], world.kept["market"]])
    world.spend(world.free, 15)
    same([answer.status for answer in both], ["delayed", "matched"])
    world.kept["batched"] = both[0].order_id


def place_limit_order(client, world):
    answer = client.place_limit_order(
        token_id=world.charged.tokens[1], price="0.03", size=10, side="BUY"
    )
    same(answer.status, "delayed")
    world.kept["charged"] = answer.order_id


def place_market_order(client, world):
    bought = client.place_market_order(
        token_id=world.charged.tokens[1], side="BUY", amount=Decimal(10)
    )
    same(bought.status, "matched")
    world.spend(world.charged, 10, outcome=1)
    sold = client.place_market_order(
        token_id=world.charged.tokens[1], side="SELL", shares=Decimal(2)
    )
    same(sold.status, "matched")
    world.fill(world.charged, "SELL", 2, outcome=1)


def get_order(client, world):
    """The model wants the digits of a time where the row has RFC 3339."""
    from polysim_polymarket.errors import UnexpectedResponseError

    try:
        client.get_order(order_id=world.kept["resting"])
    except UnexpectedResponseError:
        return
    raise AssertionError("the model reads the row now: give get_order a row that works")


def list_open_orders(client, world):
    page = client.list_open_orders(token_id=token(world)).first_page()
    resting = {world.kept["resting"], world.kept["batched"]}
    same({order.id for order in page.items}, resting)
    same({order.price for order in page.items}, {Decimal("0.04")})
    same((page.has_more, page.next_cursor), (False, None))
    same(len(client.list_open_orders().first_page().items), 3)


def list_account_trades(client, world):
    """Every fill, the newest first, at the time when it happened."""
    trades = client.list_account_trades().first_page().items
    fills = reversed(world.ledger.fills)
    same([(it.size, it.price) for it in trades], [(it.quantity, it.price) for it in fills])
    age = datetime.now(UTC) - trades[0].matched_at
    assert timedelta() <= age < timedelta(minutes=5), trades[0]
    same({trade.trader_side for trade in trades}, {"TAKER"})


def cancel_order(client, world):
    answer = client.cancel_order(order_id=world.kept["resting"])
    same((answer.canceled, answer.not_canceled), ((world.kept["resting"],), {}))


def cancel_orders(client, world):
    answer = client.cancel_orders(order_ids=[world.kept["batched"], world.kept["resting"]])
    same(answer.canceled, (world.kept["batched"],))
    same(list(answer.not_canceled), [world.kept["resting"]])


def cancel_market_orders(client, world):
    answer = client.cancel_market_orders(market=world.charged.id)
    same(answer.canceled, (world.kept["charged"],))


def cancel_all(client, world):
    resting = client.post_order(world.kept["limit"]).order_id
    same(client.cancel_all().canceled, (resting,))


def balance_of_the_ledger(client, world):
    """At the end of the walk cash and shares are those of the ledger."""
    get_balance_allowance(client, world)
    client.close()


def call(name, **named):
    """A method that answers without a request."""
    return local(lambda client, world: getattr(client, name)(**named))


def not_simulated(name, *positional, **named):
    """A method that the client itself refuses."""

    def check(client, world):
        try:
            getattr(client, name)(*positional, **named)
        except NotImplementedError:
            return
        raise AssertionError("the client refuses it no longer")

    return local(check)


def nothing(name, **named):
    """A list that the client itself keeps empty."""
    return local(
        lambda client, world: same(len(list(getattr(client, name)(**named).first_page().items)), 0)
    )


READS = {name: row for name, row in PUBLIC.items() if name != "close"}

SECURE = {
    **READS,
    "create": local(lambda it, world: same(callable(it.create), True)),
    "credentials": local(lambda it, world: same(it.credentials, None)),
    "fetch_api_keys": works(fetch_api_keys),
    "get_balance_allowance": works(get_balance_allowance),
    "create_limit_order": works(create_limit_order),
    "create_market_order": works(create_market_order),
    "post_order": works(post_order),
    "post_orders": works(post_orders),
    "place_limit_order": works(place_limit_order),
    "place_market_order": works(place_market_order),
    "get_order": cannot(get_order),
    "list_open_orders": works(list_open_orders),
    "list_account_trades": works(list_account_trades),
    "cancel_order": works(cancel_order),
    "cancel_orders": works(cancel_orders),
    "cancel_market_orders": works(cancel_market_orders),
    "cancel_all": works(cancel_all),
    "delete_api_key": call("delete_api_key"),
    "get_closed_only_mode": call("get_closed_only_mode"),
    "get_notifications": call("get_notifications"),
    "is_gasless_ready": call("is_gasless_ready"),
    "setup_gasless_wallet": call("setup_gasless_wallet"),
    "setup_trading_approvals": call("setup_trading_approvals"),
    "approve_erc20": call(
        "approve_erc20", token_address=ADDRESS, spender_address=ADDRESS, amount="max"
    ),
    "approve_erc1155_for_all": call(
        "approve_erc1155_for_all", token_address=ADDRESS, operator_address=ADDRESS
    ),
    "transfer_erc20": call(
        "transfer_erc20", token_address=ADDRESS, recipient_address=ADDRESS, amount=1
    ),
    "split_position": call("split_position", condition_id=ID, amount=1),
    "merge_positions": call("merge_positions", condition_id=ID, amount=1),
    "merge_multiple_positions": call(
        "merge_multiple_positions", positions=[{"condition_id": ID, "amount": 1}]
    ),
    "redeem_positions": call("redeem_positions", condition_id=ID),
    "get_order_scoring": call("get_order_scoring", order_id="1"),
    "get_orders_scoring": call("get_orders_scoring", order_ids=["1"]),
    "get_reward_percentages": call("get_reward_percentages"),
    "get_total_earnings_for_user_for_day": call(
        "get_total_earnings_for_user_for_day", date="2026-01-01"
    ),
    "list_current_rewards": nothing("list_current_rewards"),
    "list_market_rewards": nothing("list_market_rewards", condition_id=ID),
    "list_user_earnings_for_day": nothing("list_user_earnings_for_day", date="2026-01-01"),
    "list_user_earnings_and_markets_config": nothing(
        "list_user_earnings_and_markets_config", date="2026-01-01"
    ),
    "get_builder_fee_rates": not_simulated("get_builder_fee_rates", "code"),
    "get_builder_volumes": not_simulated("get_builder_volumes"),
    "list_builder_trades": not_simulated("list_builder_trades", builder_code="code"),
    "list_builder_leaderboard": not_simulated("list_builder_leaderboard"),
    "close": local(balance_of_the_ledger),
}

ASYNC_SECURE = {
    **{name: row for name, row in SECURE.items() if name != "close"},
    "subscribe": works(subscribe_to_user),
    "close": SECURE["close"],
}
