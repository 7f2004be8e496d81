"""Trades with polymarket-client, value by value, as `orders.py` does with the older ones."""

import dataclasses
import time
from decimal import Decimal

import shared
import trading
from polymarket.errors import OrderHeartbeatMismatchError, RequestRejectedError
from trading import CROSSES, ENDED, EXPIRES_SECONDS, FOK_KILLED, NO_MATCH, WALLETS, Money


def check(client, money):
    def balance(asset_type, token=None):
        answer = client.get_balance_allowance(asset_type=asset_type, asset_id=token)
        return Decimal(answer.balance) / 1_000_000

    assert balance("COLLATERAL") == money.cash, (balance("COLLATERAL"), money.cash)
    for token, shares in money.shares.items():
        assert balance("CONDITIONAL", token) == shares, (balance("CONDITIONAL", token), shares)


def check_refused(text, call):
    error = shared.refusal(RequestRejectedError, call)
    assert error.status == 400 and text in str(error), (error.status, error)


def open_orders(client):
    return list(client.list_open_orders().iter_items())


def trades(client):
    return list(client.list_account_trades().iter_items())


def check_matched(client, post, money, expected, order_type, has_hashes=False):
    """Posts an order that matches, which gives and takes these amounts. Returns its answer."""
    side, outcome, making, taking = expected
    with trading.polls() as polls:
        answer = post()
    assert polls == [], polls
    assert answer.ok and answer.status == "matched", answer
    assert (answer.making_amount, answer.taking_amount) == (making, taking), (answer, expected)
    dollars, shares = (making, taking) if side == "BUY" else (taking, making)
    price = outcome.ask if side == "BUY" else outcome.bid
    money.trade(side, outcome, dollars, shares, price)
    check(client, money)
    with trading.polls() as polls:
        hashes = client.wait_for_order_fill_settlement(answer)
    assert len(polls) == 1, polls
    assert answer.transactions_hashes == (hashes if has_hashes else ()), answer
    [trade] = client.list_account_trades(id=answer.trade_ids[0]).iter_items()
    assert (trade.transaction_hash,) == hashes, trade
    assert (trade.taker_order_id, trade.side) == (answer.order_id, side), trade
    assert (trade.asset_id, trade.condition_id) == (outcome.token, outcome.condition), trade
    assert (trade.size, trade.price) == (shares, price), trade
    assert (trade.status, trade.trader_side) == ("CONFIRMED", "TAKER"), trade
    row = client.get_order(order_id=answer.order_id)
    fields = (row.status, row.order_type, row.size_matched)
    assert fields == ("MATCHED", order_type, shares), row
    return answer


def match(clients, outcome, money, has_hashes=False):
    """Buys and sells, once with each kind of wallet. Returns the orders with their answers."""
    taken = []
    bought = trading.rounded(20 / outcome.ask, 4)
    sold = Decimal("12.34")
    for kind, client in enumerate(clients):
        order_type = ["FOK", "FAK"][kind % 2]
        for size, amounts in [
            ({"side": "BUY", "amount": 20}, (bought * outcome.ask, bought)),
            ({"side": "SELL", "shares": sold}, (sold, sold * outcome.bid)),
        ]:
            order = {"asset_id": outcome.token, "order_type": order_type, **size}
            signed = client.create_market_order(**order)
            assert (signed.signature_type, signed.maker) == (kind, WALLETS[kind]), signed
            expected = (size["side"], outcome, *amounts)
            answer = check_matched(
                client,
                lambda: client.post_order(signed),
                money,
                expected,
                order_type,
                has_hashes,
            )
            taken.append((signed, answer))
            check_matched(
                client,
                lambda: client.place_market_order(**order),
                money,
                expected,
                order_type,
                has_hashes,
            )
    return taken


def rest(client, outcome, money):
    """Places orders that rest, and one that takes. Returns them with their answers."""
    expiration = int(time.time()) + EXPIRES_SECONDS
    order = {"asset_id": outcome.token, "price": outcome.bid, "size": 10, "side": "BUY"}
    placed = []
    for order_type, terms in [
        ("GTC", {}),
        ("GTD", {"expiration": expiration}),
        ("GTC", {"post_only": True}),
    ]:
        signed = client.create_limit_order(**order, **terms)
        answer = client.post_order(signed)
        assert answer.ok and answer.status == "live" and answer.trade_ids == (), answer
        assert (answer.making_amount, answer.taking_amount) == (0, 0), answer
        [row] = client.list_open_orders(id=answer.order_id).iter_items()
        assert row == client.get_order(order_id=answer.order_id), row
        assert (row.original_size, row.size_matched, row.price) == (10, 0, outcome.bid), row
        assert (row.status, row.side, row.order_type) == ("LIVE", "BUY", order_type), row
        expires = row.expires_at and row.expires_at.timestamp()
        assert expires == terms.get("expiration"), row
        placed.append((signed, answer))
    signed = client.create_limit_order(**{**order, "price": outcome.ask})
    expected = ("BUY", outcome, 10 * outcome.ask, Decimal(10))
    answer = check_matched(client, lambda: client.post_order(signed), money, expected, "GTC")
    return [*placed, (signed, answer)]


