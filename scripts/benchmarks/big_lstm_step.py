"""Times whole updates of a projected LSTM with a sampled softmax against Keras and TensorFlow without this project.

    python -m scripts.benchmarks.big_lstm_step --results=scripts/results/benchmarks/big_lstm_step.json

The model is BIG LSTM of Jozefowicz et al. (2016), scaled to fit into the memory of a small machine. Both programs
train without dropout, carry the state of their streams, clip the gradients of the LSTM to a norm of 1 and update the
rows of words by Adagrad. Both run on TensorFlow, because the peer, `peers/tensorflow_big_lstm.py`, supports no other
backend. The program prints medians of whole updates, which are timed in turns in one process.
"""

import itertools
import time

import numpy as np
from absl import flags

from scripts.benchmarks import common
from scripts.benchmarks.step import UPDATES, fit_turn, report_speeds

FLAGS = flags.FLAGS
SETTINGS = ("backend", "vocabulary_size", "num_layers", "units", "dim", "rows", "length", "num_samples")
RATE, CLIP_NORM = 0.2, 1.0


def define_flags():
    common.define_flags(5, vocabulary_size=200_000, dim=256)
    FLAGS.set_default("backend", "tensorflow")
    flags.DEFINE_integer("num_layers", 2, "Number of layers.", lower_bound=1)
    flags.DEFINE_integer(
        "units", 2_048, "Number of cells in a layer, whose output is projected to --dim.", lower_bound=1
    )
    flags.DEFINE_integer("rows", 128, "Number of streams.", lower_bound=1)
    flags.DEFINE_integer("length", 20, "Number of tokens of a stream in an update.", lower_bound=1)
    flags.DEFINE_integer("num_samples", 8_192, "Number of noise words per update.", lower_bound=1)


def ours():
    import keras

    from keras_adaptive.layers import LSTMDecoder, SampledSoftmax, WordEmbedding
    from keras_adaptive.models import LanguageModel

    body = LSTMDecoder(FLAGS.num_layers, FLAGS.units, FLAGS.dim, projection_dim=FLAGS.dim)
    words, softmax = FLAGS.vocabulary_size, SampledSoftmax(FLAGS.vocabulary_size, FLAGS.num_samples)
    model = LanguageModel(WordEmbedding(words, FLAGS.dim), body, softmax)
    optimizer = keras.optimizers.Adagrad(RATE, initial_accumulator_value=1.0, global_clipnorm=CLIP_NORM)
    model.compile(optimizer, stream_rows=FLAGS.rows, clip_parts=("body",))
    return model


def peer():
    from scripts.benchmarks.peers.tensorflow_big_lstm import Trainer

    sizes = FLAGS.vocabulary_size, FLAGS.num_layers, FLAGS.units, FLAGS.dim
    return Trainer(*sizes, rows=FLAGS.rows, num_samples=FLAGS.num_samples, rate=RATE, clip_norm=CLIP_NORM)


def peer_turn(trainer, tokens, targets):
    """Returns `fit_turn` for the peer."""

    def turn():
        times = [time.perf_counter()]
        for _ in range(UPDATES):
            trainer.update(tokens, targets)
            times.append(time.perf_counter())
        return [end - start for start, end in itertools.pairwise(times)]

    return turn


def main():
    if FLAGS.backend != "tensorflow":
        raise ValueError(f"--backend must be tensorflow, since the peer supports no other. Received: {FLAGS.backend}.")
    random = np.random.default_rng(1)
    text = np.exp(random.random((FLAGS.rows, FLAGS.length + 1)) * np.log(FLAGS.vocabulary_size)).astype("int32") - 1
    tokens, targets = np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])
    model, other = ours(), peer()
    batch = (tokens, np.zeros(FLAGS.rows, bool)), targets
    turns = {"ours": fit_turn(model, itertools.repeat(batch)), "keras": peer_turn(other, tokens, targets)}
    parameters = {"ours": model.count_params(), "keras": other.count_params()}
    seconds = common.time_interleaved(turns, FLAGS.repeats, timed=True)
    results = report_speeds(seconds, parameters, dict.fromkeys(turns, tokens.size))
    common.save(SETTINGS, candidates=results)


if __name__ == "__main__":
    common.run(main, define_flags)
