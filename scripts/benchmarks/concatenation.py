"""Measures the product of concatenated contexts against its matrix products alone and against a plain concatenation.

    python -m scripts.benchmarks.concatenation --backend=torch --results=scripts/results/concatenation_torch.json
    python -m scripts.benchmarks.concatenation --backend=jax --num_global=5 --global_window=497
    python -m scripts.benchmarks.concatenation --backend=tensorflow --units=2000

A step computes the product and the sum of all blocks, and the gradients of the text and of all weights. "products" is
the product of an existing concatenation, with its two gradients. "plain" computes the concatenation and leaves the
gradients to the backend. "layer" is the whole `ContextConcatenation`, with its activation, sum and norm. All candidates
are timed in turns in one process, after their values have been compared. Memory is the peak of the resident memory of a
separate process minus all results, in multiples of the text, as the median over the repeats. That process returns freed
memory immediately, and TensorFlow runs without its oneDNN kernels, which never free memory.
"""

import numpy as np
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS
SETTINGS = ("backend", "batch_size", "length", "dim", "units", "num_local", "num_global", "global_window")
CANDIDATES = ("ours", "layer", "plain", "products")


def define_flags():
    common.define_flags(7, dim=410)
    flags.DEFINE_integer("batch_size", 16, "Number of rows in a batch.", lower_bound=1)
    flags.DEFINE_integer("length", 512, "Number of tokens in a row.", lower_bound=1)
    flags.DEFINE_integer("units", 0, "Number of columns of the matrix; 0 for the dimension of the text.", lower_bound=0)
    flags.DEFINE_integer("num_local", 15, "Number of concatenated tokens.", lower_bound=1)
    flags.DEFINE_integer("num_global", 0, "Number of learned averages that are also concatenated.", lower_bound=0)
    flags.DEFINE_integer("global_window", None, "Number of tokens in an average.", lower_bound=1)
    flags.DEFINE_bool("memory", True, "Also measure memory. It needs Linux.")
    flags.DEFINE_enum("memory_of", None, CANDIDATES, "Print the memory of this candidate, in bytes, and nothing else.")


def make_layer():
    """Returns a built layer with the same weights in every process."""
    import keras

    from keras_adaptive.layers import ContextConcatenation

    keras.utils.set_random_seed(1)
    averages = {"num_global": FLAGS.num_global, "global_window": FLAGS.global_window}
    layer = ContextConcatenation(FLAGS.num_local, hidden_dim=FLAGS.units or None, **averages)
    layer.build((None, None, FLAGS.dim))
    return layer


def make_steps(names):
    """Returns the steps of some candidates: functions without arguments that return `(values, gradients)`."""
    import keras
    from keras import ops

    from keras_adaptive.ops import context_product

    layer, random = make_layer(), np.random.default_rng(1)
    normal = lambda *shape: random.standard_normal(shape).astype("float32")  # noqa: E731
    shape, units, num_local = (FLAGS.batch_size, FLAGS.length), FLAGS.units or FLAGS.dim, FLAGS.num_local
    x, of_product, of_total = (normal(*shape, dim) for dim in (FLAGS.dim, units, FLAGS.dim))
    array = lambda variable: normal(*variable.shape) * variable.shape[0] ** -0.5  # noqa: E731
    weights = [array(variable) for variable in (layer.hidden.kernel, layer.hidden.bias)]
    kernels = [array(layer.global_kernels)] if FLAGS.num_global else []
    rows = FLAGS.batch_size * FLAGS.length

    def padded(kernels):
        return ops.pad(kernels, [[0, 0], [num_local, 0]])

    def ours(x, kernel, bias, *kernels):
        return context_product(x, kernel, bias, *map(padded, kernels), num_local=num_local)[:2]

    def plain(x, kernel, bias, *kernels):
        shifted = lambda tokens: ops.pad(x[:, : FLAGS.length - tokens], [[0, 0], [tokens, 0], [0, 0]])  # noqa: E731
        blocks = [shifted(tokens) for tokens in range(num_local)]
        for bank in kernels:  # a convolution over time, the same for all dimensions
            columns = ops.reshape(ops.transpose(x, (0, 2, 1)), (-1, FLAGS.length, 1))
            columns = ops.pad(columns, [[0, 0], [num_local + FLAGS.global_window - 1, 0], [0, 0]])
            columns = columns[:, : FLAGS.length + FLAGS.global_window - 1]
            averages = ops.conv(columns, ops.transpose(ops.flip(bank, axis=1))[:, None], padding="valid")
            averages = ops.reshape(averages, (shape[0], FLAGS.dim, FLAGS.length, FLAGS.num_global))
            blocks += [ops.transpose(averages[..., number], (0, 2, 1)) for number in range(FLAGS.num_global)]
        concatenated = ops.reshape(ops.concatenate(blocks, axis=-1), (rows, -1))
        return ops.reshape(ops.matmul(concatenated, kernel) + bias, (*shape, units)), sum(blocks)

    def whole(x, *weights):
        with keras.StatelessScope(state_mapping=list(zip(layer.trainable_variables, weights, strict=True))):
            return (layer(x),)

    def products(concatenation, kernel, of_product):
        gradients = ops.matmul(of_product, ops.transpose(kernel)), ops.matmul(ops.transpose(concatenation), of_product)
        return ops.matmul(concatenation, kernel), *gradients

    makers = {
        "ours": lambda: vjp_step(ours, [x, *weights, *kernels], [of_product, of_total]),
        "plain": lambda: vjp_step(plain, [x, *weights, *kernels], [of_product, of_total]),
        "layer": lambda: vjp_step(whole, [x, *map(array, layer.trainable_variables)], [of_total]),
        "products": lambda: step(products, [normal(rows, len(weights[0])), weights[0], of_product.reshape(rows, -1)]),
    }
    return {name: makers[name]() for name in names}


