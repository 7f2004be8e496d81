"""`wallets.py HOST`: gives two wallets API keys and some shares, as their users would have them,
and prints the environment that Polymarket's examples expect."""

import json
import sys
from pathlib import Path

import venue
from py_clob_client_v2 import ClobClient, MarketOrderArgs, OrderType, Side

# Two signers, and the names under which examples look for them.
KNOWN = json.loads((Path(__file__).parent.parent / "clob/wallets.json").read_text())
FIRST, SECOND = KNOWN["key"], "0x" + "52" * 32
DEPOSIT_WALLET = KNOWN["wallets"][3]

# Buys about 9,600 shares.
DOLLARS = 5_000


def prepared(host, key):
    """The parts of the wallet's API key."""
    client = ClobClient(host, chain_id=80002, key=key)
    client.set_api_creds(client.create_or_derive_api_key())
    for token in (venue.YES, venue.NO):
        order = MarketOrderArgs(token_id=token, amount=DOLLARS, side=Side.BUY)
        answer = client.create_and_post_market_order(order, order_type=OrderType.FOK)
        assert answer["status"] == "matched", answer
    creds = client.creds
    parts = {"API_KEY": creds.api_key, "SECRET": creds.api_secret}
    return {**parts, "PASS_PHRASE": creds.api_passphrase}


def named(prefix, parts, suffix=""):
    return {f"{prefix}_{name}{suffix}": value for name, value in parts.items()}


def main():
    host = sys.argv[1]
    first, second = prepared(host, FIRST), prepared(host, SECOND)
    environment = {
        "PK": FIRST,
        **named("CLOB", first),
        "PK2": SECOND,
        **named("CLOB", second, "_2"),
        "REQUESTER_PK": FIRST,
        **named("REQUESTER", first),
        "QUOTER_PK": SECOND,
        **named("QUOTER", second),
        # What is not known here is taken from any user.
        **named("BUILDER", first),
        "BUILDER_CODE": "0x" + "11" * 32,
        "DEPOSIT_WALLET": DEPOSIT_WALLET,
        "GEO_BLOCK_TOKEN": "any",
        "RPC_TOKEN": "any",
    }
    print(json.dumps(environment))


if __name__ == "__main__":
    main()
