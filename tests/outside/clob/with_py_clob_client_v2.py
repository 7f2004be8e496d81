"""Calls every method of py-clob-client-v2. `shared.py` says how, and `orders.py` trades."""

from functools import partial

import py_clob_client_v2
from py_clob_client_v2 import ClobClient, clob_types
from py_clob_client_v2.clob_types import (
    ApiCreds,
    BalanceAllowanceParams,
    BookParams,
    BuilderTradeParams,
    DropNotificationParams,
    MarketOrderArgs,
    OpenOrderParams,
    OrderMarketCancelParams,
    OrderPayload,
    OrderScoringParams,
    OrdersScoringParams,
    PostOrdersV2Args,
    PricesHistoryParams,
    TradeParams,
)
from py_clob_client_v2.config import get_contract_config
from py_clob_client_v2.exceptions import PolyApiException, PolyException

import orders
import shared
import trading
from shared import Calls

KEY = "0x" + "22" * 32


def check_refused(expected, call):
    error = shared.refusal(PolyApiException, call)
    assert (error.status_code, error.error_msg) == (expected[0], {"error": expected[1]}), error


def read(host, called):
    """Reads what needs no credential. Returns a token."""
    client = Calls(ClobClient(host, chain_id=137), called)
    assert client.get_ok() == "OK"
    assert client.get_version() == 2
    shared.check_time(client.get_server_time())
    market = shared.check_markets(client)
    condition, tokens = market["condition_id"], [it["token_id"] for it in market["tokens"]]
    books = client.get_order_books([BookParams(token) for token in tokens])
    assert books == [client.get_order_book(token) for token in tokens], books
    for book in books:
        assert client.get_order_book_hash(dict(book)) == book["hash"], book
        # Without one, the client cannot compute what an order costs.
        wallet = Calls(ClobClient(host, chain_id=137, key=KEY), called)
        shared.check_prices(wallet, BookParams, book)
    info = client.get_clob_market_info(condition)
    assert (info["c"], info["mts"]) == (condition, market["minimum_tick_size"]), info
    assert (info["mos"], info["tbf"]) == (market["minimum_order_size"], market["taker_base_fee"])
    assert [it["t"] for it in info["t"]] == tokens, info
    assert client.get_fee_exponent(tokens[0]) == info["fd"]["e"], info
    points = client.get_prices_history(PricesHistoryParams(market=tokens[0], interval="max"))
    mid = float(client.get_midpoint(tokens[0])["mid"])
    assert points["history"][-1]["p"] == mid, points
    assert client.get_market_trades_events(condition) == []
    assert client.get_raw_rewards_for_market(condition) == []
    assert client.get_current_rewards() == []
    trades = client.get_builder_trades(BuilderTradeParams(builder_code="0x" + "1" * 64))
    assert trades == {"trades": [], "next_cursor": "LTE=", "limit": 100, "count": 0}, trades
    return tokens[0]


def check_levels(client, host, called):
    """What a client without a key, and one without credentials, may not do."""
    assert client.assert_level_1_auth() is None
    assert client.assert_level_2_auth() is None
    for options, name in [({}, "assert_level_1_auth"), ({"key": KEY}, "assert_level_2_auth")]:
        poor = Calls(ClobClient(host, chain_id=137, **options), called)
        shared.refusal(PolyException, getattr(poor, name))


def check_fees(called):
    """A purchase with all the cash is smaller by the fees, and another one is not."""
    adjust = Calls(py_clob_client_v2, called).adjust_buy_amount_for_fees
    # A fee of 0.04 × 0.5 × 0.5 a share, of which 200 are bought.
    assert adjust(100, 0.5, 100, 0.04, 1, 0) == 98
    assert adjust(100, 0.5, 103, 0.04, 1, 0) == 100


def check_rewards(client):
    date = "2026-01-01"
    assert client.get_earnings_for_user_for_day(date) == []
    assert client.get_total_earnings_for_user_for_day(date) == []
    assert client.get_user_earnings_and_markets_config(date) == []
    assert client.get_reward_percentages() == {}


