"""Times answers to requests: of SavedModels, of the page's server, and of a program that starts anew.

    python -m scripts.benchmarks.serving --backend=tensorflow --results=scripts/results/benchmarks/serving.json
    python -m scripts.benchmarks.serving --case=page --backend=torch --run_dir=runs/books --text=data/books/valid.txt
    python -m scripts.benchmarks.serving --case=cold_start --backend=torch

- `saved_model`: two models with the same decoder are exported: one with tied adaptive input and softmax, and one with a
  full softmax tied to a single table. Their signatures are timed in turns in one process, with a client that sends one
  request at a time. The next words are first compared with all log-probabilities. A plain export of the first model is
  timed, too; it returns all log-probabilities of all positions, and the client takes the best words of the last one.
  Requests contain text and answers contain words, so that the times include everything except the network. The weights
  are random, but the tails have about the probability of their words in English text. Each request has a different
  text.
- `page`: the server of the page is a process of its own, which begins with the usual warm-up and then has --pause
  seconds to compile the rest. Each request is for other words of the text. The seconds include HTTP and JSON, up to the
  last byte of a score and up to the first word of a continuation; the browser needs some milliseconds more to draw.
  `clients` send such requests together, and every answer must be without an error.
- `cold_start`: `trainers.score` of a line of six words, against the import of Keras and its backend. Processes are
  timed in turns, from their start to their end; others time how long the import of the package takes after that of
  Keras. The run has the model of the README with random weights: tied words, 49,456 words, 4 blocks of 256/1,024 with
  8 heads. JAX keeps no compiled programs for later processes.
"""

import contextlib
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from absl import flags, logging

from scripts.benchmarks import common
from trainers.support import command_line

FLAGS = flags.FLAGS
LINE = "word9 word99 word999 word9999 word40000 unknown\n"


def define_flags():
    common.define_flags(100, **common.WIKITEXT103)
    common.define_case(CASES)
    flags.DEFINE_list("tail_shares", ["0.115", "0.145"], "Probability of each tail.")
    flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Data type of weights and matrix products.")
    flags.DEFINE_list("batch_sizes", ["1", "32"], "Numbers of lines in a request.")
    flags.DEFINE_integer("words", 20, "Number of words in a line or request.", lower_bound=1)
    flags.DEFINE_integer("k", 10, "Number of next words to request.", lower_bound=1)
    command_line.define_path("run_dir", None, "Folder of a trained run, for the page.")
    command_line.define_path("text", None, "UTF-8 text file whose words are asked for, for the page.")
    flags.DEFINE_integer("clients", 8, "Clients of the page at once.", lower_bound=1)
    flags.DEFINE_float("pause", 30, "Seconds that the page has to compile the rest before the first request.", 0)


def saved_model():
    logging.set_verbosity(logging.ERROR)  # TensorFlow reports where it writes
    from keras_adaptive.data import Vocabulary

    vocabulary = Vocabulary.from_counts({f"w{i}": FLAGS.vocabulary_size - i for i in range(FLAGS.vocabulary_size - 4)})
    with tempfile.TemporaryDirectory() as folder:
        loaded = signatures(folder, vocabulary)
        tails = check(loaded, vocabulary)
        print(f"{' / '.join(f'{100 * share:.1f}' for share in tails)} % of the probability in the tails")
        requests = itertools.product(("next_words", "score"), map(int, FLAGS.batch_sizes))
        cases = [measure(loaded, vocabulary, signature, batch_size) for signature, batch_size in requests]
    names = ("backend", *common.MODEL_FLAGS, "dtype", "words", "k")
    common.save(names, probability_of_tails=tails, cases=cases)


def adaptive_model():
    model = common.build()
    common.give_tails_their_share(model, np.random.default_rng(0))
    return model


def signatures(folder, vocabulary):
    """Returns `{candidate: signatures}` of the two models, exported and loaded."""
    import tensorflow as tf

    from keras_adaptive.export import export_saved_model

    loaded = {}
    for name, make in (("adaptive", adaptive_model), ("full softmax", lambda: common.build(cutoffs=()))):
        path = f"{folder}/{name.split()[0]}/1"
        export_saved_model(make(), vocabulary, path, dtype=FLAGS.dtype)
        loaded[name] = tf.saved_model.load(path)
    return loaded


def texts(vocabulary, batch_size):
    """Yields endless batches of lines."""
    import tensorflow as tf

    random, words = np.random.default_rng(batch_size), np.array(vocabulary.words[4:])
    while True:
        ids = common.log_uniform(random, (batch_size, FLAGS.words), len(words))
        yield tf.constant([" ".join(line) for line in words[ids]])


def check(loaded, vocabulary):
    """Raises unless the next words are the most probable of all; returns the probability of each tail."""
    text = next(texts(vocabulary, 4))
    ids = [[2, *vocabulary.encode(line.decode().split())] for line in text.numpy()]
    tails = None
    for name, one in loaded.items():
        probabilities = np.exp(one.signatures["log_probs"](token_ids=np.array(ids, "int32"))["log_probs"][:, -1])
        best = one.signatures["next_words"](text=text, k=np.int32(FLAGS.k))["probabilities"]
        if not np.allclose(best, -np.sort(-probabilities, axis=-1)[:, : FLAGS.k], rtol=1e-2, atol=1e-6):
            raise ArithmeticError(f"The next words of {name} are not the most probable; nothing was timed.")
        if name == "adaptive":
            edges = [*common.cutoffs(), FLAGS.vocabulary_size]
            tails = [float(probabilities[:, low:high].sum(-1).mean()) for low, high in zip(edges, edges[1:])]
    return tails


