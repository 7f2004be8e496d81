"""Reads markets and events with Polymarket's unified client, from the server whose address is the
first argument, with each of the optional filters, and compares them with the order book's interface
and with the server's own. Prints the number of values that were compared and of filters.
"""

import dataclasses
import inspect
import json
import sys
import urllib.request
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from polymarket import PublicClient
from polymarket._internal.environment import PRODUCTION_CONFIG, create_environment
from polymarket.errors import RequestRejectedError

from shared import Calls

# What this script calls of the client, all of it.
METHODS = set("""
    get_comment_thread get_event get_event_live_volume get_event_tags get_market get_market_tags
    get_order_book get_public_profile get_related_tag_resources get_related_tags get_series
    get_sports get_sports_market_types get_tag get_token_references list_comments
    list_comments_by_user_address list_events list_markets list_series list_tags list_teams search
""".split())

HEX = "0x" + "1" * 62 + "00"

# Values for filters by what the server does not know, which find nothing.
UNKNOWN = {
    "cyom": True,
    "ended": True,
    "event_date": date(2026, 1, 1),
    "event_week": 1,
    "exclude_tag_ids": [1, 2],
    "featured": False,
    "featured_order": True,
    "game_id": "1",
    "game_ids": 1,
    "include_children": True,
    "liquidity_max": 1e9,
    "liquidity_min": 0.5,
    "liquidity_num_max": 1e9,
    "liquidity_num_min": 0.5,
    "live": True,
    "market_maker_addresses": [HEX],
    "onchain_event_ids": HEX,
    "parent_event_id": 1,
    "partner_slug": "x",
    "position_ids": ["1", "2"],
    "question_ids": HEX,
    "recurrence": "daily",
    "request_ids": HEX,
    "resolution_status": "resolved",
    "rewards_min_size": 1,
    "rfq_enabled": False,
    "series_ids": [1, 2],
    "sports_market_types": "totals",
    "start_date_max": datetime(2030, 1, 1, tzinfo=UTC),
    "start_date_min": datetime(2020, 1, 1, tzinfo=UTC),
    "start_time_max": datetime(2030, 1, 1, tzinfo=UTC),
    "start_time_min": datetime(2020, 1, 1, tzinfo=UTC),
    "tag_id": 1,
    "tag_ids": [1, 2],
    "tag_slug": "x",
    "uma_resolution_status": "proposed",
    "version": ["v1", "v2"],
}

# Values of parameters that select nothing.
IGNORED = {
    "ascending": True,
    "decimalized": True,
    "include_best_lines": True,
    "include_chat": True,
    "include_tag": True,
    "include_template": True,
    "locale": "de",
    "order": "startDate",
    "page_size": 7,
    "related_tags": True,
    "tag_match": "any",
}


class Count:
    compared = 0
    filters = set()

    @classmethod
    def same(cls, found, expected, what):
        assert found == expected, (what, found, expected)
        cls.compared += 1


def get(host, path):
    with urllib.request.urlopen(f"{host}{path}") as answer:
        return json.load(answer)


def decimal(value):
    return None if value is None else Decimal(str(value))


def instant(text):
    return None if text is None else datetime.fromisoformat(text)


