"""Reads the Data API with polymarket-client, whose models fail on an answer that lacks a field:
every read of a wallet, with every optional filter, by each wallet of a signer. Prints the number of
reads.
"""

import dataclasses
import sys
from datetime import timedelta
from decimal import Decimal

import trading
from polymarket import PublicClient, SecureClient
from polymarket._internal.environment import PRODUCTION_CONFIG, create_environment

from shared import Calls

# What this script calls of the client, all of it.
METHODS = set("""
    get_builder_volumes get_midpoint get_open_interests get_portfolio_value get_resolutions
    get_trader_leaderboard_standing get_user_pnl get_user_stats get_user_volume list_activity
    list_biggest_winners list_builder_leaderboard list_combo_activity list_combo_positions
    list_market_holders list_positions list_price_history list_trader_leaderboard list_trades
""".split())

START = 1_000_000_000
NOBODY = "0x" + "0" * 32 + "deadbeef"


class Reads:
    """A client whose reads are counted, with lists read in pages of two."""

    def __init__(self, client):
        self.client = client
        self.count = 0

    def one(self, name, **filters):
        self.count += 1
        return getattr(self.client, name)(**filters)

    def rows(self, name, **filters):
        self.count += 1
        return list(getattr(self.client, name)(page_size=2, **filters).iter_items())


def trade(host, environment, outcomes):
    """Buys twenty dollars' worth of each outcome, and sells a part of it."""
    client = SecureClient._create(
        private_key=trading.KEY, wallet=trading.WALLETS[0], environment=environment
    )
    for outcome in outcomes:
        for order in [{"side": "BUY", "amount": 20}, {"side": "SELL", "shares": Decimal("2.5")}]:
            answer = client.place_market_order(
                asset_id=outcome.token, order_type="FOK", **order
            )
            assert answer.ok, answer


def check_trades(reads, user, outcomes):
    [free, with_fee] = outcomes
    rows = reads.rows("list_trades", user=user)
    assert [row.side for row in rows] == ["SELL", "BUY"] * 2, rows
    assert [row.asset_id for row in rows] == [with_fee.token] * 2 + [free.token] * 2, rows
    assert {row.wallet for row in rows} == {user.lower()}, rows
    assert [row.size for row in rows if row.side == "SELL"] == [Decimal("2.5")] * 2, rows
    for filters, count in [
        ({"condition_id": free.condition}, 2),
        ({"condition_id": [free.condition, with_fee.condition]}, 4),
        ({"event_id": 2_000_000_000}, 0),
        ({"side": "BUY"}, 2),
        ({"taker_only": False}, 4),
        ({"filter_type": "CASH", "filter_amount": 15.5}, 2),
        ({"filter_type": "TOKENS", "filter_amount": 3}, 2),
        ({"start": START}, 4),
        ({"end": START}, 0),
        ({"full_history": True}, 4),
    ]:
        found = reads.rows("list_trades", user=user, **filters)
        assert len(found) == count, (filters, found)
    activity = reads.rows("list_activity", user=user)
    hashes = [row.transaction_hash for row in rows]
    assert [row.transaction_hash for row in activity] == hashes, activity
    for row, trade in zip(activity, rows, strict=True):
        assert (row.type, row.shares, row.price) == ("TRADE", trade.size, trade.price), row
    for filters, count in [
        ({"condition_id": free.condition}, 2),
        ({"event_id": [2_000_000_000]}, 0),
        ({"activity_types": ["TRADE", "REDEEM"]}, 4),
        ({"activity_types": ["REDEEM"]}, 0),
        ({"side": "SELL"}, 2),
        ({"sort_direction": "ASC"}, 4),
        ({"start": START}, 4),
        ({"end": START}, 0),
        ({"full_history": True}, 4),
    ]:
        found = reads.rows("list_activity", user=user, **filters)
        assert len(found) == count, (filters, found)
    oldest_first = reads.rows("list_activity", user=user, sort_direction="ASC")
    assert [row.transaction_hash for row in oldest_first] == hashes[::-1], oldest_first
    return activity


