"""Places, reads and cancels orders with Polymarket's Python client, py-clob-client-v2, on the
server whose address is the first argument. `shared.py` says how the two halves are told apart.
"""

import json
import sys
import time
from decimal import Decimal

from py_clob_client_v2 import ClobClient
from py_clob_client_v2.clob_types import (
    ApiCreds,
    BalanceAllowanceParams,
    MarketOrderArgs,
    OrderArgs,
    OrderMarketCancelParams,
    OrderPayload,
    OrderType,
    PostOrdersV2Args,
    TradeParams,
)
from py_clob_client_v2.exceptions import PolyApiException

import shared

KEY = "0x" + "77" * 32

# Clients take 30 seconds if they find no transactions.
POLL_SECONDS_MAX = 5


def balance(client, token=None):
    asset_type = "CONDITIONAL" if token else "COLLATERAL"
    params = BalanceAllowanceParams(asset_type=asset_type, token_id=token)
    return Decimal(client.get_balance_allowance(params)["balance"]) / 1_000_000


def check_refused(text, call):
    error = shared.refusal(PolyApiException, call)
    assert error.status_code == 400 and text in error.error_msg["error"], error


def buy(client, token, ask):
    """Buys for dollars, which are spent at the best price. Returns the trade."""
    order = MarketOrderArgs(token_id=token, amount=20, side="BUY", order_type=OrderType.FOK)
    began = time.monotonic()
    answer = client.create_and_post_market_order(order, order_type=OrderType.FOK)
    assert time.monotonic() - began < POLL_SECONDS_MAX
    assert answer["success"] and answer["status"] == "matched", answer
    spent, shares = Decimal(answer["makingAmount"]), Decimal(answer["takingAmount"])
    assert 20 - ask < spent <= 20 and spent == shares * ask, answer
    [trade] = client.get_trades(TradeParams(id=answer["tradeIDs"][0]))
    assert [trade["transaction_hash"]] == answer["transactionsHashes"], trade
    assert (Decimal(trade["size"]), Decimal(trade["price"])) == (shares, ask), trade
    assert (trade["taker_order_id"], trade["asset_id"]) == (answer["orderID"], token), trade
    assert balance(client) == shared.CASH // 1_000_000 - spent
    assert balance(client, token) == shares
    assert client.get_order(answer["orderID"])["status"] == "MATCHED"
    return trade


def rest(client, token, bid):
    """Places an order that rests, again and again. Returns its id."""
    signed = client.create_order(OrderArgs(token_id=token, price=float(bid), size=10, side="BUY"))
    answer = client.post_order(signed, OrderType.GTC)
    assert (answer["status"], answer["makingAmount"]) == ("live", ""), answer
    for order_type in [OrderType.GTC, OrderType.FOK]:
        assert client.post_order(signed, order_type) == answer
    args = [PostOrdersV2Args(order=signed, orderType=OrderType.GTC)] * 2
    assert client.post_orders(args) == [answer, answer]
    [row] = client.get_open_orders()
    assert row == client.get_order(answer["orderID"]), row
    assert (row["id"], row["status"]) == (answer["orderID"], "LIVE"), row
    sizes = [Decimal(row[name]) for name in ("original_size", "size_matched", "price")]
    assert sizes == [10, 0, bid], row
    return answer["orderID"]


def refused(client, token, ask):
    """Orders that the venue refuses, in its words."""
    order = OrderArgs(token_id=token, price=float(ask), size=1_000_000, side="BUY")
    check_refused("not enough balance / allowance", lambda: client.create_and_post_order(order))
    order = OrderArgs(token_id=token, price=float(ask), size=10, side="BUY")
    check_refused(
        "invalid post-only order: order crosses book",
        lambda: client.create_and_post_order(order, post_only=True),
    )
    order = OrderArgs(token_id=token, price=0.01, size=2, side="BUY")
    check_refused("lower than the minimum: 5", lambda: client.create_and_post_order(order))
    sale = MarketOrderArgs(token_id=token, amount=900_000, side="SELL", price=0.01)
    check_refused(
        "not enough balance / allowance", lambda: client.create_and_post_market_order(sale)
    )


def first(host):
    client = ClobClient(host, chain_id=137, key=KEY)
    credentials = client.create_or_derive_api_key()
    client.set_api_creds(credentials)
    market = next(
        it
        for it in client.get_sampling_markets()["data"]
        if it["taker_base_fee"] == 0 and it["minimum_tick_size"] == 0.01
    )
    token = market["tokens"][0]["token_id"]
    book = client.get_order_book(token)
    bid, ask = (Decimal(book[side][-1]["price"]) for side in ("bids", "asks"))
    trade = buy(client, token, ask)
    refused(client, token, ask)
    order_id = rest(client, token, bid)
    keys = [credentials.api_key, credentials.api_secret, credentials.api_passphrase]
    return {"keys": keys, "token": token, "order": order_id, "trade": trade, "bid": str(bid)}


def second(host, known):
    """What was there before the server was killed is there after it."""
    client = ClobClient(host, chain_id=137, key=KEY, creds=ApiCreds(*known["keys"]))
    token, order_id = known["token"], known["order"]
    assert [it["id"] for it in client.get_open_orders()] == [order_id]
    assert client.get_trades() == [known["trade"]]
    assert client.cancel_order(OrderPayload(orderID=order_id))["canceled"] == [order_id]
    again = client.cancel_order(OrderPayload(orderID=order_id))
    assert "already canceled or matched" in again["not_canceled"][order_id], again
    assert client.get_order(order_id)["status"] == "CANCELED"
    order = OrderArgs(token_id=token, price=float(known["bid"]), size=10, side="BUY")
    ids = [client.create_and_post_order(order)["orderID"] for _ in range(4)]
    assert client.cancel_orders(ids[:2])["canceled"] == ids[:2]
    in_token = OrderMarketCancelParams(asset_id=token)
    assert client.cancel_market_orders(in_token)["canceled"] == ids[2:]
    assert client.cancel_all() == {"canceled": [], "not_canceled": {}}
    beat = client.post_heartbeat()["heartbeat_id"]
    assert client.post_heartbeat(beat)["heartbeat_id"] != beat
    wrong = shared.refusal(PolyApiException, lambda: client.post_heartbeat("x"))
    assert wrong.error_msg["error_msg"] == "Invalid Heartbeat ID", wrong


host, *known = sys.argv[1:]
if known:
    second(host, json.loads(known[0]))
    print(1)
else:
    print(json.dumps(first(host)))