def compare(market, long, own):
    """A market of the catalogue, and the same one of the other interfaces."""
    state, trading = market.state, market.trading
    pairs = [
        (market.condition_id, long["condition_id"]),
        (market.question, long["question"]),
        (market.slug, long["market_slug"]),
        (market.slug, own["slug"]),
        (market.category, own["category"]),
        (state.active, long["active"]),
        (state.closed, long["closed"]),
        (state.archived, long["archived"]),
        (state.accepting_orders, long["accepting_orders"]),
        (state.enable_order_book, long["enable_order_book"]),
        (state.neg_risk, long["neg_risk"]),
        (state.end_date, instant(long["end_date_iso"])),
        (trading.minimum_tick_size, decimal(long["minimum_tick_size"])),
        (trading.minimum_order_size, decimal(long["minimum_order_size"])),
        (trading.seconds_delay or 0, long["seconds_delay"]),
        (trading.fees_enabled, long["taker_base_fee"] > 0),
        (market.metrics.volume, decimal(own["volume_total"])),
        (market.metrics.volume_num, decimal(own["volume_total"])),
        (market.metrics.volume_24hr, decimal(own["volume_24h"])),
    ]
    for outcome, token in zip(
        [market.outcomes.yes, market.outcomes.no], long["tokens"], strict=True
    ):
        pairs += [
            (outcome.label, token["outcome"]),
            (outcome.token_id, token["token_id"]),
            (outcome.price or 0, decimal(token["price"])),
        ]
    for pair in pairs:
        Count.same(*pair, market.slug)


def compare_book(client, market):
    """What a market says of the book of its first outcome."""
    book = client.get_order_book(asset_id=market.outcomes.yes.token_id)
    prices = market.prices
    bid = book.bids[-1].price if book.bids else None
    ask = book.asks[-1].price if book.asks else None
    Count.same((prices.best_bid, prices.best_ask), (bid, ask), market.slug)
    if bid is not None and ask is not None:
        Count.same(prices.spread, ask - bid, market.slug)
    Count.same(prices.last_trade_price, book.last_trade_price, market.slug)


def check_markets(client, host):
    long = {row["condition_id"]: row for row in get(host, "/markets")["data"]}
    markets = list(client.list_markets(page_size=3).iter_items())
    markets += client.list_markets(closed=True, page_size=3).iter_items()
    binary = [row for row in long.values() if len(row["tokens"]) == 2]
    assert len(markets) == len(binary) > 10, (len(markets), len(binary))
    assert len({market.id for market in markets}) == len(markets)
    for market in markets:
        condition = market.condition_id
        compare(market, long[condition], get(host, f"/v1/markets/{condition}"))
        Count.same(client.get_market(id=market.id), market, "by id")
        Count.same(client.get_market(slug=market.slug), market, "by slug")
        Count.same(client.get_market_tags(market.id), (), "tags")
        if market.state.accepting_orders:
            compare_book(client, market)
    return markets


def check_events(client, markets):
    events = list(client.list_events(page_size=3).iter_items())
    events += client.list_events(closed=True, page_size=3).iter_items()
    listed = {market.id: market for event in events for market in event.markets}
    assert set(listed) == {market.id for market in markets}, listed.keys()
    for market in markets:
        (event,) = market.events
        whole = client.get_event(id=event.id)
        for name in ["id", "slug", "title"]:
            Count.same(getattr(whole, name), getattr(event, name), f"{name} of an event")
        Count.same(client.get_event(slug=whole.slug), whole, "by slug")
        Count.same(client.get_event_tags(whole.id), (), "tags")
        volumes = [it.metrics.volume for it in whole.markets if it.metrics.volume is not None]
        Count.same(whole.metrics.volume, sum(volumes) if volumes else None, "volume")
        Count.same(whole.state.closed, all(it.state.closed for it in whole.markets), "closed")
        ours = listed[market.id]
        Count.same(ours.model_copy(update={"events": market.events}), market, "in its event")
    return events


def check_tokens(client, markets):
    """What the Data API says of tokens is in the catalogue."""
    for market in markets:
        sides = [market.outcomes.yes, market.outcomes.no]
        ids = [it.token_id for it in sides]
        rows = client.get_token_references(asset_ids=[*ids, "1"])
        of_market = client.get_token_references(condition_ids=market.condition_id)
        Count.same(rows, of_market, "by market")
        Count.same([row.asset_id for row in rows], ids, "tokens")
        Count.same([row.opposite_asset_id for row in rows], ids[::-1], "opposite tokens")
        for index, (row, side) in enumerate(zip(rows, sides, strict=True)):
            Count.same((row.outcome_index, row.outcome), (index, side.label), "outcome")
            names = (row.condition_id, row.title, row.market_slug)
            Count.same(names, (market.condition_id, market.question, market.slug), "names")
            flags = (row.closed, row.neg_risk)
            Count.same(flags, (market.state.closed, market.state.neg_risk), "flags")
            Count.same(row.final_price is not None, row.resolved, "payout")
            if row.resolved:
                Count.same(row.final_price, side.price, "payout")
    Count.same(client.get_token_references(asset_ids="1"), (), "an unknown token")


