"""Every exception class of the SDK, the condition that raises it, and what it says."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

from rows import same


class Raises(NamedTuple):
    """What a call raises; `call` takes the servers. None if this server never causes it."""

    name: str
    condition: str
    status: int
    code: str
    retry_after: int | None
    call: Callable[[Any], Any] | None


class Servers(NamedTuple):
    """A server, keys of it, another without books, and one whose memory is full."""

    base_url: str
    key: str
    read_key: str
    slow_key: str
    market: str
    no_books: str
    no_books_key: str
    full: str
    full_token: str

    def client(self, key=None, base_url=None, **options):
        from polysim_sdk import PolySimClient

        return PolySimClient(api_key=key, base_url=base_url or self.base_url, **options)

    def order(self, key=None, **fields):
        """Sends an order that would fill, but for these fields."""
        order = dict(market_id=self.market, side="BUY", outcome="Yes", quantity="5")
        return self.client(key or self.key).place_order(**{**order, **fields})


def reuses_a_name(servers):
    servers.order(idempotency_key="once")
    servers.order(idempotency_key="once", quantity="6")


def rests_across_the_book(servers):
    servers.order(order_type="limit", price="0.99", post_only=True)


def reads_too_fast(servers):
    """More requests than the tier allows, by a client that does not wait."""
    client = servers.client(servers.slow_key, max_retry_after=0.5)
    for _ in range(20):
        client.balance()


def trades_without_a_book(servers):
    """An order in a market that is open, and whose book the venue has not sent."""
    with urllib.request.urlopen(servers.no_books + "/v1/markets?limit=200", timeout=30) as answer:
        markets = json.load(answer)
    for market in markets:
        if market["accepting_orders"] and not has_book(servers.no_books, market):
            servers.client(servers.no_books_key, servers.no_books).place_order(
                market_id=market["condition_id"], side="BUY", outcome=market["outcomes"][0],
                quantity="5",
            )
            return


def has_book(base_url, market):
    path = f"{base_url}/v1/markets/{market['condition_id']}/book"
    try:
        urllib.request.urlopen(path, timeout=30).close()
    except urllib.error.HTTPError:
        return False
    return True


def meets_a_full_server(servers):
    from polysim_sdk import PolySimClient

    PolySimClient.bootstrap(
        jwt=servers.full_token, name="full", base_url=servers.full, max_retries=0
    )


def finds_nobody(servers):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        servers.client(servers.key, address, max_retries=0).tiers()


ERRORS = [
    Raises(
        "ApiKeyRequiredError", "no key where one is needed", 401, "MISSING_AUTH", None,
        lambda it: it.client().me(),
    ),
    Raises(
        "ApiError", "a key that does not exist", 401, "INVALID_KEY", None,
        lambda it: it.client("ps_live_" + "0" * 64).me(),
    ),
    Raises(
        "ApiError", "a key without the permission", 403, "INSUFFICIENT_PERMISSION", None,
        lambda it: it.order(it.read_key),
    ),
    Raises(
        "ApiError", "an unknown market", 404, "MARKET_NOT_FOUND", None,
        lambda it: it.client().get_market("0xnone"),
    ),
    Raises(
        "ApiError", "what this server leaves out", 404, "NOT_OFFERED", None,
        lambda it: it.client().get_spots(),
    ),
    Raises(
        "ApiError", "a name that another order has", 409, "IDEMPOTENCY_KEY_REUSE", None,
        reuses_a_name,
    ),
    Raises(
        "ApiError", "no server answers, four times", 0, "NETWORK_ERROR", None, finds_nobody
    ),
    Raises(
        "ApiError", "503 other than `VENUE_UNAVAILABLE`, four times", 503,
        "RETRIES_EXHAUSTED", None,
        meets_a_full_server,
    ),
    Raises(
        "ValidationError", "an order that breaks a trading rule", 400, "INSUFFICIENT_BALANCE", None,
        lambda it: it.order(quantity="5000"),
    ),
    Raises(
        "ValidationError", "a post-only order that would fill at once", 400,
        "POST_ONLY_WOULD_CROSS", None,
        rests_across_the_book,
    ),
    Raises(
        "ValidationError", "an invalid field", 422, "VALIDATION_FAILED", None,
        lambda it: it.order(quantity="-1"),
    ),
    Raises(
        "RateLimitError", "the fourth 429, or a wait above `max_retry_after`", 429,
        "RATE_LIMIT_EXCEEDED", 1, reads_too_fast,
    ),
    Raises(
        "VenueUnavailableError", "no fresh book to fill on", 503, "VENUE_UNAVAILABLE", 1,
        trades_without_a_book,
    ),
    Raises("EdgeBlockedError", "never, unless you put Cloudflare in front", 0, "", None, None),
]


def table():
    """One line for each row."""
    for row in ERRORS:
        retry_after = "" if row.retry_after is None else row.retry_after
        status, code = (row.status, f"`{row.code}`") if row.call else ("", "")
        print(f"| `{row.name}` | {row.condition} | {status} | {code} | {retry_after} |")


def walk(servers):
    """Raises every error, and returns what was wrong."""
    from polysim_sdk import exceptions

    names = {name for name in vars(exceptions) if name.endswith("Error")} - {"PolySimError"}
    wrong = [f"{name}: no row" for name in sorted(names - {row.name for row in ERRORS})]
    for row in ERRORS:
        if row.call is None:
            continue
        try:
            check(row, servers)
        except Exception as error:
            wrong.append(f"{row.name}, {row.condition}: {type(error).__name__}: {error}")
    return wrong


def check(row, servers):
    from polysim_sdk.exceptions import PolySimError

    try:
        answer = row.call(servers)
    except PolySimError as error:
        shown = type(error).__name__, error.status_code, error.code
        same(shown, (row.name, row.status, row.code))
        same(getattr(error, "retry_after", None), row.retry_after, "retry_after")
    else:
        raise AssertionError(f"no error but {answer!r}")
