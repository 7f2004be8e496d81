"""Trades with Polymarket's older Python clients, value by value. They differ in some names, which
are those of a `Trader` in the script of each.

The second half runs on a server that names transactions in the answers (`--clob-hashes at-once`).
"""

import time
from decimal import Decimal

import shared
import trading
from shared import Calls
from trading import CROSSES, ENDED, EXPIRES_SECONDS, FOK_KILLED, NO_MATCH, WALLETS, Money


class Trader:
    """A client with the wallets of one signer. The scripts add `create`, which makes a client for a
    signature type, `types` and `failure` of the client, its other names for methods, and

    - `kinds`: the signature types that it knows
    - `polls`: how often it asks for the trade of an order, unless the answer names a transaction
    """

    def __init__(self, host, called, credentials=None):
        self.clients = [Calls(self.create(host, kind), called) for kind in self.kinds]
        self.client = self.clients[0]
        self.credentials = credentials or self.derive()
        for client in self.clients:
            client.set_api_creds(self.credentials)

    def balance(self, token=None):
        asset_type = "CONDITIONAL" if token else "COLLATERAL"
        params = self.types.BalanceAllowanceParams(asset_type=asset_type, token_id=token)
        return Decimal(self.client.get_balance_allowance(params)["balance"]) / 1_000_000

    def check(self, money):
        assert self.balance() == money.cash, (self.balance(), money.cash)
        for token, shares in money.shares.items():
            assert self.balance(token) == shares, (self.balance(token), shares)

    def limit(self, outcome, side, price, size, **terms):
        order = self.types.OrderArgs(
            token_id=outcome.token, price=float(price), size=size, side=side, **terms
        )
        return self.client.create_order(order)

    def market(self, client, outcome, side, amount, order_type, price=0):
        order = self.types.MarketOrderArgs(
            token_id=outcome.token,
            amount=float(amount),
            side=side,
            price=float(price),
            order_type=order_type,
        )
        return client.create_market_order(order)


def check_refused(trader, text, call):
    error = shared.refusal(trader.failure, call)
    assert error.status_code == 400 and text in error.error_msg["error"], error


def check_matched(trader, post, money, expected, has_hashes=False):
    """Posts an order that matches, which gives and takes these amounts. Returns its answer."""
    side, outcome, making, taking = expected
    with trading.polls() as polls:
        answer = post()
    assert len(polls) == (0 if has_hashes else trader.polls), polls
    assert answer["success"] and answer["status"] == "matched", answer
    amounts = Decimal(answer["makingAmount"]), Decimal(answer["takingAmount"])
    assert amounts == (making, taking), (answer, expected)
    dollars, shares = amounts if side == "BUY" else reversed(amounts)
    price = outcome.ask if side == "BUY" else outcome.bid
    money.trade(side, outcome, dollars, shares, price)
    trader.check(money)
    [trade] = trader.client.get_trades(trader.types.TradeParams(id=answer["tradeIDs"][0]))
    if has_hashes or trader.polls:
        assert [trade["transaction_hash"]] == answer["transactionsHashes"], (trade, answer)
    else:
        assert "transactionsHashes" not in answer, answer
    assert (trade["taker_order_id"], trade["side"]) == (answer["orderID"], side), trade
    assert (trade["asset_id"], trade["market"]) == (outcome.token, outcome.condition), trade
    assert (Decimal(trade["size"]), Decimal(trade["price"])) == (shares, price), trade
    assert (trade["status"], trade["trader_side"]) == ("CONFIRMED", "TAKER"), trade
    row = trader.client.get_order(answer["orderID"])
    assert (row["status"], row["order_type"]) == ("MATCHED", trader.order_type), row
    assert Decimal(row["size_matched"]) == shares, row
    return answer


def match(trader, outcome, money, has_hashes=False):
    """Buys and sells, once with each kind of wallet. Returns the orders with their answers."""
    taken = []
    for index, client in enumerate(trader.clients):
        maker = WALLETS[trader.kinds[index]]
        trader.order_type = order_type = ["FOK", "FAK"][index % 2]
        bought = trading.rounded(20 / outcome.ask, 4)
        sold = Decimal("12.34")
        for side, amount, making, taking in [
            ("BUY", 20, bought * outcome.ask, bought),
            ("SELL", sold, sold, sold * outcome.bid),
        ]:
            signed = trader.market(client, outcome, side, amount, order_type)
            assert trader.made_by(signed) == (trader.kinds[index], maker), signed
            answer = check_matched(
                trader,
                lambda: client.post_order(signed, order_type),
                money,
                (side, outcome, making, taking),
                has_hashes,
            )
            taken.append((signed, order_type, answer))
    return taken


def rest(trader, outcome, money):
    """Places orders that rest, and one that takes. Returns them with their answers."""
    expiration = int(time.time()) + EXPIRES_SECONDS
    placed = []
    for order_type, terms, post_only in [
        ("GTC", {}, False),
        ("GTD", {"expiration": expiration}, False),
        ("GTC", {}, True),
    ]:
        signed = trader.limit(outcome, "BUY", outcome.bid, 10, **terms)
        answer = trader.client.post_order(signed, order_type, post_only)
        ends = (answer["success"], answer["status"], answer["makingAmount"], answer["takingAmount"])
        assert ends == (True, "live", "", ""), answer
        [row] = [it for it in trader.open_orders() if it["id"] == answer["orderID"]]
        assert row == trader.client.get_order(answer["orderID"]), row
        sizes = [Decimal(row[name]) for name in ("original_size", "size_matched", "price")]
        assert sizes == [10, 0, outcome.bid], row
        expires = str(terms.get("expiration", 0))
        fields = [row[name] for name in ("status", "side", "order_type", "expiration")]
        assert fields == ["LIVE", "BUY", order_type, expires], row
        placed.append((signed, order_type, answer))
    trader.order_type = "GTC"
    signed = trader.limit(outcome, "BUY", outcome.ask, 10)
    expected = ("BUY", outcome, 10 * outcome.ask, Decimal(10))
    answer = check_matched(trader, lambda: trader.client.post_order(signed, "GTC"), money, expected)
    return [*placed, (signed, "GTC", answer)]


