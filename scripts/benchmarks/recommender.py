"""Times `fit` of a recommender of a million items: a sampled softmax against a softmax over all items.

    python -m scripts.benchmarks.recommender --backend=jax --results=scripts/results/benchmarks/recommender_jax.json

A user is represented by the mean of the vectors of several items, and the target is the next item. Both models have the
same layers before the output, and are trained by Adagrad. The first model has a `WordEmbedding` and a `SampledSoftmax`,
whose updates change only the rows that a batch reads. The second model uses layers of Keras: `Embedding`, and `Dense`
with the sparse cross-entropy. The program prints medians of whole updates, which are timed in turns in one process.
"""

import itertools

import numpy as np
from absl import flags

from scripts.benchmarks import common
from scripts.benchmarks.step import fit_turn

FLAGS = flags.FLAGS
SETTINGS = ("backend", "items", "dim", "batch_size", "history", "num_samples")


def define_flags():
    common.define_flags(7, dim=64)
    flags.DEFINE_integer("items", 1_000_000, "Number of items.", lower_bound=2)
    flags.DEFINE_integer("batch_size", 256, "Number of users in an update.", lower_bound=1)
    flags.DEFINE_integer("history", 20, "Number of items that a user has seen.", lower_bound=1)
    flags.DEFINE_integer("num_samples", 4_096, "Number of noise items per update.", lower_bound=1)


def user(ids, embedding):
    """Returns the symbolic vectors of users."""
    import keras

    return keras.layers.Dense(FLAGS.dim)(keras.layers.GlobalAveragePooling1D()(embedding(ids)))


def ours():
    import keras

    from keras_adaptive.layers import SampledSoftmax, WordEmbedding
    from keras_adaptive.models import WordModel

    ids = keras.Input((FLAGS.history,), dtype="int32")
    softmax = SampledSoftmax(FLAGS.items, FLAGS.num_samples)
    model = WordModel(ids, user(ids, WordEmbedding(FLAGS.items, FLAGS.dim)), word_output=softmax)
    model.compile(keras.optimizers.Adagrad(0.1))
    return model


def of_keras():
    import keras

    ids = keras.Input((FLAGS.history,), dtype="int32")
    logits = keras.layers.Dense(FLAGS.items)(user(ids, keras.layers.Embedding(FLAGS.items, FLAGS.dim)))
    model = keras.Model(ids, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adagrad(0.1), loss=loss)
    return model


def main():
    random = np.random.default_rng(1)
    shapes = (FLAGS.batch_size, FLAGS.history), FLAGS.batch_size
    batches = itertools.repeat(tuple(common.log_uniform(random, shape, FLAGS.items) for shape in shapes))
    turns = {name: fit_turn(make(), batches) for name, make in CANDIDATES.items()}
    candidates = {name: {"seconds": times} for name, times in common.times_of(turns, warmup=1, timed=True).items()}
    common.print_times(candidates)
    common.save(SETTINGS, candidates=candidates)


CANDIDATES = {"ours": ours, "keras": of_keras}

if __name__ == "__main__":
    common.run(main, define_flags)
