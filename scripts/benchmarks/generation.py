"""Times the prediction of the next word in a large vocabulary: top-k and sampling, against all log-probabilities.

    python -m scripts.benchmarks.generation --backend=torch --results=scripts/results/generation_torch.json

`top_k` and `sample` of an AdaptiveSoftmax are timed in turns with `log_probs`, which computes the probability of every
word, in one process. Their results are compared first. Every exact method needs at least the head, which is also timed
alone. The weights are random, except where they determine the cost: the distribution of the head has a perplexity of
about 40, and the tails have about the probability of their words in English text, 11.5 and 14.5 %. Each call receives
new hidden states.
"""

import itertools

import numpy as np
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS
LOGIT_SPREAD, MARK = 3.5, 10.0  # standard deviation of the head's logits; component that sets the tails' logits


def define_flags():
    common.define_flags(25, vocabulary_size=267_744, cutoffs=["20000", "60000"], dim=1024)
    flags.DEFINE_list("tail_shares", ["0.115", "0.145"], "Probability of each tail.")
    flags.DEFINE_list("batch_sizes", ["1", "32"], "Numbers of hidden states.")
    flags.DEFINE_list("k", ["1", "10"], "Values of k for top_k.")


def make_softmax(random):
    """Returns an `AdaptiveSoftmax` whose head and tails have the probabilities of a trained one."""
    from keras_adaptive.layers import AdaptiveSoftmax

    softmax = AdaptiveSoftmax(FLAGS.vocabulary_size, common.cutoffs())
    softmax.build((None, FLAGS.dim))
    for table in softmax.tables:
        values = random.standard_normal(table.shape).astype("float32") * table.shape[1] ** -0.5
        values[:, 0] = 0 if table is softmax.tables[0] else values[:, 0]
        table.assign(values)
    for projection in softmax.projections[1:]:
        projection.assign(random.standard_normal(projection.shape) * FLAGS.dim**-0.5)
    total = np.log(softmax.tables[0].shape[0]) + LOGIT_SPREAD**2 / 2  # the head's log-sum-exp, about
    classes = random.standard_normal(softmax.class_table.shape) / LOGIT_SPREAD * FLAGS.dim**-0.5
    shares = np.array([float(share) for share in FLAGS.tail_shares])
    classes[:, 0] = (total + np.log(shares / (1 - shares.sum())) - 0.5) / MARK
    softmax.class_table.assign(classes)
    return softmax


def hidden_vectors(random, batch_size):
    """Yields batches of hidden states and of uniform numbers without end, as tensors."""
    from keras import ops

    while True:
        hidden = LOGIT_SPREAD * random.standard_normal((batch_size, FLAGS.dim))
        hidden[:, 0] = MARK
        uniform = random.random((2, batch_size))
        yield tuple(ops.convert_to_tensor(array.astype("float32")) for array in (hidden, uniform))


def functions(softmax):
    """Returns `{name: function of (hidden, uniform)}`, compiled as in `LanguageModel.generate`."""
    from keras_adaptive.backend.compiled import compiled

    bodies = {
        "log_probs": lambda hidden, uniform: softmax.log_probs(hidden),
        "head alone": lambda hidden, uniform: softmax._head(hidden),
        **{f"top_k {k}": lambda hidden, uniform, k=int(k): softmax.top_k(hidden, k) for k in FLAGS.k},
        "sample": lambda hidden, uniform: softmax.sample_from_uniform(hidden, uniform),
    }
    return {name: compiled(body, softmax.variables) for name, body in bodies.items()}


def check(calls, batch):
    """Checks that top_k returns the most probable words, and returns all log-probabilities."""
    from keras import ops

    numpy = lambda tree: [np.asarray(ops.convert_to_numpy(part)) for part in tree]  # noqa: E731
    (log_probs,) = numpy([calls["log_probs"](*batch)])
    for k in map(int, FLAGS.k):
        best, ids = numpy(calls[f"top_k {k}"](*batch))
        if not np.allclose(best, -np.sort(-log_probs, axis=-1)[:, :k], atol=1e-4):
            raise ArithmeticError("top_k differs from the largest values of log_probs; nothing was timed.")
        if not np.allclose(np.take_along_axis(log_probs, ids, axis=-1), best, atol=1e-4):
            raise ArithmeticError("The ids of top_k do not match its log-probabilities; nothing was timed.")
    return log_probs


def measure(softmax, batch_size):
    random = np.random.default_rng(batch_size)
    batches = hidden_vectors(random, batch_size)
    calls = functions(softmax)
    edges = [*common.cutoffs(), FLAGS.vocabulary_size]
    log_probs = np.concatenate([check(calls, batch) for batch in itertools.islice(batches, 3)])
    mass = [float(np.exp(log_probs[:, low:high]).sum(-1).mean()) for low, high in zip(edges, edges[1:])]

    def call(function):
        import keras

        return lambda: keras.tree.map_structure(keras.ops.convert_to_numpy, function(*next(batches)))

    seconds = common.time_interleaved({name: call(function) for name, function in calls.items()}, FLAGS.repeats)
    case = {"batch_size": batch_size, "probability_of_tails": mass, "candidates": {}}
    for name, times in seconds.items():
        case["candidates"][name] = common.spread(times)
    return case


def report(case):
    shares = " / ".join(f"{100 * share:.1f}" for share in case["probability_of_tails"])
    print(f"\nbatch {case['batch_size']}; {shares} % of the probability in the tails")
    times, everything = case["candidates"].items(), case["candidates"]["log_probs"]["median"]
    rows = [[name, *common.milliseconds(time, 1), f"{everything / time['median']:.2f}"] for name, time in times]
    common.print_table(["", "ms", "span", "times as fast"], rows)


def main():
    softmax = make_softmax(np.random.default_rng(0))
    cases = []
    for batch_size in map(int, FLAGS.batch_sizes):
        cases.append(measure(softmax, batch_size))
        report(cases[-1])
    common.save(("backend", "vocabulary_size", "cutoffs", "tail_shares", "dim"), cases=cases)


if __name__ == "__main__":
    common.run(main, define_flags)
