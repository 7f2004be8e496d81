"""Drives the official Python SDK against a server: every public method of each client, and every
function of its modules, has a row that says how it is called and what it must answer.

    walk.py          reads its servers from standard input, and walks
    walk.py --table  prints the tables of the guide
"""

import json
import sys

import errors
import helpers

from clob import CLOB
from mirror import ASYNC_PUBLIC, ASYNC_SECURE, PUBLIC, SECURE
from native import ASYNC_NATIVE, NATIVE, SIMULATION, bet
from rows import KINDS, Blocking, new_loop, walk
from world import World

TABLES = [
    (["PolySimClient", "AsyncPolySimClient"], [NATIVE, ASYNC_NATIVE]),
    (["polysim_sdk"], [helpers.HELPERS]),
    (["PolySimClient.simulation", "AsyncPolySimClient.simulation"], [SIMULATION]),
    (["ClobClient"], [CLOB]),
    (["PublicClient", "AsyncPublicClient"], [PUBLIC, ASYNC_PUBLIC]),
    (["SecureClient", "AsyncSecureClient"], [SECURE, ASYNC_SECURE]),
]


def table():
    """One line for each client and each kind of method."""
    for names, tables in TABLES:
        rows = {method: row.kind for rows in tables for method, row in rows.items()}
        for kind in KINDS:
            methods = [f"`{method}`" for method in sorted(rows) if rows[method] == kind]
            if methods:
                clients = ", ".join(f"`{name}`" for name in names)
                print(f"| {clients} | {kind} | {' '.join(methods)} |")


def bootstrap(base_url, token, name, tier="pro"):
    """The first key of an account."""
    from polysim_sdk import PolySimClient

    return PolySimClient.bootstrap(jwt=token, name=name, tier=tier, base_url=base_url)["raw_key"]


def error_servers(servers, token, slow_token):
    """Where each error is raised, and the keys for it."""
    from polysim_sdk import PolySimClient

    base_url, bookless = servers["still"]["url"], servers["bookless"]
    key = bootstrap(base_url, token, "errors")
    reader = PolySimClient(key, base_url).create_key(name="reader", permissions=["read"])
    return errors.Servers(
        base_url=base_url,
        key=key,
        read_key=reader["raw_key"],
        slow_key=bootstrap(base_url, slow_token, "slow", tier="free"),
        market=PolySimClient(key, base_url).list_markets(limit=1)[0]["condition_id"],
        no_books=bookless["url"],
        no_books_key=bootstrap(bookless["url"], bookless["tokens"][0], "bookless"),
        full=servers["full"]["url"],
        full_token=servers["full"]["tokens"][0],
    )


def main(servers):
    """Walks each client with an account of its own. Each server has a `url` and `tokens`: `still`,
    whose books stand still, `moving`, whose markets end, `bookless` and `full`."""
    import polysim_polymarket as mirrors
    from polysim_clob_client.client import ClobClient
    from polysim_sdk import AsyncPolySimClient, PolySimClient

    loop = new_loop()
    base_url, tokens = servers["still"]["url"], iter(servers["still"]["tokens"])
    moving_url = servers["moving"]["url"]
    moving = moving_url, bootstrap(moving_url, servers["moving"]["tokens"][0], "moving")
    bet(PolySimClient(api_key=moving[1], base_url=moving_url))

    def opened(token, name):
        return World(base_url, token, moving), bootstrap(base_url, token, name)

    wrong = []

    world, key = opened(next(tokens), "clob")
    wrong += walk("ClobClient", ClobClient(host=base_url, key=key), CLOB, world)

    wrong += walk("PublicClient", mirrors.PublicClient(host=base_url), PUBLIC, world)
    twin = Blocking(mirrors.AsyncPublicClient(host=base_url, api_key=key), loop)
    wrong += walk("AsyncPublicClient", twin, ASYNC_PUBLIC, world)

    world, key = opened(next(tokens), "mirror")
    secure = mirrors.SecureClient(host=base_url, api_key=key)
    wrong += walk("SecureClient", secure, SECURE, world)

    world, key = opened(next(tokens), "mirror")
    twin = Blocking(mirrors.AsyncSecureClient(host=base_url, api_key=key), loop)
    wrong += walk("AsyncSecureClient", twin, ASYNC_SECURE, world)

    # By now the market has ended, or nearly so.
    world, key = opened(next(tokens), "walk")
    client = PolySimClient(api_key=key, base_url=base_url)
    wrong += walk("PolySimClient.simulation", client.simulation, SIMULATION, world)
    wrong += walk("PolySimClient", client, NATIVE, world)

    world, key = opened(next(tokens), "walk")
    twin = Blocking(AsyncPolySimClient(api_key=key, base_url=base_url), loop)
    wrong += walk("AsyncPolySimClient.simulation", twin.simulation, SIMULATION, world)
    wrong += walk("AsyncPolySimClient", twin, ASYNC_NATIVE, world)

    world, key = opened(next(tokens), "helpers")
    client = PolySimClient(api_key=key, base_url=base_url)
    twin = Blocking(AsyncPolySimClient(api_key=key, base_url=base_url), loop)
    wrong += helpers.walk(client, twin, world)

    wrong += errors.walk(error_servers(servers, next(tokens), next(tokens)))
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        table()
        print()
        errors.table()
    else:
        main(json.load(sys.stdin))