def step(function, arrays):
    """Returns a compiled function of arrays as one without arguments."""
    from keras import ops

    return common.compiled_step(function, [], *map(ops.convert_to_tensor, arrays))


def vjp_step(function, arrays, upstream):
    """Returns a compiled step: the values of `function(*arrays)`, and the gradients for `upstream` ones of these."""
    return step(_VJPS[FLAGS.backend](function, len(arrays)), [*arrays, *upstream])


def _torch(function, count):
    import torch

    def values_and_gradients(*tensors):
        inputs = [tensor.detach().requires_grad_() for tensor in tensors[:count]]
        with torch.enable_grad():
            values = function(*inputs)
        return values, torch.autograd.grad(values, inputs, tensors[count:])

    return values_and_gradients


def _jax(function, count):
    import jax

    def values_and_gradients(*tensors):
        values, pull = jax.vjp(lambda *inputs: tuple(function(*inputs)), *tensors[:count])
        return values, pull(tuple(tensors[count:]))

    return values_and_gradients


def _tensorflow(function, count):
    import tensorflow as tf

    def values_and_gradients(*tensors):
        inputs = list(tensors[:count])
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            values = list(function(*inputs))
        with tf.control_dependencies(values):  # as in training, where the loss lies between them
            upstream = [tf.identity(tensor) for tensor in tensors[count:]]
        return values, tape.gradient(values, inputs, upstream)

    return values_and_gradients


_VJPS = {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow}


def compare(ours, plain):
    """Raises an ArithmeticError if the results of two steps differ by more than rounding."""
    import keras

    pairs = zip(keras.tree.flatten(ours()), keras.tree.flatten(plain()), strict=True)
    for actual, expected in (map(keras.ops.convert_to_numpy, pair) for pair in pairs):
        error = np.abs(actual - expected).max() / np.abs(expected).max()
        if not error <= 1e-4:
            raise ArithmeticError(f"A result is off by {error:.1e} of its size; nothing was timed.")


def memory(name):
    """Returns the bytes of a candidate in a separate process."""
    given = [f"--{flag}={FLAGS[flag].value}" for flag in (*SETTINGS, "repeats") if FLAGS[flag].value is not None]
    settings = {"MALLOC_MMAP_THRESHOLD_": "65536", "TF_ENABLE_ONEDNN_OPTS": "0"}
    return common.number_of_process("concatenation", [*given, f"--memory_of={name}"], **settings)


def print_memory(name):
    """Prints the peak memory of a step, without its results."""
    import keras

    step = make_steps([name])[name]
    results = sum(int(np.prod(tensor.shape)) * 4 for tensor in keras.tree.flatten(step()))
    print(int(np.median([common.peak_bytes(step) for _ in range(FLAGS.repeats)])) - results)


def main():
    if FLAGS.memory_of:
        print_memory(FLAGS.memory_of)
        return
    steps = make_steps(CANDIDATES)
    compare(steps["ours"], steps["plain"])
    seconds = common.time_interleaved(steps, FLAGS.repeats)
    candidates = {name: {"seconds": common.spread(times)} for name, times in seconds.items()}
    text, rows = 4 * FLAGS.batch_size * FLAGS.length * FLAGS.dim, []
    for name, figures in candidates.items():
        if FLAGS.memory:
            figures["texts"] = memory(name) / text
        time, floor = figures["seconds"], candidates["products"]["seconds"]["median"]
        texts = f"{figures['texts']:.2f}" if FLAGS.memory else ""
        rows.append([name, *common.milliseconds(time), f"{time['median'] / floor:.2f}", texts])
    common.print_table(["", "ms", "span", "of the products", "memory / text"], rows)
    common.save(SETTINGS, candidates=candidates)


if __name__ == "__main__":
    common.run(main, define_flags)
