"""What somebody would build instead: a trade on FastAPI, PostgreSQL and Redis.

It does for one trade what paperbourse does: a hashed key is looked up, exact sliding windows are
checked in Redis, the body is validated, the order fills against a book in the process, and balance,
position and order are written in one transaction that is on disk before the answer leaves. Two SQL
statements a trade, three for a repeated one.
"""

import hashlib
import os
import time
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Annotated, Literal

import asyncpg
import redis.asyncio
from fastapi import FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from book import MICROS, Book

POOL_CONNECTIONS = 16
LIMIT_PER_SECOND = 1_000_000
LIMIT_PER_MINUTE = 60_000_000

# Two exact sliding windows of one key: KEYS[1] holds a member for each request of the last minute.
SLIDING_WINDOWS = """
local now = tonumber(ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 60000000)
local minute = redis.call('ZCARD', KEYS[1])
local second = redis.call('ZCOUNT', KEYS[1], now - 1000000, '+inf')
if second >= tonumber(ARGV[2]) or minute >= tonumber(ARGV[3]) then
  return {0, second, minute}
end
redis.call('ZADD', KEYS[1], now, ARGV[4])
redis.call('PEXPIRE', KEYS[1], 60000)
return {1, second + 1, minute + 1}
"""

FIND_KEY = """
SELECT id, account_id, may_trade FROM api_keys WHERE hash = $1 AND revoked_at IS NULL
"""

# Position, balance and order, or nothing: the checks of the tables refuse what cannot be paid.
BUY = """
INSERT INTO positions AS held (account_id, market_id, outcome, shares, cost)
VALUES ($1, $4, $5, $7, $8)
ON CONFLICT (account_id, market_id, outcome) DO UPDATE SET
    shares = held.shares + excluded.shares, cost = held.cost + excluded.cost
RETURNING shares, cost
"""

# A sale takes its share of what the position has cost.
SELL = """
UPDATE positions SET
    shares = shares - $7,
    cost = CASE WHEN shares = $7 THEN 0 ELSE cost - cost * $7 / shares END
WHERE account_id = $1 AND market_id = $4 AND outcome = $5
RETURNING shares, cost
"""

TRADE = """
WITH held AS ({position}), paid AS (
    UPDATE accounts SET cash = cash {sign} $8 - $9 FROM held WHERE id = $1
    RETURNING accounts.cash, held.shares, held.cost
)
INSERT INTO orders (account_id, idempotency_key, fingerprint, market_id, outcome, side, shares,
                    notional, fee, cash_after, position_shares, position_cost)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, paid.cash, paid.shares, paid.cost FROM paid
RETURNING id, shares, notional, fee, cash_after, position_shares, position_cost, fingerprint
"""

TRADES = {
    "BUY": TRADE.format(position=BUY, sign="-"),
    "SELL": TRADE.format(position=SELL, sign="+"),
}

FIND_ORDER = """
SELECT id, shares, notional, fee, cash_after, position_shares, position_cost, fingerprint
FROM orders WHERE account_id = $1 AND idempotency_key = $2
"""


class Trade(BaseModel):
    """The body of a trade."""

    market_id: Annotated[str, Field(min_length=1, max_length=256)]
    outcome: Annotated[str, Field(min_length=1, max_length=256)]
    side: Literal["BUY", "SELL"]
    quantity: Annotated[Decimal, Field(gt=0, le=1_000_000, decimal_places=6)]
    expected_price: Annotated[Decimal, Field(ge=0, le=1)] | None = None
    max_slippage_bps: Annotated[int, Field(ge=0, le=10_000)] | None = None
    client_order_id: Annotated[str, Field(max_length=128)] | None = None

    def fingerprint(self) -> bytes:
        """What makes another request the same order."""
        fields = (self.market_id, self.outcome.lower(), self.side, self.quantity,
                  self.expected_price, self.max_slippage_bps)
        return hashlib.sha256("\0".join(map(str, fields)).encode()).digest()


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code, self.message = status, code, message


class World:
    """What all requests share."""

    database: asyncpg.Pool
    redis: redis.asyncio.Redis
    book = Book()
    request_count = 0


world = World()


@asynccontextmanager
async def lifespan(_: FastAPI):
    """Connects to both stores for as long as the server runs."""
    world.database = await asyncpg.create_pool(
        host=os.environ["PERF_DATABASE_FOLDER"], user="postgres", database="postgres",
        min_size=POOL_CONNECTIONS, max_size=POOL_CONNECTIONS,
    )
    world.redis = redis.asyncio.Redis(unix_socket_path=os.environ["PERF_REDIS_SOCKET"])
    world.limiter = world.redis.register_script(SLIDING_WINDOWS)
    yield
    await world.redis.aclose()
    await world.database.close()


app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)


@app.exception_handler(Refused)
async def refused(_: Request, refusal: Refused) -> JSONResponse:
    """An error in the form that paperbourse gives it."""
    return error(refusal.status, refusal.code, refusal.message)


