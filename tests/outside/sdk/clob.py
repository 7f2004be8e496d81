"""The table of `polysim_clob_client.ClobClient`."""

import time
from decimal import Decimal

from rows import local, same, works
from world import text

CURSOR_END = "LTE="


def token(world, outcome=0):
    return world.free.tokens[outcome]


def books(world):
    from polysim_clob_client.clob_types import BookParams

    return [BookParams(token_id=token(world), side="BUY"), BookParams(token(world, 1), "SELL")]


def get_ok(client, world):
    same(client.get_ok()["status"], "alive")


def get_server_time(client, world):
    """The client asks its own clock."""
    assert abs(client.get_server_time() - time.time()) < 5


def get_address(client, world):
    world.kept["address"] = client.get_address()
    assert world.kept["address"].isdigit(), world.kept["address"]


def get_api_keys(client, world):
    same([key["name"] for key in client.get_api_keys()["apiKeys"]], ["clob"])


def pages(read):
    """A page of a list that has no second one."""

    def check(client, world):
        page = read(client)
        same((page["next_cursor"], page["count"]), (CURSOR_END, len(page["data"])))
        same(page["data"][0]["condition_id"], world.free.id)

    return check


def get_market(client, world):
    same(client.get_market(world.free.id)["condition_id"], world.free.id)


def get_order_book(client, world):
    """By its token, its condition id, and the label after a colon."""
    shown = world.book(world.free, 1)
    for name in [token(world, 1), f"{world.free.id}:NO"]:
        book = client.get_order_book(name)
        prices = [Decimal(level["price"]) for level in shown["asks"]]
        same([Decimal(level.price) for level in book.asks], prices)
        same((book.market, book.tick_size), (world.free.id, shown["tick_size"]))
    same(client.get_order_book(world.free.id).market, world.free.id)


def get_order_books(client, world):
    asset_ids = [book.asset_id for book in client.get_order_books(books(world))]
    same(asset_ids, list(world.free.tokens))


def get_order_book_hash(client, world):
    """The client has a hash of its own."""
    book = client.get_order_book(token(world))
    same(client.get_order_book_hash(book), client.get_order_book_hash(book))


def get_midpoint(client, world):
    bid, ask = world.touch(world.free)
    same(Decimal(client.get_midpoint(token(world))["mid"]), (bid + ask) / 2)


def get_midpoints(client, world):
    same({Decimal(it) for it in client.get_midpoints(books(world)).values()}, midpoints(world))


def midpoints(world):
    touches = [world.touch(world.free, outcome) for outcome in (0, 1)]
    return {(bid + ask) / 2 for bid, ask in touches}


def get_price(client, world):
    """The side is that of the book: a BUY is the best bid."""
    bid, ask = world.touch(world.free)
    prices = [client.get_price(token(world), side)["price"] for side in ("BUY", "SELL")]
    same([Decimal(price) for price in prices], [bid, ask])


def get_prices(client, world):
    prices = client.get_prices(books(world))
    shown = {name: Decimal(price) for name, price in prices.items()}
    best_bid, best_ask = world.touch(world.free)[0], world.touch(world.free, 1)[1]
    same(shown, {token(world): best_bid, token(world, 1): best_ask})


def get_spread(client, world):
    bid, ask = world.touch(world.free)
    same(Decimal(client.get_spread(token(world))["spread"]), ask - bid)


def get_spreads(client, world):
    bid, ask = world.touch(world.free)
    same({Decimal(it) for it in client.get_spreads(books(world)).values()}, {ask - bid})


def last_trade(world, outcome=0):
    return world.book(world.free, outcome)["last_trade_price"]


def get_last_trade_price(client, world):
    same(client.get_last_trade_price(token(world))["price"], shown_trade(client, world, 0))


def shown_trade(client, world, outcome):
    """Without a trade the client shows the market's price."""
    shown = last_trade(world, outcome)
    return shown or client.get_market(world.free.id)["last_price"]


def get_last_trades_prices(client, world):
    shown = client.get_last_trades_prices(books(world))
    same(shown, {token(world, it): shown_trade(client, world, it) for it in (0, 1)})


def get_tick_size(client, world):
    same(client.get_tick_size(token(world)), 0.01)
    client.clear_tick_size_cache(token(world))


def get_fee_rate_bps(client, world):
    same(client.get_fee_rate_bps(world.charged.tokens[0]), 700)
    same(client.get_fee_rate_bps(world.charged.id), 700)
    same(client.get_fee_rate_bps(token(world)), 0)