def repeat(client, placed):
    """An order that is sent again, in a list or as another type, gets its first answer, in which
    only the server may have added transactions."""

    def shown(answer):
        return answer.model_copy(update={"transactions_hashes": ()})

    for signed, answer in placed:
        as_other_type = dataclasses.replace(signed, order_type="GTC")
        for sent in (signed, as_other_type):
            assert shown(client.post_order(sent)) == shown(answer), answer
    for first in range(0, len(placed), 15):
        some = placed[first : first + 15]
        again = client.post_orders([signed for signed, _ in some])
        assert [shown(it) for it in again] == [shown(answer) for _, answer in some], again


def refuse(client, outcome):
    """Orders that the venue refuses, in its words."""

    def limit(price, size, **terms):
        order = {"asset_id": outcome.token, "price": price, "size": size, "side": "BUY"}
        signed = client.create_limit_order(**order, **terms)
        return lambda: client.post_order(signed)

    def market(**order):
        signed = client.create_market_order(asset_id=outcome.token, **order)
        return lambda: client.post_order(signed)

    def gtd(expires_in):
        """The client itself refuses to sign such an order."""
        order = {"asset_id": outcome.token, "price": outcome.bid, "size": 10, "side": "BUY"}
        signed = client.create_limit_order(**order, expiration=int(time.time()) + EXPIRES_SECONDS)
        changed = dataclasses.replace(signed, expiration=int(time.time()) + expires_in)
        return lambda: client.post_order(changed)

    poor = "not enough balance / allowance: the balance is not enough -> balance: "
    buy = {"side": "BUY", "max_price": outcome.bid}
    for text, post in [
        (poor, limit(outcome.bid, 100_000)),
        (poor, market(side="SELL", shares=900_000, min_price=outcome.bid)),
        ("lower than the minimum: 5", limit(outcome.bid, 2)),
        ("min size: $1", market(amount="0.5", order_type="FOK", **buy)),
        (FOK_KILLED, market(amount=20, order_type="FOK", **buy)),
        (NO_MATCH, market(amount=20, order_type="FAK", **buy)),
        (CROSSES, limit(outcome.ask, 10, post_only=True)),
        ("invalid expiration", gtd(170)),
    ]:
        check_refused(text, post)
    # The client looks at its allowance, which is enough.
    order = {"asset_id": outcome.token, "price": outcome.ask, "side": "BUY"}
    check_refused(poor, lambda: client.place_limit_order(size=100_000, **order))
    signed = client.create_limit_order(size=10, post_only=True, **order)
    [answer] = client.post_orders([signed])
    assert not answer.ok, answer
    assert (answer.code, answer.message) == ("post_only_would_cross", CROSSES), answer


def first(clients, host):
    """Trades with the clients of each kind of wallet."""
    money = Money()
    client = clients[0]
    placed = []
    for outcome in trading.outcomes(host):
        placed += match(clients, outcome, money)
        placed += rest(client, outcome, money)
        refuse(client, outcome)
    repeat(client, placed)
    check(client, money)
    return shared.pickled((placed, open_orders(client), trades(client), money.known()))


def second(clients, host, known):
    """What was there before the server was killed is there after it."""
    placed, rows, traded, money = shared.unpickled(known)
    client, money = clients[0], Money(money)
    check(client, money)
    assert open_orders(client) == rows
    assert trades(client) == traded
    repeat(client, placed)
    check(client, money)
    standard, neg_risk = trading.outcomes(host)
    match(clients, standard, money, has_hashes=True)
    cancel(client, [row.id for row in rows], standard, neg_risk)
    check(client, money)
    beat = client.send_order_heartbeat().heartbeat_id
    beat = client.send_order_heartbeat(heartbeat_id=beat).heartbeat_id
    error = shared.refusal(
        OrderHeartbeatMismatchError, lambda: client.send_order_heartbeat(heartbeat_id="x")
    )
    assert error.heartbeat_id == beat, error


def cancel(client, ids, standard, neg_risk):
    """Cancels one order, a list, those of an outcome, those of a market, and all."""

    def check_cancelled(answer, expected, failed=()):
        assert sorted(answer.canceled) == sorted(expected), answer
        assert answer.not_canceled == dict.fromkeys(failed, ENDED), answer

    check_cancelled(client.cancel_order(order_id=ids[0]), ids[:1])
    assert client.get_order(order_id=ids[0]).status == "CANCELED"
    check_cancelled(client.cancel_order(order_id=ids[0]), [], ids[:1])
    check_cancelled(client.cancel_orders(order_ids=ids), ids[1:], ids[:1])

    def place(outcome):
        order = {"asset_id": outcome.token, "price": outcome.bid, "size": 10, "side": "BUY"}
        return client.place_limit_order(**order).order_id

    ids = [place(outcome) for outcome in (standard, neg_risk, standard, neg_risk)]
    check_cancelled(client.cancel_market_orders(asset_id=standard.token), [ids[0], ids[2]])
    check_cancelled(client.cancel_market_orders(market=neg_risk.condition), [ids[1], ids[3]])
    ids = [place(outcome) for outcome in (standard, neg_risk)]
    check_cancelled(client.cancel_all(), ids)
    check_cancelled(client.cancel_all(), [])
    assert open_orders(client) == []
