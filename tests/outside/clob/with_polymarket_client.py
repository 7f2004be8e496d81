"""Calls every method of polymarket-client, the unified one, that asks the order book's server. Its
models are strict: an answer that lacks a field fails. `shared.py` says how, and
`unified_orders.py` trades. `catalogue.py` and `data.py` call those that ask other servers, and
`unified_left_out.py` lists what this server does not have.
"""

import dataclasses
import json
import urllib.request
from decimal import Decimal

import polymarket
from eth_account import Account
from polymarket import AsyncSecureClient, PublicClient, SecureClient
from polymarket._internal.environment import PRODUCTION_CONFIG, create_environment
from polymarket.auth import BuilderApiKey
from polymarket.errors import RequestRejectedError
from polymarket.models.clob import ApiKeyCreds, PriceRequest

import catalogue
import data
import shared
import trading
import unified_left_out
import unified_orders
from shared import Calls

KEY = "0x" + "44" * 32
# Without it, the client looks for its deposit wallet on a chain.
WALLET = Account.from_key(KEY).address

BUILDER = "0x" + "1" * 64
DATE = "2026-01-01"


def environment(host):
    config = dataclasses.replace(PRODUCTION_CONFIG, clob_url=host)
    return create_environment(name="paper", config=config)


def create(host, called, **options):
    client = Calls(SecureClient, called).create(
        private_key=KEY, wallet=WALLET, environment=environment(host), **options
    )
    return Calls(client, called)


def traders(host, called, credentials=None):
    """A client for each wallet of a signer that trades. `create` would ask another server whether
    the wallet exists."""
    options = {"private_key": trading.KEY, "environment": environment(host)}
    clients = []
    for wallet in trading.WALLETS:
        client = SecureClient._create(wallet=wallet, credentials=credentials, **options)
        credentials = client.credentials
        clients.append(Calls(client, called))
    kinds = [client.wallet_type for client in clients]
    assert kinds == ["EOA", "POLY_PROXY", "GNOSIS_SAFE", "DEPOSIT_WALLET"], kinds
    return clients


def check_refused(expected, call):
    error = shared.refusal(RequestRejectedError, call)
    assert (error.status, str(error)) == expected, (error.status, error)


def check_empty(*lists):
    for rows in lists:
        assert list(rows.iter_items()) == [], rows


def market_of(host):
    """A market with fees. The client itself reads markets from another server."""
    with urllib.request.urlopen(f"{host}/markets") as answer:
        markets = json.load(answer)["data"]
    return next(market for market in markets if market["taker_base_fee"] > 0)


def check_book(client, market, book):
    """What is asked about a token is in its book."""
    token = book.asset_id
    assert client.get_order_book(asset_id=token) == book
    assert book.condition_id == market["condition_id"], book
    assert book.tick_size == Decimal(str(market["minimum_tick_size"])), book
    assert book.min_order_size == market["minimum_order_size"], book
    assert book.neg_risk == market["neg_risk"], book
    bid, ask = book.bids[-1].price, book.asks[-1].price
    assert bid == max(level.price for level in book.bids)
    assert ask == min(level.price for level in book.asks)
    prices = {"BUY": bid, "SELL": ask}
    for side, price in prices.items():
        assert client.get_price(asset_id=token, side=side) == price
    requests = [PriceRequest(token, side) for side in prices]
    assert client.get_prices(requests=requests) == {token: prices}
    assert client.get_midpoint(asset_id=token) == (bid + ask) / 2
    assert client.get_midpoints(asset_ids=[token, "1"]) == {token: (bid + ask) / 2}
    assert client.get_spread(asset_id=token) == ask - bid
    assert client.get_spreads(asset_ids=[token, "1"]) == {token: ask - bid}
    # No trade was reported with its side yet.
    assert client.get_last_trade_price(asset_id=token) is None
    assert client.get_last_trade_prices(asset_ids=[token, "1"]) == ()
    # The best level is large enough for either.
    assert client.estimate_market_price(asset_id=token, side="BUY", amount=5) == ask
    assert client.estimate_market_price(asset_id=token, side="SELL", shares=5) == bid


def read(client, market):
    """Reads what needs no credential."""
    tokens = [token["token_id"] for token in market["tokens"]]
    books = client.get_order_books(asset_ids=tokens)
    assert [book.asset_id for book in books] == tokens, books
    for book in books:
        check_book(client, market, book)
    check_empty(
        client.list_reward_markets(),
        client.list_current_rewards(sponsored=True),
        client.list_market_rewards(condition_id=market["condition_id"]),
        client.list_builder_trades(builder_code=BUILDER),
    )
    assert client.get_current_rebates(date=DATE, maker_address=WALLET) == ()


def check_balances(client, token):
    exchanges = [PRODUCTION_CONFIG.standard_exchange, PRODUCTION_CONFIG.neg_risk_exchange]
    for asset_type, asset_id, balance in [
        ("COLLATERAL", None, shared.CASH),
        ("CONDITIONAL", token, 0),
        ("CONDITIONAL-V2", token, 0),
    ]:
        answer = client.get_balance_allowance(asset_type=asset_type, asset_id=asset_id)
        assert answer.balance == balance, answer
        for exchange in [*exchanges, PRODUCTION_CONFIG.exchange_v3]:
            assert answer.allowances[exchange] == shared.UNLIMITED, (exchange, answer)