def check_positions(reads, user, outcomes, activity):
    [free, with_fee] = outcomes
    rows = reads.rows("list_positions", user=user)
    assert {row.asset_id for row in rows} == {free.token, with_fee.token}, rows
    assert {row.status for row in rows} == {"OPEN"}, rows
    for row in rows:
        fills = [fill for fill in activity if fill.asset_id == row.asset_id]
        signs = {"BUY": 1, "SELL": -1}
        assert row.current_size == sum(signs[fill.side] * fill.shares for fill in fills), row
        assert row.total_size == sum(fill.shares for fill in fills if fill.side == "BUY"), row
        assert row.total_pnl == row.realized_pnl + row.unrealized_pnl, row
        assert row.current_value == row.entry_cost_usdc + row.unrealized_pnl, row
        assert (row.entry_fees_usdc > 0) == (row.asset_id == with_fee.token), row
    value = sum(row.current_value for row in rows)
    assert reads.one("get_portfolio_value", user=user).value == value
    [row] = reads.rows("list_positions", user=user, condition_id=free.condition)
    answer = reads.one("get_portfolio_value", user=user, condition_ids=[free.condition])
    assert answer.value == row.current_value, answer
    for filters, count in [
        *(({"status": status}, 0) for status in ["REDEEMABLE", "REDEEMABLE_LOST", "MERGEABLE"]),
        ({"status": "OPEN"}, 2),
        ({"status": "CLOSED"}, 0),
        ({"event_id": 2_000_000_000}, 0),
        ({"title": "no question says this"}, 0),
        ({"filter_type": "CASH", "filter_amount": 1}, 2),
        ({"filter_type": "TOKENS", "filter_amount": 1_000_000}, 0),
        ({"include_archived": True}, 2),
        ({"start": START}, 2),
        ({"end": START}, 0),
        ({"full_history": True}, 2),
    ]:
        found = reads.rows("list_positions", user=user, **filters)
        assert len(found) == count, (filters, found)
    sorts = {
        "CURRENT_VALUE": "current_value",
        "PRICE": "current_price",
        "TOKENS": "current_size",
        "UNREALIZED_PNL": "unrealized_pnl",
        "REALIZED_PNL": "realized_pnl",
        "TOTAL_PNL": "total_pnl",
        "TIMESTAMP": "last_event_at",
    }
    for sort_by, field in sorts.items():
        for direction in ["ASC", "DESC"]:
            found = reads.rows(
                "list_positions", user=user, sort_by=sort_by, sort_direction=direction
            )
            values = [getattr(row, field) for row in found]
            assert values == sorted(values, reverse=direction == "DESC"), (sort_by, values)
    return rows


def check_volume(reads, user, activity):
    """How much was traded, of which a part is in a part of the time."""
    for filters, rows in [
        ({}, activity),
        ({"start": START}, activity),
        ({"end": START}, []),
        ({"full_history": True}, activity),
    ]:
        volume = reads.one("get_user_volume", user=user, **filters)
        shares = sum(row.shares for row in rows)
        dollars = sum(row.amount for row in rows)
        assert (volume.volume, volume.volume_usdc) == (shares, dollars), (filters, volume)
        assert volume.trade_count == len(rows), (filters, volume)