def calculate_market_price(client, world):
    _, ask = world.touch(world.free)
    same(Decimal(str(client.calculate_market_price(token(world), "BUY", 1))), ask)


def create_order(client, world):
    from polysim_clob_client.clob_types import OrderArgs

    order = client.create_order(OrderArgs(token(world, 1), price=0.03, size=10, side="BUY"))
    same((order["market_id"], order["outcome"]), (world.free.id, "No"))
    world.kept["limit"] = order


def create_market_order(client, world):
    from polysim_clob_client.clob_types import MarketOrderArgs

    order = client.create_market_order(MarketOrderArgs(token(world), amount=25, side="BUY"))
    same((order["order_type"], order["time_in_force"], order["amount"]), ("market", "FOK", 25.0))
    world.kept["market"] = order


def post_order(client, world):
    """The limit order rests; the market order spends its dollars on the book."""
    resting = client.post_order(world.kept["limit"])
    same((resting["status"], resting["outcome"]), ("PENDING", "No"))
    world.kept["resting"] = resting["order_id"]
    bought = client.post_order(world.kept["market"])
    fill = world.spend(world.free, 25)
    same((bought["quantity"], bought["notional"]), (text(fill.quantity), text(fill.notional)))
    same(bought["account_balance"], text(fill.cash))


def post_orders(client, world):
    from polysim_clob_client.clob_types import PostOrdersArgs

    both = client.post_orders([
        PostOrdersArgs(world.kept["limit"]), PostOrdersArgs(world.kept["market"])
    ])
    same([row["status"] for row in both], ["PENDING", "FILLED"])
    same(both[1]["account_balance"], text(world.spend(world.free, 25).cash))
    world.kept["batched"] = both[0]["order_id"]


def create_and_post_order(client, world):
    from polysim_clob_client.clob_types import OrderArgs

    args = OrderArgs(f"{world.charged.id}:UP", price=0.02, size=20, side="BUY")
    answer = client.create_and_post_order(args)
    same((answer["status"], answer["outcome"].lower()), ("PENDING", "up"))
    world.kept["charged"] = answer["order_id"]


def get_order(client, world):
    shown = client.get_order(str(world.kept["resting"]))
    same((shown["status"], shown["limit_price"]), ("PENDING", "0.03"))


def cancel(client, world):
    same(client.cancel(str(world.kept["resting"]))["status"], "CANCELLED")


def cancel_orders(client, world):
    batched, cancelled = str(world.kept["batched"]), str(world.kept["resting"])
    answer = client.cancel_orders([batched, cancelled])
    same((answer["canceled"], list(answer["not_canceled"])), ([batched], [cancelled]))


def cancel_market_orders(client, world):
    """By the market, and by a token of it."""
    answer = client.cancel_market_orders(market=world.charged.id)
    same(answer["canceled"], [str(world.kept["charged"])])
    resting = client.post_order(world.kept["limit"])["order_id"]
    same(client.cancel_market_orders(asset_id=token(world))["canceled"], [str(resting)])


def cancel_all(client, world):
    resting = client.post_order(world.kept["limit"])["order_id"]
    same(client.cancel_all()["canceled"], [str(resting)])


def get_orders(client, world):
    from polysim_clob_client.clob_types import OpenOrderParams

    resting = str(client.post_order(world.kept["limit"])["order_id"])
    (row,) = client.get_orders()
    same((row["id"], row["asset_id"], row["price"]), (resting, token(world, 1), "0.03"))
    same(client.get_orders(OpenOrderParams(market=world.charged.id)), [])
    same([row["id"] for row in client.get_orders(OpenOrderParams(id=resting))], [resting])
    client.cancel_all()
    same(client.get_orders(), [])


def get_trades(client, world):
    from polysim_clob_client.clob_types import TradeParams

    shown = [(row["size"], row["price"]) for row in client.get_trades()]
    fills = reversed(world.ledger.fills)
    same(shown, [(text(fill.quantity), text(fill.price)) for fill in fills])
    same(client.get_trades(TradeParams(asset_id=token(world, 1))), [])


def get_balance_allowance(client, world):
    same(client.get_balance_allowance()["balance"], text(world.ledger.cash))


def set_api_creds(client, world):
    """The same key keeps the connection; the client works on."""
    client.set_api_creds(client.derive_api_key())
    same(client.get_ok()["status"], "alive")


