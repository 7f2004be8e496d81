"""Reads a recording: its markets, and their order books after the whole tape.

Written independently of the server's reader. Sizes and prices are
fractions, a book is {"BUY": {price: size}, "SELL": {price: size}, "newest": side of the last change}.
"""
import gzip, json, os, re
from fractions import Fraction as F


ENDING = re.compile(r"\.(json|jsonl|ndjson)(\.gz)?$", re.IGNORECASE)


def files(directory):
    """The path and the text of every file that can be read."""
    for folder in ("gamma", "clob", "ws"):
        paths = [os.path.join(root, name) for root, _, names in os.walk(os.path.join(directory, folder))
                 for name in names if ENDING.search(name)]
        for path in sorted(paths):
            content = open(path, "rb").read()
            content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
            yield path, content.decode("utf-8-sig", errors="replace")


def rows(directory):
    """Every JSON object of a recording, with its file; arrays, pages, texts and envelopes opened."""
    def opened(value):
        if isinstance(value, str):
            value = json.loads(value, parse_float=F, parse_int=F)
        if isinstance(value, list):
            for item in value:
                yield from opened(item)
        elif isinstance(value, dict) and "url" not in value:
            keys = ("raw", "markets", "events", "data", "payload", "frame")
            inner = next((value[key] for key in keys if value.get(key)), None)
            yield from opened(inner) if inner and "conditionId" not in value else [value]
    for path, content in files(directory):
        parts = [content] if re.search(r"\.json(\.gz)?$", path, re.IGNORECASE) else content.splitlines()
        found = []
        for part in parts:
            try:
                found += opened(json.loads(part, parse_float=F, parse_int=F))
            except ValueError:
                pass  # Plain text of the socket, or a malformed row.
        if not any("changes" in row for row in found):  # Frames of the old format.
            for row in found:
                yield path, row


def array(value):
    if isinstance(value, str):
        return json.loads(value or "[]", parse_float=str, parse_int=str)
    return value or []


def schedule(enabled, fees, rate="rate", exponent="exponent"):
    """(rate, exponent), or None if the exchange does not support the schedule."""
    if enabled is False or fees is None:
        return F(0), 1
    rate, exponent = F(fees[rate]), F(fees[exponent])
    if not 0 <= rate <= 1 or (rate and exponent not in (1, 2)):
        return None
    return rate, int(exponent)


def described(row):
    """(rank, market): the lower rank wins. None for a row that describes no market."""
    if "conditionId" in row and "asset" not in row:
        labels, tokens = array(row.get("outcomes")), array(row.get("clobTokenIds"))
        outcomes = [(label, (tokens + [""] * len(labels))[i]) for i, label in enumerate(labels)]
        flags = all(row.get(key) for key in ("active", "enableOrderBook", "acceptingOrders"))
        whole = outcomes and all(token for _, token in outcomes)
        status = "open" if flags and not row.get("closed") and whole else "shut"
        enabled, fees = row.get("feesEnabled"), row.get("feeSchedule")
        rate, known = schedule(enabled, fees), enabled is False or fees is not None
        return 0, dict(id=row["conditionId"], outcomes=outcomes, status=status, rate=rate, known=known,
                       closed=bool(row.get("closed")))
    if "token_ids" in row:
        outcomes = list(zip(row["outcomes"], row["token_ids"]))
        return 1, dict(id=row["condition_id"], outcomes=outcomes, status="open", rate=(F(0), 1), known=False)
    if "c" in row and "t" in row:
        outcomes = [(token["o"], token["t"]) for token in row["t"]]
        rate, status = schedule(True, row.get("fd"), "r", "e"), "open" if row.get("ao") else "shut"
        return 2, dict(id=row["c"], outcomes=outcomes, status=status, rate=rate, known=True)
    if row.get("condition_id") and "tokens" in row and "event_type" not in row:
        outcomes = [(token["outcome"], token["token_id"]) for token in row["tokens"]]
        is_open = row.get("active") and row.get("accepting_orders") and not row.get("closed")
        free = row.get("taker_base_fee") == 0
        return 3, dict(id=row["condition_id"], outcomes=outcomes, status="open" if is_open else "shut",
                       rate=(F(0), 1) if free else None, known=free)
    if row.get("event_type") == "new_market":  # It trades from here on, unless it says otherwise.
        outcomes, enabled, fees = list(zip(row["outcomes"], row["assets_ids"])), row.get("fees_enabled"), row.get("fee_schedule")
        status = "open" if row.get("active") is not False and outcomes else "shut"
        return 4, dict(id=row["market"], outcomes=outcomes, status=status, rate=schedule(enabled, fees),
                       known=enabled is False or fees is not None, closed=False)
    return None


