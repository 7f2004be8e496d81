"""Runs each example of Polymarket's clients as it is published, one after the other.

`run.py BINARY FOLDER [CLIENT]`: the server, and the folder that `tests/outside/examples.rs`
describes. The server listens where the examples expect it, in a network of its own that has nothing
else: what an example does, it does with this server alone. Prints a row for each example and a
summary for each client. Fails if one that is not in `known.py` does not work, or if one that is
there does.

An example works if it exits with 0, the server has refused none of its requests, and no order of a
list has an error: the clients for TypeScript take a refusal for an answer, and go on.
"""

import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from threading import Timer

import known
import venue

HOST = "http://localhost:8080"
TIMEOUT_SECONDS = 60

# Of `ioctl`, to bring up an interface.
SIOCSIFFLAGS = 0x8914
IFF_UP_AND_RUNNING = 0x41

# What is printed of an order that was refused as one of a list.
ORDER_REFUSED = re.compile(r"""errorMsg["']?: ["'][^"']""")

# The requests with an answer that is a refusal, among the server's metrics.
REFUSED = re.compile(r'^paperbourse_http_requests_total\{.*status="[45]..".*\} (\d+)$', re.M)


class Client:
    """Whose examples are run, and how."""

    def __init__(self, name, pattern, command, environment):
        self.name = name
        self.pattern = pattern
        self.command = command
        self.environment = environment

    def examples(self, checkout):
        """The paths of all examples. Interfaces of contracts are none."""
        paths = sorted((checkout / "examples").glob(self.pattern))
        paths = [path for path in paths if path.name != "__init__.py" and path.parent.name != "abi"]
        # Without its API key, a wallet can do nothing more.
        return sorted(paths, key=lambda path: path.stem.lower().replace("_", "") == "deleteapikey")


PYTHON = ["{folder}/venv/bin/python"]
NODE = ["{checkout}/node_modules/.bin/tsx"]
ELSEWHERE = {"CLOB_API_URL": HOST}
CLIENTS = [
    Client("py-clob-client-v2", "*/*.py", PYTHON, {}),
    Client("clob-client-v2", "*/*.ts", NODE, {}),
    Client("py-clob-client", "*.py", PYTHON, ELSEWHERE),
    Client("clob-client", "*.ts", NODE, ELSEWHERE),
]


def enter_own_network():
    """Starts the script again in a network of its own. Without such networks, the port has to be
    free on this machine."""
    if not os.environ.pop("IN_OWN_NETWORK", None):
        as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        command = ["unshare", *as_root, "--net"]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
            print("WARNING: no network of its own, so the examples share this machine's")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", 8080)) == 0:
                    sys.exit("FAILED: port 8080, where the examples look for a server, is in use")
            return
        os.environ["IN_OWN_NETWORK"] = "yes"
        os.execvp("unshare", [*command, sys.executable, *sys.argv])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP_AND_RUNNING))


def start_server(binary, scratch):
    """Starts the server, and returns it and the address of its metrics once it is ready."""
    (scratch / "venue").mkdir()
    venue.write(scratch / "venue")
    # No one may be limited, and nobody may run out of play money.
    flags = ["--clob", "on", "--default-tier", "enterprise", "--address-limits", "off"]
    flags += ["--starting-balance", "1000000", "--venue", f"recorded:{scratch}/venue"]
    flags += ["--admin-listen", "127.0.0.1:0"]
    command = [binary, "serve", "--data", str(scratch / "data"), *flags]
    own = {name: it for name, it in os.environ.items() if not name.startswith("PAPERBOURSE_")}
    own["PAPERBOURSE_LOG_FORMAT"] = "human"
    server = subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True)
    lines = []
    for line in server.stdout:
        lines.append(line)
        if line.endswith(" ready\n"):
            [address] = re.findall(r"metrics on (http://[^/\s]+)", "".join(lines))
            return server, f"{address}/metrics"
    sys.exit(f"FAILED: the server is not ready\n{''.join(lines)}")


def environment(python):
    """What a user of the examples has set: two wallets, whose accounts hold cash and shares."""
    script = Path(__file__).parent / "wallets.py"
    command = [python, str(script), HOST]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(made.stdout)


def refused_count(metrics):
    with urllib.request.urlopen(metrics) as answer:
        return sum(int(count) for count in REFUSED.findall(answer.read().decode()))