def answers(name, expected, *positional, **named):
    """A method that answers without a request."""
    return local(
        lambda client, world: same(getattr(client, name)(*positional, **named), expected)
    )


def own_key(name):
    """A method that answers with the key that the client was given."""

    def check(client, world):
        shown = getattr(client, name)()
        key = shown["apiKey"] if isinstance(shown, dict) else shown.api_key
        same(key[:8], "ps_live_")

    return local(check)


def address(name):
    """A method that answers with an address of the venue's chain."""
    return local(lambda client, world: same(len(getattr(client, name)()), 42))


CLOB = {
    "get_ok": works(get_ok),
    "get_server_time": local(get_server_time),
    "get_address": works(get_address),
    "get_api_keys": works(get_api_keys),
    "get_markets": works(pages(lambda it: it.get_markets())),
    "get_simplified_markets": works(pages(lambda it: it.get_simplified_markets())),
    "get_sampling_markets": works(pages(lambda it: it.get_sampling_markets())),
    "get_sampling_simplified_markets": works(
        pages(lambda it: it.get_sampling_simplified_markets())
    ),
    "get_market": works(get_market),
    "get_order_book": works(get_order_book),
    "get_order_books": works(get_order_books),
    "get_order_book_hash": local(get_order_book_hash),
    "get_midpoint": works(get_midpoint),
    "get_midpoints": works(get_midpoints),
    "get_price": works(get_price),
    "get_prices": works(get_prices),
    "get_spread": works(get_spread),
    "get_spreads": works(get_spreads),
    "get_last_trade_price": works(get_last_trade_price),
    "get_last_trades_prices": works(get_last_trades_prices),
    "get_tick_size": works(get_tick_size),
    "clear_tick_size_cache": answers("clear_tick_size_cache", None),
    "get_neg_risk": works(lambda it, world: same(it.get_neg_risk(token(world)), False)),
    "get_fee_rate_bps": works(get_fee_rate_bps),
    "calculate_market_price": works(calculate_market_price),
    "create_order": works(create_order),
    "create_market_order": works(create_market_order),
    "post_order": works(post_order),
    "post_orders": works(post_orders),
    "create_and_post_order": works(create_and_post_order),
    "get_order": works(get_order),
    "cancel": works(cancel),
    "cancel_orders": works(cancel_orders),
    "cancel_market_orders": works(cancel_market_orders),
    "cancel_all": works(cancel_all),
    "get_orders": works(get_orders),
    "get_trades": works(get_trades),
    "get_balance_allowance": works(get_balance_allowance),
    "update_balance_allowance": answers("update_balance_allowance", {}),
    "assert_level_1_auth": answers("assert_level_1_auth", None),
    "assert_level_2_auth": answers("assert_level_2_auth", None),
    "assert_builder_auth": answers("assert_builder_auth", None),
    "can_builder_auth": answers("can_builder_auth", False),
    "create_api_key": own_key("create_api_key"),
    "derive_api_key": own_key("derive_api_key"),
    "create_or_derive_api_creds": own_key("create_or_derive_api_creds"),
    "create_readonly_api_key": own_key("create_readonly_api_key"),
    "get_readonly_api_key": own_key("get_readonly_api_key"),
    "get_readonly_api_keys": answers("get_readonly_api_keys", []),
    "delete_readonly_api_key": answers("delete_readonly_api_key", {"success": True}),
    "validate_readonly_api_key": answers("validate_readonly_api_key", True),
    "delete_api_key": answers("delete_api_key", {"success": True}),
    "set_api_creds": local(set_api_creds),
    "get_closed_only_mode": answers("get_closed_only_mode", {"closed_only": False}),
    "get_collateral_address": address("get_collateral_address"),
    "get_conditional_address": address("get_conditional_address"),
    "get_exchange_address": address("get_exchange_address"),
    "is_order_scoring": answers("is_order_scoring", {"scoring": False}),
    "are_orders_scoring": answers("are_orders_scoring", {}),
    "get_notifications": answers("get_notifications", {"notifications": []}),
    "drop_notifications": answers("drop_notifications", {"success": True}),
    "get_market_trades_events": answers("get_market_trades_events", {"data": []}, "0x1"),
    "get_builder_trades": answers("get_builder_trades", []),
    "post_heartbeat": answers("post_heartbeat", {"success": True}),
    "close": local(lambda it, world: it.close()),
}
