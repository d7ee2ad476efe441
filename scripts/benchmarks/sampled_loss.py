"""Times updates of a sampled softmax against plain TensorFlow, for vocabularies of several sizes.

    python -m scripts.benchmarks.sampled_loss --backend=jax --results=scripts/results/benchmarks/sampled_loss_jax.json
    python -m scripts.benchmarks.sampled_loss --backend=torch --vocabulary_sizes=100000,800000,3000000 --nopeer \\
        --nomemory --dim=256

An update draws the noise, computes the loss and its gradients, including those of the hidden states, and changes the
rows of the table and the biases by Adagrad. This package takes a step of `WordModel.fit`. The peer is
`tf.nn.sampled_softmax_loss` with TensorFlow's sparse Adagrad, for all backends. All sizes and both programs are timed
in turns in one process, after their losses for the same noise have been compared. Memory is measured in a separate
process: the peak of the resident memory during an update, minus the memory between updates (table, accumulators and
batch), as the median over the repeats. TensorFlow is then measured with TF_ENABLE_ONEDNN_OPTS=0, because its oneDNN
kernels never free memory.
"""

import functools

import numpy as np
from absl import flags

from scripts.benchmarks import common
from scripts.benchmarks.loss import print_candidates

FLAGS = flags.FLAGS
SETTINGS = ("backend", "dim", "rows", "num_samples")
RATE, SEED = 0.2, 1
CANDIDATES = ("ours", "tensorflow")


def define_flags():
    common.define_flags(7, dim=512)
    flags.DEFINE_list("vocabulary_sizes", ["793471"], "Numbers of words.")
    flags.DEFINE_integer("rows", 2_560, "Number of targets in an update.", lower_bound=1)
    flags.DEFINE_integer("num_samples", 8_192, "Number of noise words per update.", lower_bound=1)
    flags.DEFINE_bool("peer", True, "Also time TensorFlow, which doubles the memory.")
    flags.DEFINE_bool("memory", True, "Also measure memory. It needs Linux.")
    flags.DEFINE_enum("memory_of", None, CANDIDATES, "Print the memory of this candidate, in bytes, and nothing else.")


def make_batch(vocabulary_size):
    """Returns hidden states and ids that are log-uniform, as words by Zipf's law are."""
    random = np.random.default_rng(1)
    hidden = random.standard_normal((FLAGS.rows, FLAGS.dim)).astype("float32")
    ids = np.exp(random.random(FLAGS.rows) * np.log(vocabulary_size)).astype("int32")
    return hidden, np.minimum(ids, vocabulary_size - 1)


def make_model(vocabulary_size):
    """Returns a `WordModel` of hidden states, to which it adds a vector, so that their gradient is needed."""
    import keras

    from keras_adaptive.layers import SampledSoftmax
    from keras_adaptive.models import WordModel

    class Shifted(keras.layers.Layer):
        def build(self, shape):
            self.shift = self.add_weight(shape=shape[-1:], initializer="zeros")

        def call(self, hidden):
            return hidden + self.shift

    hidden = keras.Input((FLAGS.dim,))
    softmax = SampledSoftmax(vocabulary_size, FLAGS.num_samples, seed=SEED)
    model = WordModel(hidden, Shifted()(hidden), word_output=softmax)
    model.compile(keras.optimizers.Adagrad(RATE, initial_accumulator_value=1.0, epsilon=0.0))
    return model


def make_peer(model):
    """Returns TensorFlow's updates from the same weights."""
    import keras

    from scripts.benchmarks.peers.tensorflow_sampled_softmax import Trainer

    return Trainer(keras.ops.convert_to_numpy(model.word_output.tables[0].value), FLAGS.num_samples, RATE)


def compare(model, peer, batch):
    """Raises if the first loss of the model differs from TensorFlow's of the same noise. Takes a step of the model."""
    import keras

    expected = float(peer.loss(*batch, noise_of(model.word_output, batch[1])))
    actual = float(keras.ops.convert_to_numpy(model.train_on_batch(*batch, return_dict=True)["loss"]))
    if not abs(actual - expected) <= 1e-4 * abs(expected):
        raise ArithmeticError(f"The losses of the same noise are {actual} and {expected}; nothing was timed.")


def noise_of(softmax, targets):
    """Returns the noise of the next update in the form of TensorFlow's `sampled_values`."""
    import keras

    from keras_adaptive.ops.sampling import draw_noise

    seed = keras.random.SeedGenerator(SEED)  # as the layer's, which it leaves as it is
    noise = draw_noise(softmax._distribution, FLAGS.num_samples, softmax._candidates, seed)
    counts = [noise.expected_counts(softmax._distribution.probabilities(ids)) for ids in (targets, noise.ids)]
    ids, of_targets, of_noise = (keras.ops.convert_to_numpy(array) for array in (noise.ids, *counts))
    return ids.astype("int64"), of_targets[:, None], of_noise


def measure(sizes):
    """Measures all sizes in turns, and memory when the models of this process are gone."""
    cases = {size: {"vocabulary_size": size, "candidates": {}} for size in sizes}
    for (size, name), times in timed(sizes).items():
        cases[size]["candidates"][name] = {"seconds": common.spread(times)}
    for size, case in cases.items():
        for name, figures in case["candidates"].items() if FLAGS.memory else ():
            figures["mebibytes"] = memory(name, size) / 2**20
    return list(cases.values())


def timed(sizes):
    """Compares the losses and times the updates in turns."""
    candidates = {}
    for size in sizes:
        batch, model = make_batch(size), make_model(size)
        candidates[size, "ours"] = functools.partial(model.train_on_batch, *batch)
        if FLAGS.peer:
            peer = make_peer(model)
            compare(model, peer, batch)
            candidates[size, "tensorflow"] = functools.partial(peer.update, *batch)
    return common.time_interleaved(candidates, FLAGS.repeats)


def memory(name, vocabulary_size):
    """Returns the bytes of a candidate in a separate process."""
    given = [f"--{flag}={FLAGS[flag].value}" for flag in (*SETTINGS, "repeats")]
    given += [f"--vocabulary_sizes={vocabulary_size}", f"--memory_of={name}"]
    return common.number_of_process("sampled_loss", given, TF_ENABLE_ONEDNN_OPTS="0")


def print_memory(name, vocabulary_size):
    """Prints the peak memory of an update, without the memory that is held between updates."""
    batch = make_batch(vocabulary_size)
    model = make_model(vocabulary_size)
    if name == "ours":
        update = lambda: model.train_on_batch(*batch)  # noqa: E731
    else:
        peer = make_peer(model)
        update = lambda: peer.update(*batch)  # noqa: E731
    update()
    update()
    print(int(np.median([common.peak_bytes(update) for _ in range(FLAGS.repeats)])))


def report(case):
    """Prints a case as a table."""
    print(f"\n{case['vocabulary_size']:,} words × {FLAGS.dim}, {FLAGS.rows} targets, {FLAGS.num_samples} noise words")
    print_candidates(case["candidates"], digits=0)


def main():
    sizes = list(map(int, FLAGS.vocabulary_sizes))
    if FLAGS.memory_of:
        print_memory(FLAGS.memory_of, sizes[0])
        return
    cases = measure(sizes)
    for case in cases:
        report(case)
    common.save(SETTINGS, cases=cases)


if __name__ == "__main__":
    common.run(main, define_flags)
