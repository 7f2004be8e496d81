"""Calls every method of py-clob-client, the archived one. `shared.py` says how, and `orders.py`
trades.
"""

import json
from functools import partial

import py_clob_client
from py_builder_signing_sdk.config import BuilderApiKeyCreds, BuilderConfig
from py_clob_client import clob_types
from py_clob_client.client import ClobClient
from py_clob_client.clob_types import (
    ApiCreds,
    BalanceAllowanceParams,
    BookParams,
    DropNotificationParams,
    MarketOrderArgs,
    OpenOrderParams,
    OrderScoringParams,
    OrdersScoringParams,
    PostOrdersArgs,
    TradeParams,
)
from py_clob_client.config import get_contract_config
from py_clob_client.exceptions import PolyApiException, PolyException

import orders
import shared
import trading
from shared import Calls

KEY = "0x" + "33" * 32

# Also the default of the client's examples, whose signatures name another chain.
AMOY = 80002


def check_refused(expected, call):
    error = shared.refusal(PolyApiException, call)
    assert (error.status_code, error.error_msg) == (expected[0], {"error": expected[1]}), error


def read(host, called):
    """Reads what needs no credential. Returns a token."""
    client = Calls(ClobClient(host), called)
    assert client.get_ok() == "OK"
    shared.check_time(client.get_server_time())
    market = shared.check_markets(client)
    tokens = [it["token_id"] for it in market["tokens"]]
    books = client.get_order_books([BookParams(token) for token in tokens])
    assert books == [client.get_order_book(token) for token in tokens], books
    for book in books:
        expected = book.hash
        assert client.get_order_book_hash(book) == expected, book
        # Without one, the client cannot compute what an order costs.
        wallet = Calls(ClobClient(host, chain_id=AMOY, key=KEY), called)
        shared.check_prices(wallet, BookParams, json.loads(book.json))
    client.clear_tick_size_cache()
    assert client.get_tick_size(tokens[0]) == str(market["minimum_tick_size"])
    assert client.get_market_trades_events(market["condition_id"]) == []
    builder = BuilderConfig(local_builder_creds=BuilderApiKeyCreds("key", "c2VjcmV0", "phrase"))
    client = Calls(ClobClient(host, chain_id=AMOY, key=KEY, builder_config=builder), called)
    assert client.get_builder_trades() == []
    assert client.can_builder_auth() is True and client.assert_builder_auth() is None
    return tokens[0]


def check_levels(client, host, called):
    """What a client without a key, credentials or a builder may not do, and its addresses."""
    assert client.assert_level_1_auth() is None
    assert client.assert_level_2_auth() is None
    assert client.can_builder_auth() is False
    shared.refusal(PolyException, client.assert_builder_auth)
    options = {"chain_id": AMOY}
    for more, name in [({}, "assert_level_1_auth"), ({"key": KEY}, "assert_level_2_auth")]:
        poor = Calls(ClobClient(host, **options, **more), called)
        shared.refusal(PolyException, getattr(poor, name))
    contracts = get_contract_config(AMOY)
    assert client.get_collateral_address() == contracts.collateral
    assert client.get_conditional_address() == contracts.conditional_tokens
    assert client.get_exchange_address() == contracts.exchange


def check_account(client, token):
    """What a new wallet has."""
    assert client.get_closed_only_mode() == {"closed_only": False}
    exchanges = [client.get_exchange_address(neg_risk) for neg_risk in (False, True)]
    shared.check_balances(client, BalanceAllowanceParams, token, exchanges)
    assert client.get_orders(OpenOrderParams(asset_id=token)) == []
    assert client.get_trades(TradeParams(asset_id=token, after=1)) == []
    assert client.get_notifications() == []
    assert client.drop_notifications(DropNotificationParams(ids=["1", "2"])) == "OK"
    shared.check_scores(client, OrderScoringParams, OrdersScoringParams)
    assert client.get_readonly_api_keys() == {"readonlyApiKeys": []}
    for call in [
        client.create_readonly_api_key,
        lambda: client.delete_readonly_api_key("key"),
        lambda: client.validate_readonly_api_key(client.get_address(), "key"),
    ]:
        check_refused(shared.NO_SUCH_KEYS, call)


class Trader(orders.Trader):
    types, failure = clob_types, PolyApiException
    # Versions of orders before the second know no deposit wallets.
    kinds, polls = (0, 1, 2), 0

    @staticmethod
    def create(host, kind):
        wallet = trading.WALLETS[kind]
        return ClobClient(host, 137, trading.KEY, signature_type=kind, funder=wallet)

    def derive(self):
        return self.client.create_or_derive_api_creds()

    @staticmethod
    def made_by(signed):
        order = signed.dict()
        return order["signatureType"], order["maker"]

    def buy(self, outcome, dollars):
        order = MarketOrderArgs(outcome.token, dollars, "BUY", order_type="FOK")
        return self.client.post_order(self.client.create_market_order(order), "FOK")

    def post_all(self, listed):
        args = [PostOrdersArgs(order, order_type) for order, order_type in listed]
        return self.client.post_orders(args)

    def open_orders(self):
        return self.client.get_orders()

    def cancel(self, order_id):
        return self.client.cancel(order_id)

    def cancel_in(self, **names):
        return self.client.cancel_market_orders(**names)

    def beat(self):
        return self.client.post_heartbeat(None)


def first(host, called):
    token = read(host, called)
    client = Calls(ClobClient(host, chain_id=AMOY, key=KEY), called)
    check_refused((400, "Could not derive api key!"), client.derive_api_key)
    credentials = client.create_api_key()
    known = (credentials.api_key, credentials.api_secret, credentials.api_passphrase)
    shared.check_credentials(*known)
    assert client.derive_api_key() == client.create_or_derive_api_creds() == credentials
    assert client.create_api_key(nonce=7) != credentials
    client.set_api_creds(credentials)
    check_account(client, token)
    check_levels(client, host, called)
    shared.check_rfq(client, PolyApiException)
    traded = orders.first(Trader(host, called), host)
    return {"credentials": known, "traded": traded}


def second(host, known, called):
    orders.second(partial(Trader, host, called), known["traded"], host)
    known = known["credentials"]
    client = Calls(ClobClient(host, chain_id=AMOY, key=KEY, creds=ApiCreds(*known)), called)
    assert client.derive_api_key() == ApiCreds(*known)
    keys = client.get_api_keys()["apiKeys"]
    assert len(keys) == 2 and keys[0] == known[0], keys
    shared.check_scores(client, OrderScoringParams, OrdersScoringParams)
    assert client.delete_api_key() == "OK"
    check_refused(shared.UNAUTHORIZED, client.get_api_keys)


shared.run(first, second, ClobClient, py_clob_client)
