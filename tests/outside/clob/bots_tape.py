"""Writes a recording of invented markets, of which one is resolved every five minutes:
`bots_tape.py MINUTES FOLDER`. Each market is open for ten minutes; every second one has fees. At
the end, all are resolved.
"""

import hashlib
import json
import random
import sys
from datetime import UTC, datetime
from pathlib import Path

START_SECONDS = 1_790_000_100
EVERY_SECONDS, OPEN_SECONDS, RESOLVES_SECONDS = 300, 600, 30
BOOK_SECONDS = 10


def number(*parts):
    """A number of 256 bits that depends on the parts alone."""
    return int(hashlib.sha256(json.dumps(parts).encode()).hexdigest(), 16) | 1


def instant(seconds):
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def open_seconds(index):
    """When a market opens and closes. There are always two that are open."""
    closes = START_SECONDS + (index + 1) * EVERY_SECONDS
    return max(START_SECONDS, closes - OPEN_SECONDS), closes


def description(index, seconds, **changes):
    opens, closes = open_seconds(index)
    has_fees = index % 2 == 1
    fees = {"exponent": 1, "rate": 0.07, "takerOnly": True, "rebateRate": 0.2}
    return {
        "id": str(9_000 + index),
        "question": f"Will invented number {index} be even?",
        "conditionId": f"0x{number('condition', index):064x}",
        "slug": f"invented-{index}",
        "startDate": instant(opens),
        "endDate": instant(closes),
        "outcomes": '["Yes", "No"]',
        "outcomePrices": '["0.5", "0.5"]',
        "clobTokenIds": json.dumps([str(number("token", index, side)) for side in range(2)]),
        "active": True,
        "closed": False,
        "archived": False,
        "enableOrderBook": True,
        "acceptingOrders": True,
        "orderPriceMinTickSize": 0.01,
        "orderMinSize": 5,
        "negRisk": False,
        "feesEnabled": has_fees,
        "feeType": "invented_fees" if has_fees else None,
        **({"feeSchedule": fees} if has_fees else {}),
        "updatedAt": instant(seconds),
        **changes,
    }


def books(index, seconds, cents, draw):
    """The books of both outcomes, which mirror each other. No bot takes more than the best level
    has: a trade at several prices would show only their average.
    """
    sizes = [draw.randint(500, 900) for _ in range(6)]
    levels = [*((cents - 1 - it, sizes[it]) for it in range(3))]
    asks = [*((cents + 1 + it, sizes[3 + it]) for it in range(3))]
    for side in range(2):
        low, high = (levels, asks) if side == 0 else (asks, levels)

        def shown(rows, is_mirrored=side == 1):
            prices = [(100 - price if is_mirrored else price, size) for price, size in rows]
            return [{"price": f"{price / 100:.2f}", "size": str(size)} for price, size in prices]

        yield {
            "event_type": "book",
            "market": f"0x{number('condition', index):064x}",
            "asset_id": str(number("token", index, side)),
            "timestamp": str(seconds * 1000),
            "bids": shown(low)[::-1],
            "asks": shown(high)[::-1],
        }


def main(minutes, folder):
    draw = random.Random(1)
    count = minutes * 60 // EVERY_SECONDS
    described, frames = [], []
    for index in range(count):
        opens, closes = open_seconds(index)
        ended = {"closed": True, "acceptingOrders": False}
        prices = draw.choice(['["1", "0"]', '["0", "1"]'])
        described.append(description(index, opens))
        described.append(description(index, closes, **ended))
        resolved = {**ended, "outcomePrices": prices, "umaResolutionStatus": "resolved"}
        described.append(description(index, closes + RESOLVES_SECONDS, **resolved))
        cents = draw.randint(30, 70)
        for seconds in range(opens + 1, closes, BOOK_SECONDS):
            cents = min(max(cents + draw.randint(-2, 2), 10), 90)
            frames += books(index, seconds, cents, draw)
    frames.sort(key=lambda it: int(it["timestamp"]))
    for name, rows in [("gamma", described), ("ws", frames)]:
        (folder / name).mkdir(parents=True)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name / "invented.jsonl").write_text(text)


main(int(sys.argv[1]), Path(sys.argv[2]))