def check_volumes(client, events):
    """The venue has no event with a number that the client takes, so none is found."""
    assert not [it for it in events if it.id.isdecimal() and int(it.id) < 2**31], events
    answer = client.get_event_live_volume(event_ids=[1, 2_000_000_000])
    Count.same((answer.taker_volume_total, answer.markets), (0, ()), "volume")


def check_filters(method, items, selecting):
    """Each filter on its own: `selecting` has a value, and whether it selects an item."""
    name = method.__name__

    def ids(found):
        return {it.id for it in found}

    for parameter in inspect.signature(method).parameters:
        if parameter in selecting:
            for value, is_wanted in selecting[parameter]:
                found = list(method(**{parameter: value}).iter_items())
                # Without it, only open ones are listed.
                both = parameter == "closed"
                expected = [it for it in items if is_wanted(it) and (both or not it.state.closed)]
                Count.same(ids(found), ids(expected), f"{name} {parameter}={value}")
        elif parameter in UNKNOWN:
            found = method(**{parameter: UNKNOWN[parameter]}).iter_items()
            Count.same(list(found), [], f"{name} {parameter}")
        else:
            found = method(**{parameter: IGNORED[parameter]}).iter_items()
            expected = [it for it in items if not it.state.closed]
            Count.same(ids(found), ids(expected), f"{name} {parameter}")
        Count.filters.add((name, parameter))


def bounds(values):
    """Two values with others on both sides, as far apart as times are cut by the client."""
    known = sorted({value for value in values if value is not None})
    assert len(known) > 2, known
    cut = timedelta(microseconds=1) if isinstance(known[0], datetime) else 0
    return known[1], known[-2] + cut


