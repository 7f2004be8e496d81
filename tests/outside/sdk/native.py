"""The tables of `polysim_sdk`: PolySimClient, its twin, and their simulation."""

import csv
import io
import time
from decimal import Decimal

from rows import Blocking, local, not_offered, raised, same, works
from world import Ledger, text


def account(client, world):
    me = client.me()
    same(me["balance"], text(world.ledger.cash), "balance")
    same((me["currency"], me["tier"]), ("USD", "pro"))
    same(me["permissions"], ["read", "trade"])


def balance(client, world):
    shown = client.balance()
    same((shown["balance"], shown["starting_balance"]), (text(world.ledger.cash), "1000"))
    same(Decimal(shown["unrealized_pnl"]), Decimal(shown["total_value"]) - 1000)


def positions(client, world):
    """Every position, its cost divided by its shares, and its value at the displayed price."""
    rows = client.positions(status="OPEN")
    shown = {(row["market_id"], row["outcome"]): row["quantity"] for row in rows}
    same(shown, world.ledger.open_positions())
    for row in rows:
        shares, cost = world.ledger.positions[row["market_id"], row["outcome"]]
        average = (cost / shares).quantize(Decimal("0.000001"))
        same(Decimal(row["avg_entry_price"]), average, "avg_entry_price")
        value = Decimal(row["current_price"]) * shares
        assert abs(Decimal(row["market_value"]) - value) < Decimal("0.00001"), row


def portfolio(client, world):
    shown = client.portfolio()
    same(shown["total_trades"], len(world.ledger.fills))
    same(shown["balance"]["balance"], text(world.ledger.cash))
    same(len(shown["positions"]), len(world.ledger.open_positions()))


def history(client, world):
    """Every fill, the newest first, and pages of it."""
    fills = list(reversed(world.ledger.fills))
    rows = client.history(limit=200)
    same(len(rows), len(fills))
    for row, fill in zip(rows, fills):
        check_fill(row, fill)
        same((row["market_id"], row["side"]), (fill.market, fill.side))
    same(client.history(limit=1, offset=1), rows[1:2])
    same(client.history(market_id="0xnone"), [])


def settlements(client, world):
    """Nothing is settled here; where the market of `bet` has ended, its winner has been paid."""
    same(client.settlements(limit=2), {"data": [], "next_cursor": ""})
    base_url, key = world.moving
    mover = another(client, base_url, key)
    await_settlement(mover)
    rows = {row["outcome"]: row for row in mover.settlements()["data"]}
    market = mover.get_market(rows["Yes"]["market_id"])
    for token in market["tokens"]:
        row, shares = rows[token["outcome"]], BETS[token["outcome"]]
        paid, payout = (shares, "1") if token["winner"] else (Decimal(0), "0")
        same((row["quantity"], row["payout"]), (text(shares), text(paid)))
        same(row["payout_per_share"], payout)
        same(Decimal(row["realized_pnl"]), paid - Decimal(row["cost_basis"]))
        same(row["result"], "won" if token["winner"] else "lost")
    first = mover.settlements(limit=1)
    second = mover.settlements(limit=1, cursor=first["next_cursor"])
    same([row["position_id"] for page in (first, second) for row in page["data"]],
         [row["position_id"] for row in mover.settlements()["data"]])
    gains = sum(Decimal(row["realized_pnl"]) for row in rows.values())
    fees = sum(Decimal(row["fee"]) for row in mover.history(limit=len(BETS)))
    assert fees > 0, "the market has a fee"
    same(Decimal(mover.balance()["balance"]), 1000 + gains - fees)


