"""Credentials and known markets for Schemathesis, and the requests for which a check is wrong."""

import atexit
import collections
import itertools
import json
import os
import pathlib
import subprocess
import urllib.request

import schemathesis

URL = os.environ["PAPERBOURSE_URL"]
KEYS = "/v1/keys"

numbers = itertools.count()


def token(role):
    """An access token of the embedded issuer, for an account that no other run has."""
    subject = f"{role}-{os.getpid()}"
    command = [os.environ["PAPERBOURSE_BINARY"], "token", "--tier", "enterprise"]
    command += ["--subject", subject, "--data", os.environ["PAPERBOURSE_FOLDER"]]
    # Variables with this prefix are options of the server.
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("PAPERBOURSE_")}
    minted = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return minted.stdout.strip()


def call(method, path, credential=None, body=None):
    request = urllib.request.Request(URL + path, method=method)
    if credential is not None:
        request.add_header("Authorization", f"Bearer {credential}")
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, data) as answer:
        return json.load(answer)


every_permission = {"tier": "enterprise", "permissions": ["read", "trade", "admin"]}
key = call("POST", "/v1/keys/bootstrap", token("trader"), every_permission)["raw_key"]
# An account of its own: whatever happens to its keys, the trader's key works.
keeper = token("keeper")
markets = [market["condition_id"] for market in call("GET", "/v1/markets?limit=200")]


# Which key made an order or a comment, by the name of its parameter and its id.
owners = {}


def owner_of(case):
    for name in ("order_id", "comment_id"):
        made = (name, (case.path_parameters or {}).get(name))
        if isinstance(made[1], int) and made in owners:
            return owners[made]
    return None


class Credential:
    def set(self, case, data, context):
        name, value = data
        case.headers = case.headers or {}
        # A link may have brought the key of a new account.
        if "X-API-Key" not in case.headers:
            case.headers[name] = owner_of(case) or value


@schemathesis.auth(refresh_interval=None).apply_to(path="/v1/keys/bootstrap")
class Newcomer(Credential):
    """Each opens an account."""

    def get(self, case, context):
        return "Authorization", f"Bearer {token(f'newcomer-{next(numbers)}')}"


@schemathesis.auth().apply_to(path_regex=f"^{KEYS}(?!/bootstrap)")
class Keeper(Credential):
    def get(self, case, context):
        return "Authorization", f"Bearer {keeper}"


@schemathesis.auth().skip_for(path_regex=f"^{KEYS}")
class Trader(Credential):
    def get(self, case, context):
        return "X-API-Key", key


answers = collections.Counter()

MADE_BY = {
    "POST /trade": ("order_id", "order_id"),
    "POST /v1/orders": ("order_id", "order_id"),
    "POST /trades/{order_id}/comments": ("id", "comment_id"),
}


@schemathesis.hook
def after_call(context, case, response):
    """Counts the answers of each operation, and the trades of newcomers."""
    answers[f"{case.operation.label} {response.status_code}"] += 1
    sent = response.request.headers.get("X-API-Key", key)
    if sent != key and case.operation.label == "POST /trade":
        answers[f"newcomer's trade {response.status_code}"] += 1
    made = MADE_BY.get(case.operation.label)
    if made and response.status_code == 200:
        field, parameter = made
        owners[parameter, response.json()[field]] = sent


@atexit.register
def tell():
    pathlib.Path(os.environ["PAPERBOURSE_ANSWERS"]).write_text(json.dumps(answers))


@schemathesis.hook
def map_case(context, case):
    """Two in three markets exist, and half of the orders for one are small purchases."""
    if case.meta is None or case.meta.generation.mode.is_negative:
        return case
    if "condition_id" in (case.path_parameters or {}):
        chosen = sum(map(ord, str(case.path_parameters["condition_id"])))
        if chosen % 3 != 0:
            case.path_parameters["condition_id"] = markets[chosen % len(markets)]
    if isinstance(case.body, dict):
        if case.operation.label == "POST /v1/orders/batch":
            case.body = {**case.body, "orders": list(map(likely, case.body["orders"]))}
        elif "market_id" in case.body:
            # Only a link brings a key, of an account that has nothing to sell.
            is_newcomer = "X-API-Key" in (case.headers or {})
            case.body = purchase(case.body) if is_newcomer else likely(case.body)
    return case


def chosen_by(order):
    return sum(map(ord, order["market_id"] + order["outcome"]))


def likely(order):
    chosen = chosen_by(order)
    if chosen % 3 == 0:
        return order
    if chosen % 2 == 0:
        return purchase(order)
    return {**order, "market_id": markets[chosen % len(markets)], "outcome": "yes"}


def purchase(order):
    """A small one."""
    chosen = chosen_by(order)
    market = {"market_id": markets[chosen % len(markets)], "outcome": "yes"}
    return {**market, "side": "BUY", "quantity": 5 + chosen % 5}


# What no schema can say: an operation, the field, and the type and the text of the mistake.
BEYOND_SCHEMAS = [
    # A cursor is one that a page ended with.
    ("", "cursor", "cursor_parsing", ""),
    ("", "cursor", "value_error", ""),
    ("", "next_cursor", "cursor_parsing", ""),
    ("", "next_cursor", "value_error", ""),
    # The product of two parameters is limited.
    ("GET /v1/events", "markets_per_event", "less_than_equal", "times the limit"),
    # The query or the body names them.
    ("DELETE /v1/cancel-market-orders", "market", "missing", "in the query or the body"),
]


def is_beyond_schemas(label, mistake):
    field = mistake["loc"][-1]
    return any(
        operation in ("", label)
        and field == name
        and mistake["type"] == kind
        and text in mistake["msg"]
        for operation, name, kind, text in BEYOND_SCHEMAS
    )


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether this is a failure."""
    kind = type(failure).__name__
    label = case.operation.label
    if kind == "RejectedPositiveData" and response.status_code == 422:
        mistakes = response.json()["detail"]
        return not all(is_beyond_schemas(label, mistake) for mistake in mistakes)
    # A revoked key stays in the list, and a cancelled order can be read.
    if kind == "UseAfterFree":
        return not label.split(" ")[1].startswith(("/v1/keys/", "/v1/orders/"))
    # The query `confirm=true` suffices, whatever the header says, and the other way round.
    if kind == "AcceptedNegativeData":
        return label != "POST /v1/cancel-all"
    # What other servers of this interface offer, and this one deliberately does not.
    if kind == "UnsupportedMethodResponse" and response.status_code == 404:
        return response.json()["error"] != "NOT_OFFERED"
    return True
