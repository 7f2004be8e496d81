"""The order book that orders fill against: in the process, as in the server that this one is
compared with."""

MICROS = 1_000_000
TICK = MICROS // 100


class Book:
    """Levels as (price, shares), the best one first, in micro-dollars and micro-shares."""

    def __init__(self) -> None:
        shares = 100_000 * MICROS
        self.asks = [(53 * TICK + step * TICK, shares) for step in range(10)]
        self.bids = [(52 * TICK - step * TICK, shares) for step in range(10)]

    def fill(self, side: str, shares: int) -> int | None:
        """What the shares cost or bring, in micro-dollars; None when the book is too thin."""
        notional = 0
        for price, available in self.asks if side == "BUY" else self.bids:
            taken = min(shares, available)
            notional += taken * price // MICROS
            shares -= taken
            if shares == 0:
                return notional
        return None