def check_selecting(client, markets, events):
    volume = bounds([market.metrics.volume_num for market in markets])
    end = bounds([market.state.end_date for market in markets])
    two = [markets[0], markets[3]]

    def between(of, least, most):
        def is_between(it):
            value = of(it)
            return value is not None and least <= value <= most

        return is_between

    def of_volume(market):
        return market.metrics.volume_num

    def of_end(market):
        return market.state.end_date

    first, last = datetime(1970, 1, 2, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
    check_filters(
        client.list_markets,
        markets,
        {
            "closed": [
                (False, lambda it: not it.state.closed),
                (True, lambda it: it.state.closed),
            ],
            "clob_token_ids": [
                ([it.outcomes.no.token_id for it in two], lambda it: it in two),
                (two[0].outcomes.yes.token_id, lambda it: it == two[0]),
            ],
            "condition_ids": [([it.condition_id for it in two], lambda it: it in two)],
            "ids": [([int(it.id) for it in two], lambda it: it in two)],
            "slug": [([it.slug for it in two], lambda it: it in two)],
            "volume_num_min": [(float(volume[0]), between(of_volume, volume[0], 10**12))],
            "volume_num_max": [(float(volume[1]), between(of_volume, 0, volume[1]))],
            "end_date_min": [(end[0], between(of_end, end[0], last))],
            "end_date_max": [(end[1].isoformat(), between(of_end, first, end[1]))],
        },
    )

    def of_volume(event):
        return event.metrics.volume

    def of_end(event):
        return event.schedule.end_date

    volume = bounds([event.metrics.volume for event in events])
    end = bounds([event.schedule.end_date for event in events])
    two = [events[0], events[2]]
    check_filters(
        client.list_events,
        events,
        {
            "closed": [
                (False, lambda it: not it.state.closed),
                (True, lambda it: it.state.closed),
            ],
            "ids": [([it.id for it in two], lambda it: it in two)],
            "slug": [([it.slug for it in two], lambda it: it in two)],
            "title_search": [(two[0].title[2:9].upper(), lambda it: two[0].title[2:9] in it.title)],
            "volume_min": [(float(volume[0]), between(of_volume, volume[0], 10**12))],
            "volume_max": [(float(volume[1]), between(of_volume, 0, volume[1]))],
            "end_date_min": [(end[0], between(of_end, end[0], last))],
            "end_date_max": [(end[1].isoformat(), between(of_end, first, end[1]))],
        },
    )


def check_order(client):
    for order, of in [
        ("volume", lambda it: it.metrics.volume_num),
        ("volume24hr", lambda it: it.metrics.volume_24hr),
        ("endDate", lambda it: it.state.end_date),
    ]:
        for ascending in [True, False]:
            listed = client.list_markets(order=order, ascending=ascending).iter_items()
            values = [of(it) for it in listed if of(it) is not None]
            Count.same(values, sorted(values, reverse=not ascending), order)


def check_search(client, events):
    text = events[0].title[2:9]
    results = client.search(q=text.upper(), page_size=1).iter_items()
    found = [event.id for page in results for event in page.events]
    expected = {
        it.id for it in events if text in it.title or any(text in m.question for m in it.markets)
    }
    Count.same((set(found), len(found)), (expected, len(expected)), text)
    for page in client.search(q=text, recurrence="daily").iter_items():
        Count.same(page.events, (), "search")


def check_empty(client):
    for rows in [
        client.list_series(closed=False),
        client.list_tags(is_carousel=True),
        client.list_teams(league="x"),
        client.list_comments(parent_entity_id="1", parent_entity_type="Event"),
        client.list_comments(
            parent_entity_id="1", parent_entity_type="Series", holders_only=True
        ),
        client.list_comments_by_user_address(address=HEX),
    ]:
        Count.same(list(rows.iter_items()), [], rows)
    Count.same(client.get_related_tags(id="1", status="all"), (), "related tags")
    Count.same(client.get_related_tag_resources(slug="x"), (), "related tags")
    Count.same(client.get_sports(), (), "sports")
    Count.same(client.get_sports_market_types().market_types, (), "market types")
    Count.same(client.get_comment_thread("1"), (), "comments")
    Count.same(client.get_public_profile("0x" + "1" * 40), None, "profile")
    for call, text in [
        (lambda: client.get_tag(id="1"), "id not found"),
        (lambda: client.get_tag(slug="x"), "slug not found"),
        (lambda: client.get_series("1"), "id not found"),
        (lambda: client.get_market(id="1"), "id not found"),
        (lambda: client.get_market(slug="x"), "slug not found"),
        (lambda: client.get_event(id="x"), "id not found"),
        (lambda: client.get_event(slug="x"), "slug not found"),
    ]:
        try:
            raise AssertionError(f"found: {call()}")
        except RequestRejectedError as error:
            Count.same((error.status, str(error)), (404, text), "refusal")


def main(host):
    addresses = {"clob_url": host, "gamma_url": f"{host}/gamma", "data_url": host}
    config = dataclasses.replace(PRODUCTION_CONFIG, **addresses)
    called = set()
    with PublicClient(environment=create_environment(name="paper", config=config)) as public:
        client = Calls(public, called)
        markets = check_markets(client, host)
        events = check_events(client, markets)
        check_selecting(client, markets, events)
        check_order(client)
        check_search(client, events)
        check_empty(client)
        check_tokens(client, markets)
        check_volumes(client, events)
    assert called == METHODS, called ^ METHODS
    print(Count.compared, len(Count.filters))


if __name__ == "__main__":
    main(sys.argv[1])
