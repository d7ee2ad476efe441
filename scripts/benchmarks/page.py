"""Times the answers of the page's server for one client, and for several at once.

    python -m scripts.benchmarks.page --run_dir=runs/books --text=data/books/valid.txt --backend=torch

The server is a process of its own and begins with the usual warm-up. Each request is for other words of the text. The
seconds include HTTP and JSON, up to the last byte of a score and up to the first word of a continuation; the browser
needs some milliseconds more to draw. `clients` send such requests together, and every answer must be without an error.
"""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from absl import flags

from scripts.benchmarks import common
from trainers.support import command_line

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_path("run_dir", None, "Folder of a trained run.", required=True)
    command_line.define_path("text", None, "UTF-8 text file whose words are asked for.", required=True)
    flags.DEFINE_integer("words", 50, "Words of a request.", lower_bound=1)
    flags.DEFINE_integer("clients", 8, "Clients at once.", lower_bound=1)
    common.define_flags(20, "Timed requests of each kind.")


@contextlib.contextmanager
def serving(run_dir):
    """Starts the server, and yields its port and the seconds until it was ready."""
    command = [sys.executable, "-m", "trainers.serve", f"--run_dir={run_dir}", "--port=0"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=common.ROOT) as process:
        try:
            found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            if not found:
                raise ValueError(f"trainers.serve cannot serve --run_dir={run_dir}: its message stands above.")
            yield int(found[1]), time.perf_counter() - start
        finally:
            process.terminate()


def ask(port, route, body):
    """Returns the seconds until the answer to a score, or until the first word of a continuation."""
    start = time.perf_counter()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=600)) as connection:
        connection.request("POST", f"/api/{route}", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        first = answer.read() if route == "score" else answer.readline()
        seconds = time.perf_counter() - start
        rest = answer.read()
    if answer.status != 200 or b'{"error"' in rest:
        raise ValueError(f"The server answered {answer.status}: {(first + rest)[:200]!r}.")
    return seconds


def passages(path, words):
    """Yields passages of some words of a text, again and again from its beginning."""
    split = Path(path).read_text(encoding="utf-8")[: 10**6].split()
    if len(split) < words:
        raise ValueError(f"--text must have at least {words} words. Received: {path} with {len(split)}.")
    while True:
        for start in range(0, len(split) - words + 1, words):
            yield " ".join(split[start : start + words])


def main():
    run_dir = os.path.abspath(FLAGS.run_dir)
    name, texts = os.path.basename(run_dir), passages(FLAGS.text, FLAGS.words)
    requests = {
        "score": lambda: {"run": name, "text": next(texts)},
        "generate": lambda: {"run": name, "prompt": next(texts), "length": 1, "temperature": 0.8},
    }
    with serving(run_dir) as (port, ready), ThreadPoolExecutor(FLAGS.clients) as clients:
        alone = {route: [ask(port, route, body()) for _ in range(FLAGS.repeats)] for route, body in requests.items()}
        bodies = [requests["score"]() for _ in range(FLAGS.repeats * FLAGS.clients)]
        start = time.perf_counter()
        together = list(clients.map(lambda body: ask(port, "score", body), bodies))
        rate = len(bodies) / (time.perf_counter() - start)
    kinds = {**alone, f"{FLAGS.clients} clients": together}
    figures = {kind: common.spread(seconds) for kind, seconds in kinds.items()}
    columns = ("median", "low", "high")
    rows = [[kind, *(f"{1000 * one[column]:.0f} ms" for column in columns)] for kind, one in figures.items()]
    common.print_table([f"{name}, {FLAGS.words} words", *columns], rows)
    print(f"ready after {ready:.1f} s; {rate:.1f} answers a second for {FLAGS.clients} clients")
    settings = {"run": name}
    common.save(
        ("backend", "words", "clients", "repeats"),
        settings,
        seconds=figures,
        ready_seconds=ready,
        answers_per_second=rate,
    )


if __name__ == "__main__":
    common.run(main, define_flags)
