"""Calls every method of Polymarket's Python client that needs no credential, on the server whose
address is the argument. A new version of the client with another such method fails here.
"""

import inspect
import sys

from py_clob_client_v2 import ClobClient
from py_clob_client_v2.clob_types import BookParams, BuilderTradeParams, PricesHistoryParams

# What only computes, or belongs to a method with a credential.
WITHOUT_SERVER = {"assert_level_1_auth", "assert_level_2_auth", "get_address", "set_api_creds"}


def listed(read):
    """All rows of a list, and its first page. Ends only if the list does."""
    cursor, rows, first = "MA==", [], None
    while cursor != "LTE=":
        page = read(next_cursor=cursor)
        assert set(page) == {"data", "next_cursor", "limit", "count"}, page.keys()
        assert page["count"] == len(page["data"]) <= page["limit"], page["count"]
        first = first or page
        rows += page["data"]
        cursor = page["next_cursor"]
    return rows


def check_books(client, tokens):
    """Books, and that the client computes their hashes."""
    books = client.get_order_books([BookParams(token) for token in tokens])
    assert len(books) > 10, len(books)
    for book in books:
        assert client.get_order_book_hash(dict(book)) == book["hash"], book
    one = client.get_order_book(tokens[0])
    assert client.get_order_book_hash(dict(one)) == one["hash"], one
    return one


def prices(client, token):
    bid = client.get_price(token, "BUY")["price"]
    ask = client.get_price(token, "SELL")["price"]
    mid = client.get_midpoint(token)["mid"]
    assert float(bid) < float(mid) < float(ask), (bid, mid, ask)
    both = client.get_prices([BookParams(token, "BUY"), BookParams(token, "SELL")])
    assert set(both[token]) == {"BUY", "SELL"}, both
    assert set(client.get_midpoints([BookParams(token)])) == {token}
    assert set(client.get_spreads([BookParams(token)])) == {token}
    assert float(client.get_spread(token)["spread"]) > 0
    assert set(client.get_last_trade_price(token)) == {"price", "side"}
    rows = client.get_last_trades_prices([BookParams(token)])
    # There is a row once a trade was reported with its side.
    assert all(row["token_id"] == token and row["side"] in ("BUY", "SELL") for row in rows), rows
    assert float(client.calculate_market_price(token, "BUY", 5)) > 0
    assert float(client.calculate_market_price(token, "SELL", 5)) > 0


def terms(client, market, token):
    condition = market["condition_id"]
    assert client.get_market(condition)["condition_id"] == condition
    assert client.get_clob_market_info(condition)["c"] == condition
    # The client remembers what it has read, so that a new one has to ask again.
    fresh = type(client)(client.host, chain_id=137)
    assert fresh.get_tick_size(token) == client.get_tick_size(token)
    assert fresh.get_neg_risk(token) == client.get_neg_risk(token)
    assert fresh.get_fee_rate_bps(token) in (0, 1000)
    assert fresh.get_fee_exponent(token) in (0, 1, 2)
    assert client.get_market_trades_events(condition) == []
    assert client.get_raw_rewards_for_market(condition) == []


def main(host):
    called = set()

    class Recording(ClobClient):
        """The client, which notes the methods that are called."""

        def __getattribute__(self, name):
            if not name.startswith("_"):
                called.add(name)
            return super().__getattribute__(name)

    client = Recording(host, chain_id=137)
    assert client.get_ok() == "OK"
    assert client.get_version() == 2
    assert isinstance(client.get_server_time(), int)
    markets = listed(client.get_markets)
    assert len(listed(client.get_simplified_markets)) == len(markets) > 10
    open_markets = listed(client.get_sampling_markets)
    assert 0 < len(listed(client.get_sampling_simplified_markets)) <= len(markets)
    tokens = [market["tokens"][0]["token_id"] for market in open_markets]
    book = check_books(client, tokens)
    token = book["asset_id"]
    prices(client, token)
    terms(client, open_markets[0], token)
    history = client.get_prices_history(PricesHistoryParams(market=token, interval="max"))
    assert set(history) == {"history"} and history["history"], history
    assert client.get_current_rewards() == []
    code = "0x" + "1" * 64
    assert client.get_builder_trades(BuilderTradeParams(builder_code=code))["trades"] == []

    def is_open(method):
        source = inspect.getsource(method)
        needs = ["_l1_headers", "_l2_headers", "assert_level", "signer", "create_order", "post_order"]
        return not any(word in source for word in needs)

    methods = inspect.getmembers(ClobClient, inspect.isfunction)
    public = [(name, method) for name, method in methods if not name.startswith("_")]
    left = {name for name, method in public if is_open(method)} - called - WITHOUT_SERVER
    left = {name for name in left if "market_order" not in name and not name.startswith("create_")}
    assert not left, f"not called: {sorted(left)}"
    print(len(called & {name for name, _ in public}))


main(sys.argv[1])
