"""What the walk knows without the SDK: the markets as plain HTTP shows them, and a ledger in exact
decimals that computes each fill from the book."""

import json
import urllib.request
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import NamedTuple

MICRO = Decimal("0.000001")
FEE_QUANTUM = Decimal("0.00001")
# What an amount of dollars buys is cut to this.
SHARE_QUANTUM = Decimal("0.0001")


class Market(NamedTuple):
    """A market of the simulated venue. Its books stand still during a walk."""

    id: str
    slug: str
    labels: tuple[str, str]
    tokens: tuple[str, str]
    fee_rate: Decimal


class Fill(NamedTuple):
    """What an order gets, and what the account has then."""

    market: str
    outcome: str
    side: str
    quantity: Decimal
    price: Decimal
    notional: Decimal
    fee: Decimal
    cash: Decimal


def text(number):
    """A number as the server writes it: without trailing zeros."""
    plain = f"{number:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


class World:
    """The markets that the walk uses, the account's ledger, and what rows leave for later ones."""

    def __init__(self, base_url, token, moving):
        self.base_url = base_url
        self.token = token
        # The address of a server whose books move and markets end, and a key for it.
        self.moving = moving
        self.free = self._market("port-amber-tide", Decimal(0))
        self.charged = self._market("tern-updown-daily", Decimal("0.07"))
        self.ledger = Ledger(Decimal(1000))
        self.kept = {}

    def get(self, path):
        """The answer to a request without a credential."""
        with urllib.request.urlopen(self.base_url + path, timeout=30) as answer:
            return json.load(answer)

    def _market(self, slug, fee_rate):
        row = self.get(f"/v1/markets/by-slug/{slug}")
        labels, tokens = tuple(row["outcomes"]), tuple(row["clob_token_ids"])
        return Market(row["condition_id"], slug, labels, tokens, fee_rate)

    def book(self, market, outcome=0):
        """The book of an outcome, from the server's answer."""
        return self.get(f"/v1/book?token_id={market.tokens[outcome]}")

    def touch(self, market, outcome=0):
        """The best bid and the best ask."""
        book = self.book(market, outcome)
        return (
            max(Decimal(level["price"]) for level in book["bids"]),
            min(Decimal(level["price"]) for level in book["asks"]),
        )

    def fill(self, market, side, quantity, outcome=0):
        """Enters a market order into the ledger, as it fills on the book of this moment."""
        book = self.book(market, outcome)
        return self.ledger.fill(market, outcome, side, Decimal(quantity), book)

    def spend(self, market, amount, outcome=0):
        """Enters a purchase for this amount of dollars."""
        asks = sorted_levels(self.book(market, outcome), "BUY")
        left, shares = Decimal(amount), Decimal(0)
        for price, size in asks:
            taken = min(size, (left / price).quantize(SHARE_QUANTUM, ROUND_FLOOR))
            left -= taken * price
            shares += taken
            if taken < size:
                break
        return self.fill(market, "BUY", shares, outcome)


def sorted_levels(book, side):
    """The levels that a taker takes, the best first."""
    levels = [
        (Decimal(level["price"]), Decimal(level["size"]))
        for level in book["asks" if side == "BUY" else "bids"]
    ]
    return sorted(levels, reverse=side == "SELL")


class Ledger:
    """Cash, positions and fills of one account."""

    def __init__(self, cash):
        self.cash = cash
        self.positions = {}
        self.fills = []

    def fill(self, market, outcome, side, quantity, book):
        """Walks the book, and moves cash and shares."""
        left, exact, fee = quantity, Decimal(0), Decimal(0)
        for price, size in sorted_levels(book, side):
            taken = min(left, size)
            exact += taken * price
            curve = taken * market.fee_rate * price * (1 - price)
            fee += curve.quantize(FEE_QUANTUM, ROUND_HALF_EVEN)
            left -= taken
            if left == 0:
                break
        assert left == 0, f"the book is too shallow for {quantity}"
        against = ROUND_CEILING if side == "BUY" else ROUND_FLOOR
        notional = exact.quantize(MICRO, against)
        key = (market.id, market.labels[outcome])
        shares, cost = self.positions.get(key, (Decimal(0), Decimal(0)))
        if side == "BUY":
            self.cash -= notional + fee
            self.positions[key] = (shares + quantity, cost + notional)
        else:
            self.cash += notional - fee
            kept = cost * (shares - quantity) / shares
            self.positions[key] = (shares - quantity, kept)
        price = (notional / quantity).quantize(MICRO, ROUND_HALF_EVEN)
        fill = Fill(*key, side, quantity, price, notional, fee, self.cash)
        self.fills.append(fill)
        return fill

    def open_positions(self):
        """The quantity of each position that has shares, as text."""
        return {key: text(shares) for key, (shares, _) in self.positions.items() if shares}
