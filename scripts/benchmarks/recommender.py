"""Times recommenders of a million items: updates, the evaluation by ranks, and the best items of a user.

    python -m scripts.benchmarks.recommender --backend=jax --results=scripts/results/benchmarks/recommender_jax.json
    python -m scripts.benchmarks.recommender --case=ranking --backend=jax
    python -m scripts.benchmarks.recommender --case=retrieval --backend=jax --users=64

A user is represented by the mean of the vectors of several items, and the target is the next item. All models have the
same layers before the output, and items by a log-uniform law. Times are medians in turns in one process; memory is what
a call needs beyond the weights, in a process of its own.

- **update**: `fit` by Adagrad with a sampled softmax, whose updates change only the rows that a batch reads, and with
  layers of Keras: `Embedding`, and `Dense` with the sparse cross-entropy.
- **ranking**: `evaluate` with the loss and NDCG@10 over all items, with a plain and with an adaptive softmax; beside it
  the logits of `Dense` in batches of 64 users, of which `keras_rs.metrics.NDCG` takes the same.
- **retrieval**: `top_k` of the 100 best items with both, and `keras_rs.layers.BruteForceRetrieval`.
"""

import itertools

import numpy as np
from absl import flags

from scripts.benchmarks import common, memory
from scripts.benchmarks.step import fit_turn

FLAGS = flags.FLAGS
SETTINGS = ("backend", "items", "dim", "batch_size", "history", "num_samples", "users")
SCORED = 64  # users of a matrix of scores, 256 MB for a million items
BEST = 100


def define_flags():
    common.define_flags(7, dim=64)
    common.define_case(CASES)
    flags.DEFINE_integer("items", 1_000_000, "Number of items.", lower_bound=2)
    flags.DEFINE_integer("batch_size", 256, "Number of users in an update or a batch of the evaluation.", lower_bound=1)
    flags.DEFINE_integer("history", 20, "Number of items that a user has seen.", lower_bound=1)
    flags.DEFINE_integer("num_samples", 4_096, "Number of noise items per update.", lower_bound=1)
    flags.DEFINE_integer("users", 1_024, "Number of users who are ranked, or served together.", lower_bound=1)
    memory.define_flags()


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


def update():
    random = np.random.default_rng(1)
    batches = itertools.repeat(users_of(random, FLAGS.batch_size))
    makers = {"ours": ours, "keras": of_keras}
    turns = {name: lambda make=make: fit_turn(make(), batches) for name, make in makers.items()}
    measure(turns, warmup=1, timed=True)


def users_of(random, number):
    """Returns what users have seen, (number, history), and their targets."""
    shapes = (number, FLAGS.history), number
    return tuple(common.log_uniform(random, shape, FLAGS.items) for shape in shapes)


def ranking():
    histories, targets = users_of(np.random.default_rng(1), FLAGS.users)

    def evaluation(name):
        model = RANKED[name]()
        size = SCORED if name == "keras_rs" else FLAGS.batch_size
        return lambda: model.evaluate(histories, targets, batch_size=size, verbose=0)

    measure({name: lambda name=name: evaluation(name) for name in RANKED})


def ranked(cutoffs):
    import keras

    from keras_adaptive.layers import AdaptiveSoftmax, WordEmbedding
    from keras_adaptive.metrics import NDCG
    from keras_adaptive.models import WordModel

    ids = keras.Input((FLAGS.history,), dtype="int32")
    hidden = user(ids, WordEmbedding(FLAGS.items, FLAGS.dim))
    model = WordModel(ids, hidden, word_output=AdaptiveSoftmax(FLAGS.items, cutoffs))
    model.compile(metrics=[NDCG(10)])
    return model


def ranked_by_keras_rs():
    import keras
    from keras_rs.metrics import NDCG

    class OfTargets(NDCG):
        def update_state(self, targets, scores, sample_weight=None):
            relevant = keras.ops.one_hot(keras.ops.reshape(targets, (-1,)), FLAGS.items)
            return super().update_state(relevant, scores, sample_weight)

    ids = keras.Input((FLAGS.history,), dtype="int32")
    scores = keras.layers.Dense(FLAGS.items)(user(ids, keras.layers.Embedding(FLAGS.items, FLAGS.dim)))
    model = keras.Model(ids, scores)
    model.compile(loss=lambda targets, scores: 0.0 * scores[:, 0], metrics=[OfTargets(k=10)])
    return model


def bands():
    """Returns the cutoffs of the adaptive softmax."""
    return FLAGS.items // 100, FLAGS.items // 10


RANKED = {"ours": lambda: ranked(()), "bands": lambda: ranked(bands()), "keras_rs": ranked_by_keras_rs}


def retrieval():
    hidden = np.random.default_rng(1).normal(size=(FLAGS.users, FLAGS.dim)).astype("float32")

    def best(cutoffs):
        from keras_adaptive.layers import AdaptiveSoftmax

        softmax = AdaptiveSoftmax(FLAGS.items, cutoffs)
        softmax.build((None, FLAGS.dim))
        return served(lambda hidden: softmax.top_k(hidden, BEST), softmax.variables, hidden)

    def brute_force():
        from keras_rs.layers import BruteForceRetrieval

        vectors = np.random.default_rng(2).normal(size=(FLAGS.items, FLAGS.dim)).astype("float32")
        layer = BruteForceRetrieval(vectors * FLAGS.dim**-0.5, k=BEST)
        return served(layer, layer.variables, hidden)

    measure({"ours": lambda: best(()), "bands": lambda: best(bands()), "keras_rs": brute_force})


def served(function, variables, hidden):
    """Returns a call of a function that is compiled for inference. Its results are NumPy arrays."""
    import keras

    from keras_adaptive.backend.compiled import compiled

    run, hidden = compiled(function, variables), keras.ops.convert_to_tensor(hidden)
    return lambda: [keras.ops.convert_to_numpy(part) for part in run(hidden)]


def measure(makers, **timing):
    """Times the functions that `makers` make, and measures the memory of each in a process of its own."""
    if FLAGS.memory_of:
        return memory.print_peak(makers[FLAGS.memory_of]())
    times = common.times_of({name: make() for name, make in makers.items()}, **timing)
    candidates = {name: {"seconds": seconds} for name, seconds in times.items()}
    if FLAGS.memory:
        for name, figures in candidates.items():
            figures["bytes"] = memory.of_process("recommender", name, {"TF_ENABLE_ONEDNN_OPTS": "0"})
    megabytes = {name: f"{of['bytes'] / 2**20:,.0f}" for name, of in candidates.items() if "bytes" in of}
    common.print_times(candidates, digits=1, MiB=megabytes)
    common.save(SETTINGS, candidates=candidates)


CASES = {
    "update": common.Case(update),
    "ranking": common.Case(ranking, {"repeats": 3}),
    "retrieval": common.Case(retrieval, {"users": 1}),
}


def main():
    common.run_case(CASES)


if __name__ == "__main__":
    common.run(main, define_flags)
