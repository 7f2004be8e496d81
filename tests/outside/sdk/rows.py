"""What the tables say of a method, and the walk that holds a client to its table."""

import asyncio
import inspect
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

WORKS = "works"
LOCAL = "needs no server"
NOT_OFFERED = "not offered"
CANNOT = "cannot work"
KINDS = [WORKS, LOCAL, NOT_OFFERED, CANNOT]


class Row(NamedTuple):
    """A method: what becomes of it, and how it is called. `run` takes the client and the world."""

    kind: str
    run: Callable[[Any, Any], Any]


def works(run):
    """The call does what its own checks say."""
    return Row(WORKS, run)


def local(run):
    """The call sends no request."""
    return Row(LOCAL, run)


def not_offered(run):
    """The server says in a sentence that it leaves this out."""

    def check(client, world):
        error = raised(lambda: run(client, world))
        assert (error.status_code, error.code) == (404, "NOT_OFFERED"), repr(error)
        assert error.payload["message"].endswith("."), f"no sentence: {error}"

    return Row(NOT_OFFERED, check)


def cannot(run):
    """The client cannot read the answer of any server that serves the others."""
    return Row(CANNOT, run)


def raised(call):
    """The error that a call raises."""
    from polysim_sdk.exceptions import ApiError

    try:
        answer = call()
    except ApiError as error:
        return error
    raise AssertionError(f"no error but {answer!r}")


def walk(name, client, table, world):
    """Calls every method of the client as its row says, and returns what was wrong."""
    target = client.target if isinstance(client, Blocking) else client
    methods = {method for method in dir(target) if not method.startswith("_")}
    return walk_named(name, client, methods, table, world)


def walk_named(name, client, methods, table, world):
    """Calls what has these names as its row says, and returns what was wrong."""
    wrong = [f"{name}.{method}: no row" for method in sorted(methods - set(table))]
    wrong += [f"{name}.{method}: a row, but no such method" for method in set(table) - methods]
    for method, row in table.items():
        if method not in methods:
            continue
        try:
            row.run(client, world)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            wrong.append(
                f"{name}.{method}: {type(error).__name__}: {error} "
                f"({where.filename}:{where.lineno})"
            )
        else:
            print(f"{name}.{method}: {row.kind}")
    return wrong


class Blocking:
    """An asynchronous client, or what it returns, with methods that block: one table serves the
    synchronous client and its twin."""

    def __init__(self, target, loop):
        self.target = target
        self.loop = loop

    def __getattr__(self, name):
        value = getattr(self.target, name)
        if not inspect.ismethod(value) and not inspect.isfunction(value):
            return self._wrapped(value)
        return lambda *positional, **named: self._finished(value(*positional, **named))

    def __iter__(self):
        return iter(self.loop.run_until_complete(self._collected(self.target)))

    def _finished(self, value):
        if inspect.isawaitable(value):
            value = self.loop.run_until_complete(value)
        if inspect.isasyncgen(value):
            return self.loop.run_until_complete(self._collected(value))
        return self._wrapped(value)

    def _wrapped(self, value):
        is_asynchronous = type(value).__name__.startswith(("Async", "_EmptyAsync"))
        return Blocking(value, self.loop) if is_asynchronous else value

    @staticmethod
    async def _collected(stream):
        return [item async for item in stream]


def same(actual, expected, what=""):
    """Fails unless two values are equal."""
    assert actual == expected, f"{what}: {actual!r} instead of {expected!r}"


def new_loop():
    """An event loop for asynchronous clients."""
    return asyncio.new_event_loop()