def check_prices(reads, outcomes):
    """The venue stands still, so that all prices of an outcome are the present one."""
    for outcome in outcomes:
        mid = reads.one("get_midpoint", asset_id=outcome.token)
        [*_, last] = points = reads.rows(
            "list_price_history", asset_id=outcome.token, interval="max"
        )
        assert {(point.price, point.resolution_seconds) for point in points} == {(mid, 60)}, points
        times = [point.timestamp for point in points]
        assert times == sorted(set(times)), points
        for filters in [
            *({"interval": it} for it in ["all", "1m", "1w", "1d", "6h", "1h"]),
            {"start": last.timestamp - timedelta(days=1)},
            {"start": last.timestamp - timedelta(days=1), "end": last.timestamp},
        ]:
            found = reads.rows("list_price_history", asset_id=outcome.token, **filters)
            assert found[-1] == last, (filters, found)
        wide = reads.rows(
            "list_price_history", asset_id=outcome.token, interval="max", bucket_seconds=3600
        )
        assert {point.resolution_seconds for point in wide} == {3600}, wide
        reads.count += 1
        asked = {"asset_id": outcome.token, "as_of": last.timestamp + timedelta(seconds=1)}
        [point] = reads.client.list_price_history(**asked).iter_items()
        assert (point.price, point.resolution_seconds) == (mid, 0), point
    assert reads.rows("list_price_history", asset_id="1", interval="max") == []


def check_absent(reads, outcomes):
    """What this server has not, or does not tell."""
    markets = [outcome.condition for outcome in outcomes]
    assert reads.one("get_open_interests") == ()
    assert reads.one("get_open_interests", condition_ids=markets) == ()
    assert reads.rows("list_market_holders", condition_ids=markets, min_balance=1) == []
    assert reads.rows("list_market_holders", condition_ids=markets[0], include_pnl=True) == []
    for filters in [{"question_id": "x"}, {"condition_ids": markets}, {"event_ids": [1]}]:
        assert reads.one("get_resolutions", **filters) == ()
    for window in [None, "day", "week", "month", "all"]:
        for sort_by in [None, "PNL", "VOLUME"]:
            assert reads.rows("list_trader_leaderboard", window=window, sort_by=sort_by) == []
        for user in trading.WALLETS:
            standing = {"user": user, "window": window}
            assert reads.one("get_trader_leaderboard_standing", **standing) is None
        assert reads.rows("list_biggest_winners", window=window) == []
        assert reads.rows("list_builder_leaderboard", window=window) == []
        assert reads.one("get_builder_volumes", interval=window, bucket_limit=7) == ()
    for user in trading.WALLETS:
        assert reads.rows("list_combo_activity", user=user) == []
        assert reads.rows("list_combo_positions", user=user) == []


def check_sums(reads, user, positions):
    stats = reads.one("get_user_stats", user=user)
    assert (stats.traded_market_count, stats.views) == (2, 0), stats
    for filters in [
        {},
        *({"interval": it} for it in ["max", "all", "1m", "1w", "1d", "12h", "6h"]),
        *({"fidelity": it} for it in ["1d", "18h", "12h", "3h", "1h"]),
    ]:
        series = reads.one("get_user_pnl", user=user, **filters)
        [point] = series.points
        assert point.realized_pnl == sum(row.realized_pnl for row in positions), series
        assert point.unrealized_pnl == sum(row.unrealized_pnl for row in positions), series
        assert point.trade_count == 4, series


def check_nobody(reads):
    for name in ["list_trades", "list_activity", "list_positions"]:
        assert reads.rows(name, user=NOBODY) == []
    assert reads.one("get_portfolio_value", user=NOBODY).value == 0
    assert reads.one("get_user_volume", user=NOBODY).trade_count == 0
    assert reads.one("get_user_stats", user=NOBODY) is None
    assert reads.one("get_user_pnl", user=NOBODY).points == ()


def main():
    [host] = sys.argv[1:]
    config = dataclasses.replace(PRODUCTION_CONFIG, clob_url=host, data_url=host)
    environment = create_environment(name="paper", config=config)
    outcomes = trading.outcomes(host)
    trade(host, environment, outcomes)
    called = set()
    reads = Reads(Calls(PublicClient(environment), called))
    for user in trading.WALLETS:
        activity = check_trades(reads, user, outcomes)
        positions = check_positions(reads, user, outcomes, activity)
        check_sums(reads, user, positions)
        check_volume(reads, user, activity)
    check_nobody(reads)
    check_prices(reads, outcomes)
    check_absent(reads, outcomes)
    assert called == METHODS, called ^ METHODS
    print(reads.count)


if __name__ == "__main__":
    main()