@app.exception_handler(RequestValidationError)
async def invalid(_: Request, invalidity: RequestValidationError) -> JSONResponse:
    """A body that is no trade."""
    return error(422, "VALIDATION_FAILED", str(invalidity.errors()[0]["msg"]))


@app.get("/v1/health/ready")
async def ready() -> Response:
    """The pools are open when requests are answered at all."""
    return Response()


@app.post("/trade")
async def trade(
    order: Trade,
    response: Response,
    x_api_key: Annotated[str, Header(max_length=128)],
    idempotency_key: Annotated[str | None, Header(max_length=128)] = None,
) -> dict:
    """A market order: all of it at once or nothing."""
    key_hash = hashlib.sha256(x_api_key.encode()).digest()
    key = await world.database.fetchrow(FIND_KEY, key_hash)
    if key is None:
        raise Refused(401, "INVALID_KEY", "the API key is not valid")
    if not key["may_trade"]:
        raise Refused(403, "INSUFFICIENT_PERMISSION", "the API key may not trade")
    await limit(key["id"], response)
    shares = int(order.quantity * MICROS)
    notional = world.book.fill(order.side, shares)
    if notional is None:
        raise Refused(400, "INSUFFICIENT_LIQUIDITY", "the book is too thin")
    row = await write(key["account_id"], idempotency_key, order, shares, notional, response)
    position_shares, position_cost = row["position_shares"], row["position_cost"]
    return {
        "order_id": row["id"],
        "status": "FILLED",
        "price": row["notional"] / row["shares"],
        "quantity": row["shares"] / MICROS,
        "notional": row["notional"] / MICROS,
        "fee": row["fee"] / MICROS,
        "account_balance": row["cash_after"] / MICROS,
        "position": {
            "market_id": order.market_id,
            "outcome": order.outcome,
            "quantity": position_shares / MICROS,
            "avg_entry_price": position_cost / position_shares if position_shares else None,
            "status": "OPEN" if position_shares else "CLOSED",
        },
    }


async def limit(key_id: int, response: Response) -> None:
    """Counts the request in the windows of its key."""
    world.request_count += 1
    now_us = time.time_ns() // 1000
    member = f"{os.getpid()}-{world.request_count}"
    admitted, second, minute = await world.limiter(
        keys=[f"limit:{key_id}"], args=[now_us, LIMIT_PER_SECOND, LIMIT_PER_MINUTE, member]
    )
    response.headers["x-request-id"] = f"{os.getpid():x}-{world.request_count}"
    response.headers["x-ratelimit-tier"] = "free"
    response.headers["x-ratelimit-limit"] = str(LIMIT_PER_MINUTE)
    response.headers["x-ratelimit-limit-per-second"] = str(LIMIT_PER_SECOND)
    response.headers["x-ratelimit-remaining"] = str(LIMIT_PER_MINUTE - minute)
    response.headers["x-ratelimit-remaining-per-second"] = str(LIMIT_PER_SECOND - second)
    response.headers["x-ratelimit-reset"] = str(now_us // 1_000_000 + 60)
    if not admitted:
        raise Refused(429, "RATE_LIMIT_EXCEEDED", "too many requests")


async def write(
    account_id: int,
    idempotency_key: str | None,
    order: Trade,
    shares: int,
    notional: int,
    response: Response,
) -> asyncpg.Record:
    """The order as it is on disk: this one, or the earlier one of the same name."""
    fingerprint = order.fingerprint()
    try:
        written = await world.database.fetchrow(
            TRADES[order.side], account_id, idempotency_key, fingerprint, order.market_id,
            order.outcome, order.side, shares, notional, 0,
        )
    except asyncpg.UniqueViolationError:
        lacking = "INTERNAL_ERROR"
    except asyncpg.CheckViolationError as violation:
        is_cash = violation.constraint_name == "accounts_cash_check"
        lacking = "INSUFFICIENT_BALANCE" if is_cash else "INSUFFICIENT_POSITION"
    else:
        if written is not None:
            return written
        lacking = "INSUFFICIENT_POSITION"
    # A repeated order is answered as before, also when there is not enough for another one.
    return await earlier(account_id, idempotency_key, fingerprint, lacking, response)


async def earlier(
    account_id: int,
    idempotency_key: str | None,
    fingerprint: bytes,
    lacking: str,
    response: Response,
) -> asyncpg.Record:
    """The order that has this name; without one, what was lacking for a new one is the answer."""
    order = await world.database.fetchrow(FIND_ORDER, account_id, idempotency_key)
    if order is None:
        raise Refused(400, lacking, "there is not enough for this order")
    if order["fingerprint"] != fingerprint:
        raise Refused(409, "IDEMPOTENCY_KEY_REUSE", "the name stands for another order")
    response.headers["idempotent-replayed"] = "true"
    return order


def error(status: int, code: str, message: str) -> JSONResponse:
    """The error body."""
    body = {"detail": message, "error": code, "message": message}
    return JSONResponse(body, status_code=status, headers={"X-Polysim-Code": code})
