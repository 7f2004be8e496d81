"""What a client checks in the frames of both sockets, whatever library brings them."""

import json
import sys


class Prices:
    """The prices of each market follow each other."""

    def __init__(self, markets):
        self.markets = markets
        self.newest = {}
        self.count = 0

    def subscription(self):
        return json.dumps({"action": "subscribe", "markets": self.markets})

    def take(self, text):
        return self.take_frame(json.loads(text))

    def take_frame(self, frame):
        if frame["type"] == "price":
            before = self.newest.get(frame["condition_id"], 0)
            assert frame["seq"] > before, (before, frame)
            self.newest[frame["condition_id"]] = frame["seq"]
            self.count += 1
        return frame["type"]

    def is_complete(self):
        return len(self.newest) == len(self.markets)


class Fills:
    """The fills of the account are numbered without a hole."""

    def __init__(self):
        self.seq = None
        self.orders = []

    def take(self, text):
        return self.take_frame(json.loads(text))

    def take_frame(self, frame):
        if frame["type"] == "connected":
            self.seq = frame["seq"]
        elif frame["type"] == "fill":
            self.seq += 1
            assert frame["seq"] == self.seq, (self.seq, frame)
            self.orders.append(frame["order_id"])
        return frame["type"]


def ready():
    print("ready", flush=True)


def last_order():
    """The last order that was placed; blocks until the test knows it."""
    return int(sys.stdin.readline())


def report(prices, fills, closes):
    print(json.dumps({"prices": prices.count, "orders": fills.orders, "closes": closes}), flush=True)
