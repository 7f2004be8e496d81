"""An invented recording of the markets that the examples name."""

import json
from itertools import product

YES = "71321045679252212594626385532706912750332728571942532289631379312455583992563"
NO = "52114319501245915516055106046884209969926127482827954674443846427813813222426"
CONDITION = "0x5f65177b394277fd294cd75650044e32ba009a95022d88a0c1d565897d72f8f1"

# The condition, the tokens and the tick of each market. One example bids 0.0005 for a share of the
# first, all others are on cents. Of each of the last three, the examples name only one token.
MARKETS = [
    (CONDITION, (YES, NO), "0.0001"),
    (
        "0x384e2707bbb95da4bfa6f330fe7d5ccbec1c0a85e20be900cbf599987588e1a4",
        (
            "78433024518676680431174478322854148606578065650008220678402966840627347604025",
            "50346565575310273995396997144874891836871065259829083228393044602519086496922",
        ),
        "0.01",
    ),
    (
        "0x" + "a1" * 32,
        (
            "34097058504275310827233323421517291090691602969494795225921954353603704046623",
            "34097058504275310827233323421517291090691602969494795225921954353603704046624",
        ),
        "0.01",
    ),
    (
        "0x" + "a2" * 32,
        (
            "102200530570339469387764365697342150521708074903735836831685780223982723092914",
            "102200530570339469387764365697342150521708074903735836831685780223982723092915",
        ),
        "0.01",
    ),
    (
        "0x" + "a3" * 32,
        (
            "104173557214744537570424345347209544585775842950109756851652855913015295701992",
            "104173557214744537570424345347209544585775842950109756851652855913015295701993",
        ),
        "0.01",
    ),
]

# When the books were seen, in milliseconds.
SEEN_MS = 1_780_000_000_000


def write(folder):
    """Writes the recording into a folder that exists."""
    rows = {
        "gamma/markets.jsonl": [described(place) for place in range(len(MARKETS))],
        "clob/books.jsonl": [book(*it) for it in product(range(len(MARKETS)), (0, 1))],
        "ws/trades.jsonl": [trade(place) for place in range(len(MARKETS))],
    }
    for name, values in rows.items():
        path = folder / name
        path.parent.mkdir()
        path.write_text("".join(json.dumps(value) + "\n" for value in values))


def described(place):
    condition, tokens, tick = MARKETS[place]
    return {
        "id": str(9_000 + place),
        "conditionId": condition,
        "slug": f"invented-market-{place}",
        "question": f"Does invented thing {place} happen?",
        "category": "Weather",
        "outcomes": json.dumps(["Yes", "No"]),
        "outcomePrices": json.dumps(["0.5", "0.5"]),
        "clobTokenIds": json.dumps(tokens),
        "active": True,
        "closed": False,
        "enableOrderBook": True,
        "acceptingOrders": True,
        "orderPriceMinTickSize": float(tick),
        "orderMinSize": 5,
        "negRisk": False,
        "feesEnabled": False,
        "updatedAt": "2026-05-01T10:00:00Z",
        "endDate": "2030-01-01T00:00:00Z",
        "volumeNum": 1_000.25,
        "volume24hr": 10.25,
    }


def book(place, outcome):
    """Deep on both sides of 0.5, where most examples leave orders that are to rest."""
    condition, tokens, tick = MARKETS[place]
    return {
        "market": condition,
        "asset_id": tokens[outcome],
        "timestamp": str(SEEN_MS),
        "hash": None,
        "bids": [{"price": "0.3", "size": "500000"}, {"price": "0.48", "size": "50000"}],
        "asks": [{"price": "0.7", "size": "500000"}, {"price": "0.52", "size": "50000"}],
        "min_order_size": "5",
        "tick_size": tick,
        "neg_risk": False,
        "last_trade_price": "0.52",
    }


def trade(place):
    condition, tokens, _ = MARKETS[place]
    return {
        "event_type": "last_trade_price",
        "market": condition,
        "asset_id": tokens[0],
        "price": "0.52",
        "size": "12",
        "side": "BUY",
        "fee_rate_bps": "0",
        "timestamp": str(SEEN_MS + 1_000),
    }