def check_rewards(client):
    check_empty(
        client.list_user_earnings_for_day(date=DATE),
        client.list_user_earnings_and_markets_config(date=DATE, page_size=10),
    )
    assert client.get_total_earnings_for_user_for_day(date=DATE, sponsored=True) == ()
    assert client.get_reward_percentages() == {}
    assert client.get_order_scoring(order_id="0x1") is False
    scores = client.get_orders_scoring(order_ids=["0x1", shared.APOSTROPHE])
    assert scores == {"0x1": False, shared.APOSTROPHE: False}, scores


def check_account(client, market):
    """What a new wallet has."""
    token = market["tokens"][0]["token_id"]
    assert client.get_closed_only_mode() is False
    check_balances(client, token)
    check_empty(
        client.list_open_orders(asset_id=token),
        client.list_account_trades(asset_id=token, after="1"),
    )
    assert client.get_notifications() == ()
    assert client.drop_notifications(ids=[1, 2]) is None
    check_rewards(client)
    assert client.fetch_builder_api_keys() == ()
    check_refused(shared.NO_SUCH_KEYS, client.create_builder_api_key)
    fees = client.get_builder_fee_rates(BUILDER)
    assert (fees.maker, fees.taker) == (0, 0), fees


def check_left_out(host, market):
    """Nothing that is left out works, with each address of the client being this server's."""
    names = [it.name for it in dataclasses.fields(PRODUCTION_CONFIG)]
    addresses = [name for name in names if name.endswith("_url")]
    socket = host.replace("http", "ws")
    replaced = {name: socket if "_ws_" in name else host for name in addresses}
    replaced |= {"gamma_url": f"{host}/gamma"}
    config = dataclasses.replace(PRODUCTION_CONFIG, **replaced)
    everywhere = create_environment(name="paper", config=config)
    unified_left_out.check(everywhere, market["condition_id"])


def check_functions(called):
    """What tells ids of conditions apart: those of markets, of 31 and 32 bytes, and of combos."""
    functions = Calls(polymarket, called)
    market, short, combo = "0x" + "Ab" * 32, "0x01" + "ab" * 30, "0x03" + "ab" * 30
    assert functions.to_condition_id(market) == functions.to_ctf_condition_id(market) == market
    assert functions.to_market_condition_id(market) == market.lower()
    assert functions.to_market_condition_id(short) == short + "00"
    assert functions.to_combo_condition_id(combo + "01") == combo
    for name in ["to_condition_id", "to_market_condition_id", "to_combo_condition_id"]:
        shared.refusal(TypeError, lambda: getattr(functions, name)("0x7"))


def first(host, called):
    check_functions(called)
    market = market_of(host)
    with PublicClient(environment=environment(host)) as client:
        read(Calls(client, called), market)
    client = create(host, called)
    assert (client.wallet, client.signer, client.wallet_type) == (WALLET, WALLET, "EOA")
    assert client.environment.name == "paper"
    credentials = client.credentials
    known = (credentials.key, credentials.secret, credentials.passphrase)
    shared.check_credentials(*known)
    assert create(host, called).credentials == credentials
    other = create(host, called, nonce=7).credentials
    assert client.fetch_api_keys() == (credentials.key, other.key)
    check_account(client, market)
    assert client.is_gasless_ready() is True
    assert client.setup_gasless_wallet().wallet == WALLET
    client.close()
    check_left_out(host, market)
    clients = traders(host, called)
    traded = unified_orders.first(clients, host)
    trader = shared.pickled(clients[0].credentials)
    return {"credentials": known, "trader": trader, "traded": traded}


def second(host, known, called):
    clients = traders(host, called, shared.unpickled(known["trader"]))
    unified_orders.second(clients, host, known["traded"])
    key, secret, passphrase = known["credentials"]
    known = ApiKeyCreds(apiKey=key, secret=secret, passphrase=passphrase)
    client = create(host, called, credentials=known)
    # The client replaces credentials that do not work.
    assert client.credentials == known
    assert len(client.fetch_api_keys()) == 2
    client.delete_api_key()
    check_refused(shared.UNAUTHORIZED, client.fetch_api_keys)
    builder = BuilderApiKey(key="key", secret="c2VjcmV0", passphrase="phrase")
    client = create(host, called, credentials=known, api_key=builder)
    assert client.credentials != known
    # Signed with the key of a builder alone.
    check_refused(shared.UNAUTHORIZED, client.revoke_builder_api_key)
    public = client.end_authentication()
    assert isinstance(public, PublicClient)
    public.close()


# `market_socket.py` and `user_socket.py` subscribe.
ELSEWHERE = catalogue.METHODS | data.METHODS | {"subscribe"}
# All that the other classes of clients have, and more.
shared.run(first, second, AsyncSecureClient, polymarket, ELSEWHERE, unified_left_out.NAMES)