def measure(loaded, vocabulary, signature, batch_size):
    """Times a signature of all candidates in turns, prints and returns their latencies."""
    import tensorflow as tf

    batches = texts(vocabulary, batch_size)
    inputs = {"k": tf.constant(FLAGS.k)} if signature == "next_words" else {}

    def call(function):
        return lambda: [answer.numpy() for answer in function(text=next(batches), **inputs).values()]

    def all_log_probs():
        lines = next(batches).numpy().tolist()
        ids = tf.constant([[2, *vocabulary.encode(line.decode().split())] for line in lines], tf.int32)
        log_probs = loaded["adaptive"].signatures["log_probs"](token_ids=ids)["log_probs"][:, -1]
        return [answer.numpy() for answer in tf.math.top_k(log_probs, FLAGS.k)]

    turns = {name: call(one.signatures[signature]) for name, one in loaded.items()}
    if signature == "next_words":
        turns["all log-probabilities"] = all_log_probs
    case = {"signature": signature, "batch_size": batch_size, "candidates": {}}
    for name, times in common.time_interleaved(turns, FLAGS.repeats).items():
        case["candidates"][name] = {
            **common.spread(times),
            "p99": float(np.quantile(times, 0.99)),
            "requests_per_second": len(times) / sum(times),
        }
    print(f"\n{signature}, {batch_size} lines of {FLAGS.words} words", flush=True)
    p99 = {name: f"{1e3 * figures['p99']:.1f}" for name, figures in case["candidates"].items()}
    rates = {name: f"{figures['requests_per_second']:.1f}" for name, figures in case["candidates"].items()}
    common.print_times(case["candidates"], 1, **{"p99 ms": p99, "requests/s": rates})
    return case


def page():
    run_dir = os.path.abspath(FLAGS.run_dir)
    name, texts = os.path.basename(run_dir), passages(FLAGS.text, FLAGS.words)
    requests = {
        "score": lambda: {"run": name, "text": next(texts)},
        "generate": lambda: {"run": name, "prompt": next(texts), "length": 1, "temperature": 0.8},
    }
    with server(run_dir) as (port, ready), ThreadPoolExecutor(FLAGS.clients) as clients:
        time.sleep(FLAGS.pause)
        alone = {route: [ask(port, route, body()) for _ in range(FLAGS.repeats)] for route, body in requests.items()}
        bodies = [requests["score"]() for _ in range(FLAGS.repeats * FLAGS.clients)]
        start = time.perf_counter()
        together = list(clients.map(lambda body: ask(port, "score", body), bodies))
        rate = len(bodies) / (time.perf_counter() - start)
    kinds = {**alone, f"{FLAGS.clients} clients": together}
    figures = {kind: common.spread(seconds) for kind, seconds in kinds.items()}
    common.print_times(figures)
    print(f"ready after {ready:.1f} s; {rate:.1f} answers a second for {FLAGS.clients} clients")
    figures = {"seconds": figures, "ready_seconds": ready, "answers_per_second": rate}
    common.save(("backend", "words", "clients", "pause", "repeats"), {"run": name}, **figures)


@contextlib.contextmanager
def server(run_dir):
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
        raise ValueError(f"--text must have at least {words} words. Received: --text={path}, which has {len(split)}.")
    while True:
        for start in range(0, len(split) - words + 1, words):
            yield " ".join(split[start : start + words])


IMPORT = "import time, keras; start = time.perf_counter(); import keras_adaptive; print(time.perf_counter() - start)"


def cold_start():
    with tempfile.TemporaryDirectory() as folder:
        write_run(folder)
        score = "-m", "trainers.score", f"--run_dir={folder}", f"--input={folder}/line.txt"
        turns = {"import keras": lambda: python("-c", "import keras"), "score": lambda: python(*score)}
        candidates = common.times_of(turns, warmup=1)
    beyond = {"import keras_adaptive": lambda: [float(python("-c", IMPORT))]}
    candidates |= common.times_of(beyond, warmup=1, timed=True)
    common.print_times(candidates)
    common.save(("backend", *common.MODEL_FLAGS), candidates=candidates)


def write_run(folder):
    """Writes the folder of a run that contains a model with random weights, and a text of one line."""
    from keras_adaptive.data import Vocabulary
    from trainers.experiments.run_folder import RunFolder

    vocabulary = Vocabulary.from_counts({f"word{i}": 1 for i in range(FLAGS.vocabulary_size - 4)}, multiple_of=1)
    facts = {"size": len(vocabulary), "sha256": vocabulary.sha256}
    metadata = {"source": "random", "tokenizer": "whitespace", "unit": "word", "vocabulary": facts}
    RunFolder(folder).write("--length=512\n", vocabulary, metadata)
    common.build().save(Path(folder, "best.keras"))
    Path(folder, "line.txt").write_text(LINE)


def python(*arguments):
    """Runs Python with arguments in a new process, which must succeed, and returns what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return subprocess.run(
        [sys.executable, *arguments], check=True, env=environment, cwd=common.ROOT, capture_output=True, text=True
    ).stdout


CASES = {
    "saved_model": common.Case(saved_model, backends=("tensorflow",)),
    "page": common.Case(page, {"words": 50, "repeats": 20}, required=("run_dir", "text")),
    "cold_start": common.Case(cold_start, {**common.BOOKS, "repeats": 5}),
}


def main():
    common.run_case(CASES)


if __name__ == "__main__":
    common.run(main, define_flags)
