"""What the scripts for Polymarket's Python clients share: the two halves of a run, between which
the server is killed, and the checks that the older clients can make in the same words.

`SCRIPT HOST` runs the first half, and prints what the second needs to know; `SCRIPT HOST KNOWN`
runs the second, and prints the number of methods that were called. A new version of a client with a
method that is neither called nor left out for a reason fails there. Requests for quotes (RFQ) are
the `rfq` of a client; this server has none.

The venue of the server stands still, so that answers can be compared value by value.
"""

import base64
import inspect
import json
import pickle
import sys
import time
import uuid
from decimal import Decimal

# The cash of a new account, in millionths of a dollar.
CASH = 1_000_000_000

UNLIMITED = 2**256 - 1

UNAUTHORIZED = (401, "Unauthorized/Invalid api key")
NO_SUCH_KEYS = (404, "not found: this server has no keys of this kind")

# An id that clients sign in another way than they send it.
APOSTROPHE = "it's"


class Calls:
    """A client whose methods are noted when they are looked up."""

    def __init__(self, client, called):
        self._client = client
        self._called = called

    def __getattr__(self, name):
        self._called.add(name)
        return getattr(self._client, name)


def public(it):
    return {name for name, _ in inspect.getmembers(it) if not name.startswith("_")}


def run(first, second, client_class, package, elsewhere=frozenset(), left_out=frozenset()):
    """Runs the half that the arguments ask for. All public methods of the client and all functions
    of its package have to be called, here or elsewhere, except those that are left out."""
    host, *known = sys.argv[1:]
    if not known:
        called = set()
        known = first(host, called)
        print(json.dumps({"known": known, "called": sorted(called)}))
        return
    known = json.loads(known[0])
    called = set(known["called"]) | elsewhere
    second(host, known["known"], called)
    methods = public(client_class)
    functions = inspect.getmembers(package, inspect.isfunction)
    methods |= {name for name, _ in functions if not name.startswith("_")}
    assert not methods - called - left_out, f"not called: {sorted(methods - called - left_out)}"
    assert left_out <= methods, f"not there: {sorted(left_out - methods)}"
    assert not left_out & called, f"called: {sorted(left_out & called)}"
    print(len(called & methods))


def pickled(it):
    """A text for the second half, of what the clients alone can make."""
    return base64.b64encode(pickle.dumps(it)).decode()


def unpickled(text):
    return pickle.loads(base64.b64decode(text))


def refusal(failure, call):
    """Returns the exception with which a call must fail."""
    try:
        answer = call()
    except failure as error:
        return error
    raise AssertionError(f"not refused: {answer}")


def check_rfq(client, failure):
    """What asks for quotes, as far as it needs no argument, is not there."""
    for name in ["get_rfq_requests", "get_rfq_requester_quotes", "get_rfq_quoter_quotes",
                 "get_rfq_best_quote", "rfq_config"]:
        error = refusal(failure, getattr(client.rfq, name))
        assert error.status_code == 404, (name, error)


def check_credentials(api_key, secret, passphrase):
    assert str(uuid.UUID(api_key)) == api_key, api_key
    assert len(base64.urlsafe_b64decode(secret)) == 32, secret
    assert passphrase, passphrase


def check_time(seconds):
    assert abs(seconds - time.time()) < 60, seconds


def listed(read):
    """All rows of a list. Ends only if the list does."""
    cursor, rows = "MA==", []
    while cursor != "LTE=":
        page = read(next_cursor=cursor)
        assert set(page) == {"data", "next_cursor", "limit", "count"}, page.keys()
        assert page["count"] == len(page["data"]) <= page["limit"], page["count"]
        rows += page["data"]
        cursor = page["next_cursor"]
    return rows


def check_markets(client):
    """The lists of markets agree with each other, and with what is asked by token. Returns the
    first market with fees."""
    markets = listed(client.get_markets)
    simplified = listed(client.get_simplified_markets)
    assert len(markets) > 10, len(markets)
    for market, short in zip(markets, simplified, strict=True):
        assert short == {name: market[name] for name in short}, (market, short)
    assert listed(client.get_sampling_markets) == [it for it in markets if it["accepting_orders"]]
    short = [it for it in simplified if it["accepting_orders"]]
    assert listed(client.get_sampling_simplified_markets) == short
    for market in markets:
        assert client.get_market(market["condition_id"]) == market
        for token in market["tokens"]:
            tick_size = client.get_tick_size(token["token_id"])
            assert tick_size == str(market["minimum_tick_size"]), tick_size
            assert client.get_neg_risk(token["token_id"]) == market["neg_risk"]
            assert client.get_fee_rate_bps(token["token_id"]) == market["taker_base_fee"]
    return next(market for market in markets if market["taker_base_fee"] > 0)


def check_prices(client, book_params, book):
    """What is asked about a token is in its book, which is a dictionary."""
    token = book["asset_id"]
    bid, ask = (Decimal(book[side][-1]["price"]) for side in ("bids", "asks"))
    assert bid == max(Decimal(level["price"]) for level in book["bids"])
    assert ask == min(Decimal(level["price"]) for level in book["asks"])
    assert Decimal(client.get_price(token, "BUY")["price"]) == bid
    assert Decimal(client.get_price(token, "SELL")["price"]) == ask
    mid, spread = client.get_midpoint(token)["mid"], client.get_spread(token)["spread"]
    assert (Decimal(mid), Decimal(spread)) == ((bid + ask) / 2, ask - bid), (mid, spread)
    both = client.get_prices([book_params(token, "BUY"), book_params(token, "SELL")])
    assert both == {token: {"BUY": str(bid), "SELL": str(ask)}}, both
    unknown = book_params("1")
    assert client.get_midpoints([book_params(token), unknown]) == {token: mid}
    assert client.get_spreads([book_params(token), unknown]) == {token: spread}
    last = client.get_last_trade_price(token)
    assert last == {"price": book["last_trade_price"], "side": ""}, last
    # No trade was reported with its side yet.
    assert client.get_last_trades_prices([book_params(token), unknown]) == []
    # The best level is large enough for either.
    assert client.calculate_market_price(token, "BUY", 5, "FOK") == float(ask)
    assert client.calculate_market_price(token, "SELL", 5, "FOK") == float(bid)


def check_balances(client, balance_params, token, exchanges):
    """A new wallet has cash and no shares, and the exchanges that the client trades with may spend
    both."""
    for asset_type, token_id, balance in [("COLLATERAL", None, CASH), ("CONDITIONAL", token, 0)]:
        params = balance_params(asset_type=asset_type, token_id=token_id)
        answer = client.get_balance_allowance(params)
        assert answer["balance"] == str(balance), answer
        for exchange in exchanges:
            assert answer["allowances"][exchange] == str(UNLIMITED), (exchange, answer)
        assert client.update_balance_allowance(params) == answer


def check_scores(client, score_params, scores_params):
    assert client.is_order_scoring(score_params(orderId="0x1")) == {"scoring": False}
    scores = client.are_orders_scoring(scores_params(orderIds=["0x1", APOSTROPHE]))
    assert scores == {"0x1": False, APOSTROPHE: False}, scores
