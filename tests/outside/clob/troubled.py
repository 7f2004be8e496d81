"""A Python client of Polymarket's that makes calls while the server has trouble.

`troubled.py PACKAGE HOST` reads the names of calls, one a line, and prints what came of each: JSON
with `outcome`, what was returned or raised, and `seconds`, how long it took. What a client keeps of
the server's answers, it has asked for before.
"""

import dataclasses
import json
import logging
import sys
import time

import trading

PRICE, SHARES = 0.01, 5
LIMIT, DOLLARS = 0.99, 2


def taken(status, hashes):
    """How an order was taken, and in how many transactions, if the client knows."""
    return f"{status} in {len(hashes)}" if hashes else status


def listed_token(client):
    markets = client.get_sampling_markets()["data"]
    market = next(it for it in markets if str(it["minimum_tick_size"]) == "0.01")
    return market["tokens"][0]["token_id"]


def shown(error):
    """An exception by its class, and by what a bot can tell it from others."""
    status = getattr(error, "status_code", getattr(error, "status", None))
    wait = getattr(error, "retry_after", None)
    details = [status, getattr(error, "restriction", None), wait and f"after {wait:.0f}"]
    return " ".join([type(error).__name__, *(str(it) for it in details if it)])


def old_calls(host):
    """The calls of py-clob-client, which signs orders of version 1."""
    from py_clob_client.client import ClobClient
    from py_clob_client.clob_types import MarketOrderArgs, OrderArgs

    client = ClobClient(host, 137, trading.KEY)
    client.set_api_creds(client.create_or_derive_api_creds())
    token = listed_token(client)
    order = OrderArgs(token, PRICE, SHARES, "BUY")
    market = MarketOrderArgs(token, DOLLARS, "BUY", LIMIT)

    def take():
        return client.post_order(client.create_market_order(market), "FAK")["status"]

    return {
        "place": lambda: client.create_and_post_order(order)["status"],
        "take": take,
        "orders": lambda: f"{len(client.get_orders())} orders",
        "cancel": lambda: client.cancel_all() and "done",
        "time": lambda: f"{round(client.get_server_time() - time.time(), -1):.0f} s ahead",
    }


def calls(host):
    """The calls of py-clob-client-v2, with its options."""
    from py_clob_client_v2 import ClobClient
    from py_clob_client_v2.clob_types import MarketOrderArgs, OrderArgs

    client = ClobClient(host, 137, trading.KEY)
    credentials = client.create_or_derive_api_key()
    token = listed_token(client)
    order = OrderArgs(token, PRICE, SHARES, "BUY")
    market = MarketOrderArgs(token, DOLLARS, "BUY", LIMIT)

    def create(**options):
        client = ClobClient(host, 137, trading.KEY, creds=credentials, **options)
        client.create_order(order)
        return client

    client, retrying = create(), create(retry_on_error=True)
    timed = create(use_server_time=True)

    def take():
        answer = client.create_and_post_market_order(market, order_type="FAK")
        return taken(answer["status"], answer.get("transactionsHashes"))

    return {
        "take": take,
        "place": lambda: client.create_and_post_order(order)["status"],
        "place retrying": lambda: retrying.create_and_post_order(order)["status"],
        "orders": lambda: f"{len(client.get_open_orders())} orders",
        "orders by server time": lambda: f"{len(timed.get_open_orders())} orders",
        "cancel": lambda: client.cancel_all() and "done",
        "time": lambda: f"{round(client.get_server_time() - time.time(), -1):.0f} s ahead",
    }


def unified_calls(host):
    """The calls of polymarket-client."""
    from polymarket import SecureClient
    from polymarket._internal.environment import PRODUCTION_CONFIG, create_environment

    config = dataclasses.replace(PRODUCTION_CONFIG, clob_url=host)
    environment = create_environment(name="paper", config=config)
    client = SecureClient._create(
        private_key=trading.KEY, wallet=trading.WALLETS[0], environment=environment
    )
    outcome, _ = trading.outcomes(host)
    order = {"asset_id": outcome.token, "price": PRICE, "size": SHARES, "side": "BUY"}
    market = {"asset_id": outcome.token, "side": "BUY", "amount": DOLLARS, "max_price": LIMIT}

    def take():
        return client.place_market_order(**market, order_type="FAK")

    def take_and_wait():
        return taken("", client.wait_for_order_fill_settlement(take())).strip()

    return {
        "place": lambda: client.place_limit_order(**order).status,
        "take": lambda: take().status,
        "take and wait": take_and_wait,
        "orders": lambda: f"{len(list(client.list_open_orders().iter_items()))} orders",
        "cancel": lambda: client.cancel_all() and "done",
    }


def run(calls):
    for line in sys.stdin:
        began = time.monotonic()
        try:
            outcome = calls[line.strip()]()
        except Exception as error:
            outcome = shown(error)
        seconds = time.monotonic() - began
        print(json.dumps({"outcome": outcome, "seconds": seconds}), flush=True)


logging.disable()
PACKAGES = {
    "py-clob-client": old_calls,
    "py-clob-client-v2": calls,
    "polymarket-client": unified_calls,
}
package, host = sys.argv[1:]
calls = PACKAGES[package](host)
for name in ("place", "take", "cancel"):
    calls[name]()
print("ready", flush=True)
run(calls)