def exported(file):
    """The rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(file, newline="")))


def as_exported(rows, columns):
    """Rows of a list as CSV has them: all text, and nothing instead of a null."""
    return [{name: "" if row[name] is None else str(row[name]) for name in columns} for row in rows]


TRADE_COLUMNS = ("order_id market_id side outcome price quantity notional fee status "
                 "client_order_id filled_at created_at").split()


def export_trades_csv(client, world):
    """The history, field by field."""
    fills = client.history(limit=200)
    rows = exported(client.export_trades_csv())
    same(list(rows[0]), TRADE_COLUMNS)
    same(rows, as_exported(fills, TRADE_COLUMNS))
    first, last = fills[2]["filled_at"], fills[1]["filled_at"]
    market = fills[1]["market_id"]
    wanted = [it for it in fills if first <= it["filled_at"] <= last and it["market_id"] == market]
    rows = exported(client.export_trades_csv(
        wallet_id="api", from_=first, to=last, market_id=market))
    same(rows, as_exported(wanted, TRADE_COLUMNS))
    same(exported(client.export_trades_csv(to="2000-01-01")), [])
    error = raised(lambda: client.export_trades_csv(from_="yesterday"))
    same((error.status_code, error.code), (422, "VALIDATION_FAILED"))


def export_settlements_csv(client, world):
    """The settlements, field by field; here there are none."""
    same(exported(client.export_settlements_csv()), [])
    mover = another(client, *world.moving)
    settled = mover.settlements()["data"]
    columns = list(settled[0])
    rows = exported(mover.export_settlements_csv())
    same(list(rows[0]), columns)
    same(rows, as_exported(settled, columns))
    at = settled[0]["settled_at"]
    same(exported(mover.export_settlements_csv(from_=at, to=at)),
         as_exported([it for it in settled if it["settled_at"] == at], columns))
    same(exported(mover.export_settlements_csv(market_id="0xnone")), [])


def equity(client, world):
    """Hours since the account was opened; the newest row is the balance."""
    rows = client.equity()
    assert 1 <= len(rows) <= 168, rows
    same([row["timestamp"] for row in rows], sorted(row["timestamp"] for row in rows))
    (row,) = client.equity(limit=1)
    balance = client.balance()
    same((row["total_value"], row["pnl"]), (balance["total_value"], balance["unrealized_pnl"]))
    same(Decimal(row["cash_balance"]), world.ledger.cash)
    value = Decimal(row["cash_balance"]) + Decimal(row["position_value"])
    same(Decimal(row["total_value"]), value)


# Shares of each outcome of a market that ends during the walk.
BETS = {"Yes": Decimal(10), "No": Decimal(4)}
SETTLED_AFTER_S = 120


def bet(client):
    """Buys both outcomes of a market that ends soon."""
    market = client.get_market_by_slug("northmere-noon-rain")
    for outcome, shares in BETS.items():
        answer = client.place_order(
            market_id=market["condition_id"], side="BUY", outcome=outcome, quantity=str(shares)
        )
        same(answer["status"], "FILLED")


def await_settlement(client):
    """Waits until the bets of `bet` are settled."""
    deadline = time.monotonic() + SETTLED_AFTER_S
    while len(client.settlements()["data"]) < len(BETS):
        assert time.monotonic() < deadline, "the market was not resolved"


def another(client, base_url, key):
    """A client of the same class for another server."""
    if isinstance(client, Blocking):
        return Blocking(type(client.target)(api_key=key, base_url=base_url), client.loop)
    return type(client)(api_key=key, base_url=base_url)


def refuses_entitlements(client, world):
    from polysim_sdk.exceptions import PolySimError

    try:
        client.entitlements()
    except PolySimError as error:
        same(error.status_code, None)
    else:
        raise AssertionError("entitlements() asks nobody")


def list_markets(client, world):
    everything = client.list_markets(limit=200)
    same(everything[0]["condition_id"], world.free.id)
    same(client.list_markets(limit=2, offset=1), everything[1:3])
    same([row["slug"] for row in client.list_markets(q="tide")], ["port-amber-tide"])
    same(client.list_markets(closed=True), [])
    ascending = client.list_markets(limit=200, sort="volume24hr", ascending=True)
    volumes = [Decimal(row["volume_24h"]) for row in ascending]
    same(volumes, sorted(volumes))
    same(len(volumes), len(everything))


def get_market(client, world):
    shown = client.get_market(world.charged.id)
    same(shown["condition_id"], world.charged.id)
    same([token["token_id"] for token in shown["tokens"]], list(world.charged.tokens))


def get_market_by_slug(client, world):
    same(client.get_market_by_slug(world.free.slug)["condition_id"], world.free.id)


def get_market_by_token(client, world):
    shown = client.get_market_by_token(world.charged.tokens[1])
    same((shown["condition_id"], shown["outcome"]), (world.charged.id, "Down"))


def get_book(client, world):
    same(client.get_book(world.charged.id, outcome="DOWN"), world.book(world.charged, 1))
    best = client.get_book(world.free.id, depth=1)
    same(best["bids"], world.book(world.free)["bids"][-1:])


def get_book_by_token(client, world):
    same(client.get_book_by_token(world.free.tokens[0]), world.book(world.free))


def get_candles(client, world):
    """Prices that stand still make flat candles, with what the clients have traded."""
    bid, ask = world.touch(world.free)
    for interval, seconds in ("1m", 60), ("1h", 3600), ("1d", 86400):
        rows = client.get_candles(world.free.id, interval=interval, start_time="2026-01-01")
        assert rows, interval
        for row in rows:
            same({Decimal(row[name]) for name in "ohlc"}, {(bid + ask) / 2})
            same(row["t"] % seconds, 0)
    assert Decimal(rows[-1]["v"]) > 0, rows
    same(client.get_candles(world.free.id, end_time=0), [])
    error = raised(lambda: client.get_candles(world.free.id, interval="1y"))
    same((error.status_code, error.code), (400, "INVALID_INTERVAL"))


def list_events(client, world):
    cup = client.list_events(search="lantern cup winner")
    same([event["title"] for event in cup], ["Lantern Cup winner"])
    same(len(cup[0]["markets"]), 5)
    everything = client.list_events(limit=200)
    listed = {market["condition_id"] for event in everything for market in event["markets"]}
    same(listed, {row["condition_id"] for row in client.list_markets(limit=200, closed=False)})
    same(client.list_events(limit=1, offset=1), everything[1:2])


def list_updown(client, world):
    rows = client.list_updown(live=True)
    same({row["asset"] for row in rows}, {"AMBER", "TERN"})
    (daily,) = client.list_updown(asset="tern", interval="daily")
    same(daily["condition_id"], world.charged.id)
    bid, ask = world.touch(world.charged)
    same(Decimal(str(daily["live_price"]["buy"])), (bid + ask) / 2)
    same(client.list_updown(asset="BTC"), [])


def get_updown(client, world):
    shown = client.get_updown(asset="TERN")
    same((shown["available_intervals"], shown["crypto_prices"]), (["daily"], {}))
    same(shown["asset_counts"], {"AMBER": 1, "TERN": 1})


def check_fill(row, fill):
    """The numbers of a fill are those of the ledger."""
    shown = [row["price"], row["quantity"], row["notional"], row["fee"]]
    same(shown, [text(number) for number in (fill.price, fill.quantity, fill.notional, fill.fee)])


def place_order(client, world):
    """Market orders fill on the book, a limit order rests, and a name makes an order once."""
    name = f"walk-{len(world.ledger.fills)}"
    order = dict(market_id=world.charged.id, side="buy", outcome="Up", price="0.99")
    answer = client.place_order(**order, quantity="150.5", client_order_id=name)
    fill = world.fill(world.charged, "BUY", "150.5")
    check_fill(answer, fill)
    same((answer["status"], answer["account_balance"]), ("FILLED", text(fill.cash)))
    again = client.place_order(**order, quantity="150.5", client_order_id=name)
    same((again["order_id"], again["is_replay"]), (answer["order_id"], True))
    sold = client.place_order(**{**order, "side": "SELL", "price": "0.01"}, quantity=40)
    check_fill(sold, world.fill(world.charged, "SELL", 40))
    spent = client.place_order(
        market_id=world.free.id, side="BUY", outcome="Yes", amount=20, price=0.99
    )
    check_fill(spent, world.spend(world.free, 20))
    world.kept["filled"] = answer["order_id"]
    world.kept["resting"] = rest(client, world)["order_id"]


def rest(client, world, market=None, price="0.02"):
    """Places a limit order that rests."""
    market = market or world.free
    answer = client.place_order(
        market_id=market.id, side="BUY", outcome=market.labels[0], order_type="limit",
        quantity=10, price=price, time_in_force="GTC",
    )
    same((answer["status"], answer["order_type"]), ("PENDING", "limit"))
    return answer


def place_orders(client, world):
    """Entries are independent: one fills, one rests, one is refused."""
    market = dict(market_id=world.free.id, side="BUY", outcome="No")
    filled, resting, refused = client.place_orders([
        {**market, "quantity": 5},
        {**market, "quantity": 5, "order_type": "limit", "price": "0.01"},
        {**market, "quantity": 1_000_000},
    ])
    check_fill(filled, world.fill(world.free, "BUY", 5, outcome=1))
    same(resting["status"], "PENDING")
    same((refused["status"], refused["order_id"]), ("REJECTED", 0))
    world.kept["batched"] = resting["order_id"]


def get_order(client, world):
    filled = client.get_order(world.kept["filled"])
    same((filled["status"], filled["outcome"]), ("FILLED", "Up"))
    resting = client.get_order(str(world.kept["resting"]), source="pending")
    same((resting["status"], resting["limit_price"]), ("PENDING", "0.02"))


def list_orders(client, world):
    resting = client.list_orders(status="OPEN")
    same({row["order_id"] for row in resting}, {world.kept["resting"], world.kept["batched"]})
    same(client.list_orders(status="FILLED", limit=200)[-1]["status"], "FILLED")
    same(client.list_orders(market_id="0xnone"), [])


def cancel_order(client, world):
    answer = client.cancel_order(world.kept["resting"])
    same((answer["status"], answer["order_id"]), ("CANCELLED", world.kept["resting"]))
    error = raised(lambda: client.cancel_order(world.kept["resting"]))
    same(error.code, "ORDER_NOT_CANCELLABLE")


def cancel_all(client, world):
    same(client.cancel_all(), {"canceled": [str(world.kept["batched"])], "not_canceled": {}})
    same(client.list_orders(status="PENDING"), [])


def cancel_market_orders(client, world):
    here, there = rest(client, world), rest(client, world, world.charged)
    answer = client.cancel_market_orders(world.free.id)
    same(answer["canceled"], [str(here["order_id"])])
    same(client.cancel_all()["canceled"], [str(there["order_id"])])


def data_orders(client, world):
    """The open orders as the venue shows them, and one that has ended by its status."""
    open_id = str(rest(client, world)["order_id"])
    page = client.data_orders(market=world.free.id)
    same((page["count"], page["next_cursor"]), (1, "LTE="))
    (row,) = page["data"]
    same((row["id"], row["asset_id"], row["price"]), (open_id, world.free.tokens[0], "0.02"))
    same((row["status"], row["size_matched"]), ("ORDER_STATUS_LIVE", "0"))
    client.cancel_all()
    same(client.data_orders()["data"], [])
    (ended,) = client.data_orders(id=open_id, status="CANCELED")["data"]
    same(ended["status"], "ORDER_STATUS_CANCELED")


def data_trades(client, world):
    """Every fill, the newest first, page by page."""
    rows, cursor = [], "MA=="
    while cursor != "LTE=":
        page = client.data_trades(next_cursor=cursor, limit=2)
        rows += page["data"]
        cursor = page["next_cursor"]
    shown = [(row["market"], row["side"], row["size"], row["price"]) for row in rows]
    fills = reversed(world.ledger.fills)
    same(shown, [(it.market, it.side, text(it.quantity), text(it.price)) for it in fills])
    same([row["id"] for row in rows], [row["fill_id"] for row in client.history(limit=200)])


def list_wallets(client, world):
    (wallet,) = client.list_wallets()
    same((wallet["id"], wallet["kind"]), (client.me()["id"], "API"))
    same((wallet["balance"], wallet["baseline"]), (text(world.ledger.cash), "1000"))
    world.kept["wallet"] = wallet


def get_wallet(client, world):
    wallet = world.kept["wallet"]
    same(client.get_wallet(str(wallet["id"])), wallet)
    same(raised(lambda: client.get_wallet("7000000")).code, "WALLET_NOT_FOUND")


def reset_wallet(client, world):
    """What is open ends, the balance is the first one, and no fill is forgotten."""
    wallet, fills = world.kept["wallet"], client.history(limit=200)
    rest(client, world)
    held = world.ledger.open_positions()
    done = client.reset_wallet(str(wallet["id"]))
    same((done["positions_closed"], done["orders_cancelled"]), (len(held), 1))
    world.ledger = Ledger(Decimal(1000))
    same(client.get_wallet("api"), {**wallet, "balance": "1000", "generation": 2})
    same(client.positions(status="OPEN"), [])
    closed = client.positions(status="CLOSED")
    lost = {(row["market_id"], row["outcome"]) for row in closed
            if row["status"] == "CLOSED_BY_RESET"}
    same(lost, set(held))
    same(client.history(limit=200), fills)


def reset_api_balance(client, world):
    """A repeat finds nothing to do."""
    client.place_order(market_id=world.free.id, side="BUY", outcome="Yes", quantity=5)
    done = client.reset_api_balance()
    same((done["new_api_balance"], done["positions_closed"]), ("1000", 1))
    again = client.reset_api_balance()
    same((again["new_api_balance"], again["positions_closed"]), ("1000", 0))
    same(client.balance()["unrealized_pnl"], "0")


def list_keys(client, world):
    """A key without `admin` sees only itself."""
    (own,) = client.list_keys()
    same((own["rate_limit_tier"], own["is_active"]), ("pro", True))
    world.kept["own_key"] = own["id"]


def create_key(client, world):
    made = client.create_key(name="second", tier="free", permissions=["read"])
    same((made["name"], made["permissions"]), ("second", ["read"]))
    same(made["raw_key"][:16], made["key_prefix"])
    world.kept["second_key"] = made


def bootstrap(client, world):
    """The account has a key already, so there is no first one to make."""
    error = raised(
        lambda: client.bootstrap(jwt=world.token, name="again", base_url=world.base_url)
    )
    same((error.status_code, error.code), (400, "BOOTSTRAP_NOT_ALLOWED"))


def bootstrap_key(client, world):
    error = raised(lambda: client.bootstrap_key(jwt=world.token, name="again"))
    same((error.status_code, error.code), (400, "BOOTSTRAP_NOT_ALLOWED"))


def rename_key(client, world):
    same(client.rename_key(world.kept["own_key"], name="walker")["name"], "walker")


def rotate_key(client, world):
    """The new key takes the place of the old one, which works for another day."""
    made = client.rotate_key(world.kept["own_key"])
    same((made["name"], made["rate_limit_tier"]), ("walker", "pro"))
    assert made["id"] != world.kept["own_key"]


def delete_key(client, world):
    """A key without `admin` may revoke only itself, and this one is still needed."""
    error = raised(lambda: client.delete_key(world.kept["second_key"]["id"]))
    same((error.status_code, error.code), (403, "INSUFFICIENT_PERMISSION"))


def tiers(client, world):
    shown = {row["tier"]: row["max_batch_size"] for row in client.tiers()}
    same(shown, {"free": 5, "pro": 20, "enterprise": 50})


def ws_token(client, world):
    shown = client.ws_token()
    same(shown["expires_in"], 60)
    assert len(shown["token"]) > 32, shown


def base_url(client, world):
    same(client.base_url, world.base_url)


SIMULATED = dict(condition_id="0x1", at="2026-01-01T00:00:00Z")
DAY = dict(start="2026-01-01", end="2026-01-02")

SIMULATION = {
    "fill": not_offered(lambda it, world: it.fill(**SIMULATED, shares="1")),
    "coverage": not_offered(lambda it, world: it.coverage("0x1")),
    "fill_models": not_offered(lambda it, world: it.fill_models()),
    "book": not_offered(lambda it, world: it.book(**SIMULATED)),
    "create_backtest": not_offered(
        lambda it, world: it.create_backtest(
            condition_ids=["0x1"], **DAY, strategy={}, initial_bankroll="1"
        )
    ),
    "list_backtests": not_offered(lambda it, world: it.list_backtests()),
    "get_backtest": not_offered(lambda it, world: it.get_backtest("7")),
    "list_trades": not_offered(lambda it, world: it.list_trades("7")),
    "list_equity": not_offered(lambda it, world: it.list_equity("7")),
    "cancel_backtest": not_offered(lambda it, world: it.cancel_backtest("7")),
    "wait": not_offered(lambda it, world: it.wait("7")),
}

NATIVE = {
    "base_url": local(base_url),
    "simulation": local(lambda it, world: it.simulation),
    "list_markets": works(list_markets),
    "get_market": works(get_market),
    "get_market_by_slug": works(get_market_by_slug),
    "get_market_by_token": works(get_market_by_token),
    "get_book": works(get_book),
    "get_book_by_token": works(get_book_by_token),
    "get_candles": works(get_candles),
    "list_events": works(list_events),
    "list_updown": works(list_updown),
    "get_updown": works(get_updown),
    "get_price_to_beat": not_offered(lambda it, world: it.get_price_to_beat(world.charged.id)),
    "get_spot": not_offered(lambda it, world: it.get_spot("BTC")),
    "get_spots": not_offered(lambda it, world: it.get_spots()),
    "place_order": works(place_order),
    "place_orders": works(place_orders),
    "get_order": works(get_order),
    "list_orders": works(list_orders),
    "cancel_order": works(cancel_order),
    "cancel_all": works(cancel_all),
    "cancel_market_orders": works(cancel_market_orders),
    "data_orders": works(data_orders),
    "data_trades": works(data_trades),
    "me": works(account),
    "balance": works(balance),
    "positions": works(positions),
    "portfolio": works(portfolio),
    "history": works(history),
    "settlements": works(settlements),
    "equity": works(equity),
    "entitlements": local(refuses_entitlements),
    "export_trades_csv": works(export_trades_csv),
    "export_settlements_csv": works(export_settlements_csv),
    "list_wallets": works(list_wallets),
    "get_wallet": works(get_wallet),
    "reset_wallet": works(reset_wallet),
    "create_wallet": not_offered(lambda it, world: it.create_wallet(name="a", kind="SANDBOX")),
    "update_wallet": not_offered(lambda it, world: it.update_wallet("64", name="a")),
    "archive_wallet": not_offered(lambda it, world: it.archive_wallet("64")),
    "tiers": works(tiers),
    "ws_token": works(ws_token),
    "list_keys": works(list_keys),
    "create_key": works(create_key),
    "bootstrap": works(bootstrap),
    "bootstrap_key": works(bootstrap_key),
    "rename_key": works(rename_key),
    "rotate_key": works(rotate_key),
    "delete_key": works(delete_key),
    "reset_api_balance": works(reset_api_balance),
    "close": local(lambda it, world: it.close()),
}

ASYNC_NATIVE = {
    **{name: row for name, row in NATIVE.items() if name != "close"},
    "aclose": local(lambda it, world: it.aclose()),
}