def check_other_keys(client):
    """Keys of builders and keys that only read: there are none."""
    assert client.get_builder_api_keys() == []
    assert client.get_readonly_api_keys() == {"readonlyApiKeys": []}
    for call in [
        client.create_builder_api_key,
        client.revoke_builder_api_key,
        client.create_readonly_api_key,
        lambda: client.delete_readonly_api_key("key"),
    ]:
        check_refused(shared.NO_SUCH_KEYS, call)


def check_account(client, token):
    """What a new wallet has."""
    assert client.get_closed_only_mode() == {"closed_only": False}
    contracts = get_contract_config(137)
    exchanges = [contracts.exchange_v2, contracts.neg_risk_exchange_v2]
    shared.check_balances(client, BalanceAllowanceParams, token, exchanges)
    assert client.get_open_orders(OpenOrderParams(asset_id=token)) == []
    assert client.get_pre_migration_orders() == []
    assert client.get_trades(TradeParams(asset_id=token, after=1)) == []
    trades = client.get_trades_paginated()
    assert trades == {"trades": [], "next_cursor": "LTE=", "limit": 100, "count": 0}, trades
    assert client.get_notifications() == []
    assert client.drop_notifications(DropNotificationParams(ids=["1", "2"])) == "OK"
    shared.check_scores(client, OrderScoringParams, OrdersScoringParams)
    check_rewards(client)
    check_other_keys(client)


class Trader(orders.Trader):
    types, failure = clob_types, PolyApiException
    kinds, polls = (0, 1, 2, 3), 1

    @staticmethod
    def create(host, kind):
        wallet = trading.WALLETS[kind]
        return ClobClient(host, 137, trading.KEY, signature_type=kind, funder=wallet)

    def derive(self):
        return self.client.create_or_derive_api_key()

    @staticmethod
    def made_by(signed):
        return signed.signatureType, signed.maker

    def buy(self, outcome, dollars):
        order = MarketOrderArgs(outcome.token, dollars, "BUY", order_type="FOK")
        return self.client.create_and_post_market_order(order, order_type="FOK")

    def post_all(self, listed):
        args = [PostOrdersV2Args(order, order_type) for order, order_type in listed]
        return self.client.post_orders(args)

    def open_orders(self):
        return self.client.get_open_orders()

    def cancel(self, order_id):
        return self.client.cancel_order(OrderPayload(orderID=order_id))

    def cancel_in(self, **names):
        return self.client.cancel_market_orders(OrderMarketCancelParams(**names))

    def beat(self):
        return self.client.post_heartbeat()


def first(host, called):
    token = read(host, called)
    client = Calls(ClobClient(host, chain_id=137, key=KEY), called)
    check_refused((400, "Could not derive api key!"), client.derive_api_key)
    credentials = client.create_api_key()
    known = (credentials.api_key, credentials.api_secret, credentials.api_passphrase)
    shared.check_credentials(*known)
    assert client.derive_api_key() == client.create_or_derive_api_key() == credentials
    other = client.create_api_key(nonce=7)
    assert other != credentials
    client.set_api_creds(credentials)
    keys = [credentials.api_key, other.api_key]
    assert client.get_api_keys() == {"apiKeys": keys}, keys
    check_account(client, token)
    check_levels(client, host, called)
    check_fees(called)
    shared.check_rfq(client, PolyApiException)
    traded = orders.first(Trader(host, called), host)
    return {"credentials": known, "traded": traded}


def second(host, known, called):
    orders.second(partial(Trader, host, called), known["traded"], host)
    credentials = ApiCreds(*known["credentials"])
    client = Calls(ClobClient(host, chain_id=137, key=KEY, creds=credentials), called)
    assert client.derive_api_key() == credentials
    keys = client.get_api_keys()["apiKeys"]
    assert len(keys) == 2 and keys[0] == credentials.api_key, keys
    shared.check_scores(client, OrderScoringParams, OrdersScoringParams)
    assert client.get_address().startswith("0x")
    assert client.delete_api_key() == "OK"
    check_refused(shared.UNAUTHORIZED, client.get_api_keys)
    check_refused((400, "Could not derive api key!"), client.derive_api_key)
    client.set_api_creds(client.create_or_derive_api_key())
    assert client.get_api_keys()["apiKeys"][0] == keys[1]


shared.run(first, second, ClobClient, py_clob_client_v2)
