"""What the scripts that trade with Polymarket's Python clients share: the wallets, the outcomes
that they trade, and the money that a wallet should have.
"""

import contextlib
import json
import urllib.request
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from pathlib import Path
from unittest import mock

import httpx

# A signer, and its wallets by signature type: itself, its proxy, its safe, its deposit wallet. All
# are names of one account.
SIGNER = json.loads((Path(__file__).parent / "wallets.json").read_text())
KEY, WALLETS = SIGNER["key"], SIGNER["wallets"]

CASH = Decimal(1000)

# By how many seconds GTD orders expire in the future.
EXPIRES_SECONDS = 600

FOK_KILLED = "order couldn't be fully filled. FOK orders are fully filled or killed."
NO_MATCH = (
    "no orders found to match with FAK order. FAK orders are partially filled or killed if no "
    "match is found."
)
CROSSES = "invalid post-only order: order crosses book"
ENDED = "order can't be found - already canceled or matched"


def rounded(number, decimals):
    return number.quantize(Decimal(1).scaleb(-decimals), ROUND_DOWN)


@dataclass
class Outcome:
    """An outcome to trade, with the best prices of its book, which stands still."""

    token: str
    condition: str
    bid: Decimal
    ask: Decimal
    fee_rate: Decimal

    def fee(self, shares, price):
        fee = shares * self.fee_rate * price * (1 - price)
        return fee.quantize(Decimal("0.00001"), ROUND_HALF_EVEN)


def outcomes(host):
    """An outcome of a market without fees, and one of a neg-risk market with fees, both with a tick
    of 0.01."""

    def read(path):
        with urllib.request.urlopen(host + path) as answer:
            return json.load(answer, parse_float=Decimal)

    def outcome(has_fee):
        market = next(
            market
            for market in read("/sampling-markets")["data"]
            if market["minimum_tick_size"] == Decimal("0.01")
            and market["neg_risk"] == has_fee == (market["taker_base_fee"] > 0)
        )
        token, condition = market["tokens"][0]["token_id"], market["condition_id"]
        book = read(f"/book?token_id={token}")
        bid, ask = (Decimal(book[side][-1]["price"]) for side in ("bids", "asks"))
        fees = read(f"/clob-markets/{condition}").get("fd", {"r": Decimal(0), "e": 1})
        assert fees["e"] == 1, fees
        return Outcome(token, condition, bid, ask, fees["r"])

    return outcome(False), outcome(True)


class Money:
    """The dollars and shares that the account should have."""

    def __init__(self, known=None):
        cash, shares = known or (CASH, {})
        self.cash = Decimal(cash)
        self.shares = {token: Decimal(count) for token, count in shares.items()}

    def known(self):
        return str(self.cash), {token: str(count) for token, count in self.shares.items()}

    def trade(self, side, outcome, dollars, shares, price):
        """Notes a trade at one price, and checks that its amounts agree."""
        assert dollars == shares * price, (dollars, shares, price)
        sign = 1 if side == "BUY" else -1
        self.cash -= sign * dollars + outcome.fee(shares, price)
        self.shares[outcome.token] = self.shares.get(outcome.token, 0) + sign * shares


@contextlib.contextmanager
def polls():
    """The requests for trades that clients send meanwhile."""
    sent, send = [], httpx.Client.send

    def spy(client, request, **options):
        if request.url.path == "/data/trades":
            sent.append(request)
        return send(client, request, **options)

    with mock.patch.object(httpx.Client, "send", spy):
        yield sent
