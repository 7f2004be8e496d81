"""A recorder: appends every price of the most traded markets to a file, one JSON object a line.

    pip install httpx
    python3 recorder.py prices.jsonl

It needs no key. After a lost connection it goes on where it was, with nothing twice.
"""

import json
import os
import sys
import time

import httpx

SERVER = os.environ.get("BOURSE", "http://127.0.0.1:8080")
MARKETS = 50  # The most that a stream takes.
SILENCE = 15.0  # Seconds: the stream says something every five.
TOLD_EVERY = 100  # Prices.
KEPT = ("updated_at", "condition_id", "seq", "best_bid", "best_ask", "last_trade", "stale")


class Recorder:
    def __init__(self, http, file):
        self.http = http
        self.file = file
        self.last_id = None  # Of the newest event, from which the stream goes on.
        self.wait = 1.0
        self.newest = {}  # The number and the time of each market's last price.
        self.count = 0

    def record(self, price):
        # After a lost connection, the last price of a market may come again.
        made = (price["seq"], price["updated_at"])
        if made == self.newest.get(price["condition_id"]):
            return
        self.newest[price["condition_id"]] = made
        self.file.write(json.dumps({name: price.get(name) for name in KEPT}) + "\n")
        self.file.flush()
        self.count += 1
        if self.count % TOLD_EVERY == 0:
            print(self.count, "prices")

    def take(self, event, data):
        if event == "snapshot":
            for price in data["prices"]:
                self.record(price)
        elif event == "market_price":
            self.record(data)
        elif event == "market_status":
            print(data["condition_id"], "is", data["status"])

    def read(self, markets):
        """Reads the stream until it breaks off."""
        headers = {"Last-Event-ID": self.last_id} if self.last_id else {}
        request = {
            "params": {"condition_ids": ",".join(markets)}, "headers": headers,
            "timeout": httpx.Timeout(10, read=SILENCE),
        }
        with self.http.stream("GET", "/prices/stream", **request) as answer:
            answer.raise_for_status()
            print("connected")
            event = ""
            for line in answer.iter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    event = value
                elif field == "data":
                    self.take(event, json.loads(value))
                elif field == "id":
                    self.last_id = value
                elif field == "retry":
                    self.wait = int(value) / 1000

    def run(self, markets):
        while True:
            try:
                self.read(markets)
            except httpx.HTTPError as error:
                print(f"disconnected ({error!r}): again in {self.wait} s")
            time.sleep(self.wait)


def main(path):
    with httpx.Client(base_url=SERVER) as http, open(path, "a") as file:
        query = {"active_only": True, "limit": MARKETS}
        listed = http.get("/v1/markets", params=query).raise_for_status().json()
        recorder = Recorder(http, file)
        try:
            recorder.run([market["condition_id"] for market in listed])
        except KeyboardInterrupt:
            print("recorded", recorder.count, "prices")


sys.stdout.reconfigure(line_buffering=True)
main(sys.argv[1] if len(sys.argv) > 1 else "prices.jsonl")
