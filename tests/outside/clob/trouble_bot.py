"""A bot that survives trouble on demand, or makes one mistake: `HOST TASK [MISTAKE]`.

A task is what the bot does; the server's plan has it meet trouble meanwhile. A mistake is what it
does wrong: `sign-again`, `no-pause`, `sell-at-once`, `trust-silence`, `ignore-failed`.
"""

import asyncio
import json
import sys
import time
import urllib.request

import websockets
from py_clob_client_v2 import ClobClient, MarketOrderArgs
from py_clob_client_v2.exceptions import PolyApiException

import trading

# Refusals that pass.
PASSING = (403, 425, 429, 500, 503)
PAUSE_SECONDS = 0.6
TRIES_MAX = 30

# After how long without a frame the bot no longer believes a socket.
QUIET_SECONDS = 11

# How long a bot waits that takes a trade for settled then, whatever became of it.
SETTLED_SECONDS = 3

SECONDS_MAX = 60


class Bot:
    def __init__(self, host, mistake):
        self.host = host
        self.mistake = mistake
        wallet = {"signature_type": 2, "funder": trading.WALLETS[2]}
        self.client = ClobClient(host, 137, trading.KEY, **wallet)
        self.client.set_api_creds(self.client.create_or_derive_api_key())
        plain, _ = trading.outcomes(host)
        self.token, self.condition, self.ask = plain.token, plain.condition, plain.ask

    def signed(self, side, amount):
        price = self.ask if side == "BUY" else 0.01
        order = MarketOrderArgs(self.token, amount, side, price=float(price), order_type="FOK")
        return self.client.create_market_order(order)

    def place(self, side, amount):
        """Places an order until it is answered, and returns the answer."""
        signed = self.signed(side, amount)
        pause_seconds = PAUSE_SECONDS
        for _ in range(TRIES_MAX):
            try:
                # Without the client's own requests for the trades.
                return self.client.post_order(signed, "FOK", defer_exec=True)
            except PolyApiException as error:
                if error.status_code is None:
                    # Neither taken nor refused, as far as the bot knows.
                    if self.mistake == "sign-again":
                        signed = self.signed(side, amount)
                    continue
                if error.status_code not in PASSING:
                    raise
            if self.mistake != "no-pause":
                time.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, 5)
        raise AssertionError("no answer")

    def book(self):
        with urllib.request.urlopen(f"{self.host}/book?token_id={self.token}") as answer:
            return json.load(answer)

    async def settled(self):
        """Waits until the newest trade is settled or has failed, and returns its status."""
        while True:
            status = self.client.get_trades()[0]["status"]
            if status in ("CONFIRMED", "FAILED"):
                return status
            await asyncio.sleep(PAUSE_SECONDS)

    async def buy_and_sell(self):
        """Buys, and sells the shares once they are there."""
        self.place("BUY", 10)
        if self.mistake == "ignore-failed":
            await asyncio.sleep(SETTLED_SECONDS)
        elif self.mistake != "sell-at-once" and await self.settled() == "FAILED":
            return
        try:
            self.place("SELL", 5)
        except PolyApiException as error:
            assert self.mistake, error

    async def trade_on_the_socket(self):
        """Buys at the best price of a socket after it has said nothing for a while."""
        url = f"ws{self.host.removeprefix('http')}/ws/market"
        async with websockets.connect(url, max_size=None) as socket:
            await socket.send(json.dumps({"type": "market", "assets_ids": [self.token]}))
            try:
                while True:
                    await asyncio.wait_for(socket.recv(), QUIET_SECONDS)
            except TimeoutError:
                if self.mistake != "trust-silence":
                    self.book()
                try:
                    self.place("BUY", 10)
                except PolyApiException as error:
                    # The price has changed.
                    assert error.status_code == 400, error

    async def buy(self):
        """Buys a few times, and looks at what came of it."""
        for dollars in range(10, 22):
            self.place("BUY", dollars)
        assert self.client.get_trades(), "nothing was bought"


async def main(host, task, mistake=None):
    tasks = {
        "buy": Bot.buy,
        "buy-and-sell": Bot.buy_and_sell,
        "trade-on-the-socket": Bot.trade_on_the_socket,
    }
    await asyncio.wait_for(tasks[task](Bot(host, mistake)), SECONDS_MAX)


asyncio.run(main(*sys.argv[1:]))
