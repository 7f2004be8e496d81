"""What the tests of packages share: a server's log, a trader, and checks that say what failed."""

import atexit
import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

# The market that every simulated venue has.
MARKET = "0xfbedbcd006f8debf0a24458901c7d2b6129d3a14e398cfb275c00cef14bcf8d9"
# Generous, because the machine may be busy; nothing waits this long unless it fails.
PATIENCE_SECONDS = 60
SIOCSIFFLAGS, IFF_UP_AND_RUNNING = 0x8914, 0x41


def check(holds, what, detail=""):
    if not holds:
        sys.exit(f"FAILED: {what}" + (f"\n{detail}" if detail else ""))
    print(f"ok: {what}", flush=True)


def run(command, **options):
    """The output of a command that must succeed."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        shown = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        sys.exit(f"FAILED with {done.returncode}: {' '.join(command)}\n{shown}")
    return done.stdout


def enter_own_network():
    """Starts the script again in a network of its own, which has only this machine. Without root,
    it becomes root in a user namespace."""
    if not os.environ.pop("IN_OWN_NETWORK", None):
        as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = ["unshare", *as_root, "--net", "--mount"]
        if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
            sys.exit("FAILED: this machine has no namespaces for users, mounts and networks")
        os.environ["IN_OWN_NETWORK"] = "yes"
        os.execvp("unshare", [*command, sys.executable, *sys.argv])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        loopback = struct.pack("16sh", b"lo", IFF_UP_AND_RUNNING)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, loopback)


def wait_until(condition, what):
    """Polls until the condition returns something, and returns that."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    sys.exit(f"FAILED: {what}: not within {PATIENCE_SECONDS} s")


class Server:
    """A server as a child process."""

    def __init__(self, command):
        command = [str(word) for word in command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        self.lines, self.address = [], None
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        wait_until(self._is_ready, "the server is ready")

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def _is_ready(self):
        log = "".join(self.lines)
        if self.process.poll() is not None:
            sys.exit(f"FAILED: the server ended with {self.process.returncode}\n{log}")
        listening = re.search(r"listening on (http://[^\s\"]+)", log)
        self.address = listening and listening[1]
        return '"message":"ready"' in log

    def stop(self):
        self.process.terminate()
        code = self.process.wait(PATIENCE_SECONDS)
        self.reader.join(PATIENCE_SECONDS)
        check(code == 0, "SIGTERM ends the server with 0", "".join(self.lines[-20:]))


class Trader:
    """An account on a server, by a key that outlives the server."""

    def __init__(self, address, token):
        bearer = {"Authorization": f"Bearer {token}"}
        answer = ask(f"{address}/v1/keys/bootstrap", {}, bearer)
        self.key = {"X-API-Key": answer["raw_key"]}

    def buy(self, address):
        order = {"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 10}
        answer = ask(f"{address}/trade", order, self.key)
        check(answer["status"] == "FILLED", f"a trade on {address} fills")

    def trades(self, address):
        return ask(f"{address}/v1/account/portfolio", None, self.key)["total_trades"]


def ask(url, body=None, headers=None):
    """The JSON that a server answers to a GET, or to a POST of this body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers or {})
    try:
        # Never through a proxy of the environment: the server is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"FAILED: {url} answered {error.code}\n{error.read().decode()}")