def ended(process):
    """The exit code and the output of a process that has to end by itself."""
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        kill(process)
        output, _ = process.communicate()
        return f"none in {TIMEOUT_SECONDS} s", output
    return process.returncode, output


def kill(process):
    """Kills a process and those that it has started: some that run examples have others do it."""
    os.killpg(process.pid, signal.SIGKILL)


def streamed(process, words, beside):
    """Ends a process that streams for ever once it has printed some words. As soon as it has
    printed anything, `beside` is run."""
    timer = Timer(TIMEOUT_SECONDS, kill, [process])
    timer.start()
    output = ""
    for line in process.stdout:
        if not output:
            beside()
        output += line
        if words in line:
            kill(process)
    timer.cancel()
    process.wait()
    return ("streams" if words in output else process.returncode), output


def run_client(client, binary, folder):
    """Runs all examples of a client. Returns the number of those that did what was not expected."""
    checkout = folder / client.name
    examples = client.examples(checkout)
    if not examples:
        sys.exit(f"FAILED: no examples in {checkout}/examples")
    names = [str(path.relative_to(checkout / "examples")) for path in examples]
    listed = {name for owner, name in [*known.FAILURES, *known.STREAMS] if owner == client.name}
    if listed - set(names):
        sys.exit(f"FAILED: known.py names what is not there: {sorted(listed - set(names))}")
    counts, reasons, unexpected = Counter(), Counter(), 0
    with tempfile.TemporaryDirectory() as scratch:
        server, metrics = start_server(binary, Path(scratch))
        python = f"{folder}/venv/bin/python"
        own = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        own |= environment(python) | {"WS_URL": HOST.replace("http", "ws")} | client.environment
        own["PYTHONPATH"] = f"{scratch}/path"
        link_examples(Path(own["PYTHONPATH"]), checkout)
        command = [it.format(folder=folder, checkout=checkout) for it in client.command]

        def start(path):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            pipes |= {"stdin": subprocess.DEVNULL, "start_new_session": True}
            words = [*command, str(path)]
            return subprocess.Popen(words, cwd=checkout, env=own, **pipes)

        for path, name in zip(examples, names, strict=True):
            stream = known.STREAMS.get((client.name, name))
            before, began = refused_count(metrics), time.monotonic()
            if stream:
                words, other = stream
                other = other and checkout / "examples" / other
                code, output = streamed(start(path), words, lambda: other and ended(start(other)))
            else:
                code, output = ended(start(path))
            seconds = time.monotonic() - began
            refused = refused_count(metrics) - before
            works = code in (0, "streams") and refused == 0 and not ORDER_REFUSED.search(output)
            words, reason = known.FAILURES.get((client.name, name), (None, None))
            is_expected = works if reason is None else not works and words in output
            if reason:
                reasons[reason] += 1
            if not is_expected:
                unexpected += 1
                print(f"{output}\n({refused} refused)")
            shown = reason or ("streams until it is stopped" if code == "streams" else "")
            mark = "" if is_expected else "UNEXPECTED: "
            counts["works" if works else "known" if is_expected else "fails"] += 1
            print(f"{client.name:18} {name:44} {code!s:>8} {seconds:6.1f} s  {mark}{shown}")
            sys.stdout.flush()
        server.kill()
        server.communicate()
    share = 100 * counts["works"] / (len(examples) - counts["known"])
    print(f"{client.name}: {len(examples)} examples, {counts['works']} work, ", end="")
    print(f"{counts['known']} cannot, of the rest {share:.1f} % work unchanged")
    for reason, count in reasons.most_common():
        print(f"  {count}: {reason}")
    return unexpected


def link_examples(path, checkout):
    """Makes `examples` importable, but not the package of the checkout: it is the published one
    that is tried."""
    path.mkdir()
    (path / "examples").symlink_to(checkout / "examples")


def main():
    enter_own_network()
    binary, folder, *chosen = sys.argv[1:]
    folder = Path(folder).resolve()
    clients = [client for client in CLIENTS if not chosen or client.name in chosen]
    unexpected = sum(run_client(client, binary, folder) for client in clients)
    if unexpected:
        sys.exit(f"FAILED: {unexpected} examples did what known.py does not say")


if __name__ == "__main__":
    main()
