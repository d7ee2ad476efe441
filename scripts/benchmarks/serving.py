"""Times requests to SavedModels of a large vocabulary: next words and scores, against a full softmax.

    python -m scripts.benchmarks.serving --results=scripts/results/benchmarks/serving.json

Two models with the same decoder are exported: one with tied adaptive input and softmax, and one with a full softmax
tied to a single table. Their signatures are timed in turns in one process, with a client that sends one request at a
time. The next words are first compared with all log-probabilities. The program also times a plain export of the first
model, which returns all log-probabilities of all positions; the client takes the best words of the last position.
Requests contain text and answers contain words, so that the times include everything except the network. The weights
are random, but the tails have about the probability of their words in English text. Each request has a different text.
"""

import itertools
import os
import tempfile

import numpy as np
from absl import flags, logging

from scripts.benchmarks import common
from trainers.support import command_line

FLAGS = flags.FLAGS


def define_flags():
    body = {"num_blocks": 8, "dim": 512, "ffn_dim": 2048, "num_heads": 8}
    common.define_model_flags(vocabulary_size=267_744, cutoffs=["20000", "60000"], **body)
    flags.DEFINE_list("tail_shares", ["0.115", "0.145"], "Probability of each tail.")
    flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Data type of weights and matrix products.")
    flags.DEFINE_list("batch_sizes", ["1", "32"], "Numbers of lines in a request.")
    flags.DEFINE_integer("words", 20, "Number of words in a line.", lower_bound=1)
    flags.DEFINE_integer("k", 10, "Number of next words to request.", lower_bound=1)
    flags.DEFINE_integer("repeats", 100, "Number of timed requests of each kind.", lower_bound=1)
    command_line.define_path("results", None, "JSON file to write. It needs a clean working tree.")


def adaptive_model(random):
    model = common.build()
    give_tails_their_share(model, random)
    return model


def give_tails_their_share(model, random):
    """Sets the columns of the tails along the mean hidden state, so that each tail has its share of probability."""
    from keras import ops

    hidden = ops.convert_to_numpy(model(ranks(random, 256, FLAGS.vocabulary_size))[:, -1])
    logits = hidden @ ops.convert_to_numpy(model.word_output.tables[0]).T
    shares = np.array([float(share) for share in FLAGS.tail_shares])
    goals = np.log(np.exp(logits).sum(-1)).mean() + np.log(shares / (1 - shares.sum()))
    mean = hidden.mean(0)
    model.word_output.class_table.assign(np.outer(goals, mean / (mean @ mean)))


def signatures(folder, vocabulary):
    """Returns `{candidate: signatures}` of the two models, exported and loaded."""
    import tensorflow as tf

    from keras_adaptive.export import export_saved_model

    loaded = {}
    for name, make in (
        ("adaptive", lambda: adaptive_model(np.random.default_rng(0))),
        ("full softmax", lambda: common.build(cutoffs=())),
    ):
        path = f"{folder}/{name.split()[0]}/1"
        export_saved_model(make(), vocabulary, path, dtype=FLAGS.dtype)
        loaded[name] = tf.saved_model.load(path)
    return loaded


def ranks(random, batch_size, vocabulary_size):
    """Returns the ranks of the words of lines (batch_size, words), by Zipf's law."""
    return np.exp(random.random((batch_size, FLAGS.words)) * np.log(vocabulary_size)).astype("int32") - 1


def texts(vocabulary, batch_size):
    """Yields endless batches of lines."""
    import tensorflow as tf

    random, words = np.random.default_rng(batch_size), np.array(vocabulary.words[4:])
    while True:
        yield tf.constant([" ".join(line) for line in words[ranks(random, batch_size, len(words))]])


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
    """Returns the latencies of a signature of all candidates, timed in turns."""
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
    return case


def report(case):
    print(f"\n{case['signature']}, {case['batch_size']} lines of {FLAGS.words} words", flush=True)
    full = case["candidates"]["full softmax"]["median"]
    rows = []
    for name, time in case["candidates"].items():
        times = f"{1e3 * time['median']:.1f}", f"{1e3 * time['p99']:.1f}"
        rows.append([name, f"{time['requests_per_second']:.1f}", *times, f"{full / time['median']:.2f}"])
    common.print_table(["", "requests/s", "p50 ms", "p99 ms", "times as fast"], rows)


def main():
    logging.set_verbosity(logging.ERROR)  # TensorFlow reports where it writes
    from keras_adaptive.data import Vocabulary

    vocabulary = Vocabulary.from_counts({f"w{i}": FLAGS.vocabulary_size - i for i in range(FLAGS.vocabulary_size - 4)})
    with tempfile.TemporaryDirectory() as folder:
        loaded = signatures(folder, vocabulary)
        tails = check(loaded, vocabulary)
        shares = " / ".join(f"{100 * share:.1f}" for share in tails)
        print(f"{shares} % of the probability in the tails")
        cases = []
        for signature, batch_size in itertools.product(("next_words", "score"), map(int, FLAGS.batch_sizes)):
            cases.append(measure(loaded, vocabulary, signature, batch_size))
            report(cases[-1])
    names = (*common.MODEL_FLAGS, "dtype", "words", "k")
    common.save(names, {"backend": "tensorflow"}, probability_of_tails=tails, cases=cases)


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "tensorflow"  # before Keras is imported
    common.run(main, define_flags)