def happened(row):
    """(kind, market or token, details) of a row of the tape; None for any other."""
    kind = row.get("event_type")
    if kind == "market_resolved":
        return "ended", row["market"], None
    if kind == "price_change":
        levels = [(change["asset_id"], change["side"], F(change["price"]), F(change["size"]))
                  for change in row["price_changes"]]
        return ("levels", None, levels) if {side for _, side, _, _ in levels} <= {"BUY", "SELL"} else None
    if kind in (None, "book") and "asset_id" in row and "bids" in row:
        sides = [{F(level["price"]): F(level["size"]) for level in row[side]} for side in ("bids", "asks")]
        sides = [{price: size for price, size in side.items() if size} for side in sides]
        return ("book", row["asset_id"], sides) if all(0 < p < 1 for side in sides for p in side) else None
    return None


def load(directory):
    """The markets by id and the books by token at the end of the tape."""
    ranked, tape, clock, books = {}, [], {}, {}
    for path, row in rows(directory):
        try:
            found = described(row)
        except (ValueError, KeyError, TypeError):
            continue  # Malformed.
        if found:
            best = ranked.setdefault(found[1]["id"], {})
            updated = row.get("updatedAt") or ""
            if found[0] not in best or best[found[0]][0] <= updated:
                best[found[0]] = (updated, found[1])
            continue
        try:
            event = happened(row)
            at = int(row["timestamp"]) if event else None
        except (ValueError, KeyError, TypeError):
            continue  # Malformed.
        if event:
            if "event_type" in row:  # Frames keep their order within a file.
                at = clock[path] = max(at, clock.get(path, 0))
            tape.append((at, len(tape), event))
    markets = {}
    for market_id, sources in ranked.items():
        candidates = [sources[rank][1] for rank in sorted(sources)]
        best = candidates[0]
        for other in candidates[1:]:
            lacks = lambda market: not all([token for _, token in market["outcomes"]] or [""])
            if lacks(best) and not lacks(other):
                best.update(outcomes=other["outcomes"])
                if not best["closed"]:
                    best.update(status=other["status"])
            if not best["known"] and other["known"]:
                best.update(rate=other["rate"], known=True)
        markets[market_id] = best
    listed = {token for market in markets.values() for _, token in market["outcomes"]}
    for _, _, (kind, name, what) in sorted(tape, key=lambda entry: entry[:2]):
        if kind == "ended" and name in markets:
            markets[name]["status"] = "shut"
        elif kind == "book" and name in listed:
            books[name] = {"BUY": what[0], "SELL": what[1], "newest": None}
        elif kind == "levels":
            for token, side, price, size in what:
                book = books.get(token)
                if book and 0 < price < 1 and size:
                    book[side][price], book["newest"] = size, side
                elif book:
                    book[side].pop(price, None)
    return markets, books


# What orders see.

def quoted(books, market, index, side):
    """The levels that an order takes, best first: the token's own, else the other's mirrored."""
    tokens = [token for _, token in market["outcomes"]]
    if tokens[index] in books:
        bids, asks = uncrossed(books[tokens[index]])
        return (sorted(asks.items()) if side == "BUY" else sorted(bids.items(), reverse=True)), "own"
    if len(tokens) == 2 and tokens[1 - index] in books:
        bids, asks = uncrossed(books[tokens[1 - index]])
        if side == "BUY":
            return sorted((1 - p, size) for p, size in bids.items()), "mirrored"
        return sorted(((1 - p, size) for p, size in asks.items()), reverse=True), "mirrored"
    return None, None


def uncrossed(book):
    """Both sides without the levels that cross the side that changed last, or each other."""
    bids, asks, newest = book["BUY"], book["SELL"], book["newest"]
    if not bids or not asks or max(bids) < min(asks):
        return bids, asks
    top, bottom = max(bids), min(asks)
    return ({p: s for p, s in bids.items() if newest == "BUY" or p < bottom},
            {p: s for p, s in asks.items() if newest == "SELL" or p > top})


def tradable(markets, books):
    """A row for each tradable outcome, with its book."""
    for market in markets.values():
        for index, (label, _) in enumerate(market["outcomes"]):
            asks, source = quoted(books, market, index, "BUY")
            if source and market["status"] == "open" and market["rate"] is not None:
                bids, _ = quoted(books, market, index, "SELL")
                yield {"market_id": market["id"], "outcome": label, "book": source, "asks": asks,
                       "bids": bids, "rate": market["rate"][0]}