def repeat(trader, placed):
    """An order that is sent again, in a list or as another type, gets its first answer, in which
    only the clients or the server may have added transactions."""

    def shown(answer):
        return {name: value for name, value in answer.items() if name != "transactionsHashes"}

    answers = [shown(answer) for _, _, answer in placed]
    for (signed, order_type, _), answer in zip(placed, answers, strict=True):
        for sent_as in [order_type, "GTC"]:
            assert shown(trader.client.post_order(signed, sent_as)) == answer, answer
    for first in range(0, len(placed), 15):
        some = [(signed, order_type) for signed, order_type, _ in placed[first : first + 15]]
        again = [shown(answer) for answer in trader.post_all(some)]
        assert again == answers[first : first + 15], again


def refuse(trader, outcome):
    """Orders that the venue refuses, in its words."""

    def limit(*order, order_type="GTC", post_only=False, **terms):
        signed = trader.limit(outcome, *order, **terms)
        return lambda: trader.client.post_order(signed, order_type, post_only)

    def market(*order):
        signed = trader.market(trader.client, outcome, *order)
        return lambda: trader.client.post_order(signed, order[2])

    soon = int(time.time()) + 170
    below = outcome.bid - Decimal("0.01")
    poor = "not enough balance / allowance: the balance is not enough -> balance: "
    for text, post in [
        (poor, limit("BUY", outcome.bid, 100_000)),
        (poor, market("SELL", 900_000, "FAK", outcome.bid)),
        ("lower than the minimum: 5", limit("BUY", outcome.bid, 2)),
        ("min size: $1", market("BUY", "0.5", "FOK")),
        (FOK_KILLED, market("BUY", 20, "FOK", below)),
        (NO_MATCH, market("BUY", 20, "FAK", below)),
        (CROSSES, limit("BUY", outcome.ask, 10, post_only=True)),
        ("invalid expiration", limit("BUY", outcome.bid, 10, order_type="GTD", expiration=soon)),
    ]:
        check_refused(trader, text, post)
    signed = trader.limit(outcome, "BUY", outcome.bid, 2)
    [answer] = trader.post_all([(signed, "GTC")])
    assert not answer["success"] and answer["orderID"] == "", answer
    assert answer["errorMsg"].endswith("Size (2) lower than the minimum: 5"), answer


def first(trader, host):
    money = Money()
    placed = []
    for outcome in trading.outcomes(host):
        placed += match(trader, outcome, money)
        placed += rest(trader, outcome, money)
        refuse(trader, outcome)
    repeat(trader, placed)
    trader.check(money)
    rows, trades = trader.open_orders(), trader.client.get_trades()
    return shared.pickled((trader.credentials, placed, rows, trades, money.known()))


def second(make, known, host):
    """What was there before the server was killed is there after it."""
    credentials, placed, rows, trades, money = shared.unpickled(known)
    trader, money = make(credentials), Money(money)
    trader.check(money)
    assert trader.open_orders() == rows
    assert trader.client.get_trades() == trades
    repeat(trader, placed)
    trader.check(money)
    standard, neg_risk = trading.outcomes(host)
    match(trader, standard, money, has_hashes=True)
    bought = trading.rounded(10 / standard.ask, 4)
    trader.order_type = "FOK"
    expected = ("BUY", standard, bought * standard.ask, bought)
    check_matched(trader, lambda: trader.buy(standard, 10), money, expected, has_hashes=True)
    cancel(trader, rows, standard, neg_risk)
    trader.check(money)
    beat = trader.beat()["heartbeat_id"]
    assert trader.client.post_heartbeat(beat)["heartbeat_id"] != beat
    wrong = shared.refusal(trader.failure, lambda: trader.client.post_heartbeat("x"))
    assert wrong.error_msg["error_msg"] == "Invalid Heartbeat ID", wrong


def cancel(trader, rows, standard, neg_risk):
    """Cancels one order, a list, those of an outcome, those of a market, and all."""

    def done(ids):
        return {"canceled": ids, "not_canceled": {}}

    ids = [row["id"] for row in rows]
    assert trader.cancel(ids[0]) == done(ids[:1])
    assert trader.client.get_order(ids[0])["status"] == "CANCELED"
    assert trader.cancel(ids[0]) == {"canceled": [], "not_canceled": {ids[0]: ENDED}}
    answer = trader.client.cancel_orders(ids)
    assert sorted(answer["canceled"]) == sorted(ids[1:]), answer
    assert answer["not_canceled"] == {ids[0]: ENDED}, answer

    def place(outcome):
        order = trader.types.OrderArgs(outcome.token, float(outcome.bid), 10, "BUY")
        return trader.client.create_and_post_order(order)["orderID"]

    ids = [place(outcome) for outcome in (standard, neg_risk, standard, neg_risk)]
    assert trader.cancel_in(asset_id=standard.token) == done([ids[0], ids[2]])
    assert trader.cancel_in(market=neg_risk.condition) == done([ids[1], ids[3]])
    ids = [place(outcome) for outcome in (standard, neg_risk)]
    assert trader.client.cancel_all() == done(ids)
    assert trader.client.cancel_all() == done([])
    assert trader.open_orders() == []
