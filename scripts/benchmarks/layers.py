"""Measures layers with their gradients: the concatenation of contexts, and recurrence.

    python -m scripts.benchmarks.layers --backend=torch --results=scripts/results/concatenation_torch.json
    python -m scripts.benchmarks.layers --backend=jax --num_global=5 --global_window=497
    python -m scripts.benchmarks.layers --backend=tensorflow --units=2000
    python -m scripts.benchmarks.layers --case=recurrence --backend=jax --dtype=mixed_bfloat16

All candidates are timed in turns in one process, after their values have been compared.

- `concatenation`: a step computes the product of concatenated contexts and the sum of all blocks, and the gradients of
  the text and of all weights. "products" is the product of an existing concatenation, with its two gradients. "plain"
  computes the concatenation and leaves the gradients to the backend. "layer" is the whole `ContextConcatenation`, with
  its activation, sum and norm. Memory is the peak of the resident memory of a separate process minus all results, in
  multiples of the text, as the median over the repeats. That process returns freed memory immediately, and TensorFlow
  runs without its oneDNN kernels, which never free memory.
- `recurrence`: a step computes the outputs of all time steps, and the gradients of the input and all weights, of an
  LSTM layer and of `torch.nn.LSTM`, which is always in float32; and of the pooling of a QRNN layer of the same size.
"""

import numpy as np
from absl import flags

from scripts.benchmarks import common, memory

FLAGS = flags.FLAGS
CONCATENATION = ("backend", "batch_size", "length", "dim", "units", "num_local", "num_global", "global_window")
RECURRENCE = ("backend", "dtype", "batch_size", "length", "input_dim", "units")
CANDIDATES = ("products", "ours", "layer", "plain")


def define_flags():
    common.define_flags(7, dim=410)
    common.define_case(CASES)
    memory.define_flags()
    flags.DEFINE_integer("batch_size", 16, "Number of rows in a batch.", lower_bound=1)
    flags.DEFINE_integer("length", 512, "Number of tokens in a row.", lower_bound=1)
    flags.DEFINE_integer(
        "units", 0, "Number of columns of the matrix, or units of the LSTM; 0 for the dimension of the text.", 0
    )
    flags.DEFINE_integer("num_local", 15, "Number of concatenated tokens.", lower_bound=1)
    flags.DEFINE_integer("num_global", 0, "Number of learned averages that are also concatenated.", lower_bound=0)
    flags.DEFINE_integer("global_window", None, "Number of tokens in an average.", lower_bound=1)
    flags.DEFINE_string("dtype", "float32", "Keras dtype policy of the LSTM.")
    flags.DEFINE_integer("input_dim", 400, "Dimension of the input of the LSTM.", lower_bound=1)


def concatenation():
    if FLAGS.memory_of:
        print_memory(FLAGS.memory_of)
        return
    steps = make_steps(CANDIDATES)
    compare(steps["ours"](), steps["plain"](), 1e-4)
    candidates = {name: {"seconds": times} for name, times in common.times_of(steps).items()}
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "TF_ENABLE_ONEDNN_OPTS": "0"}
    for name, figures in candidates.items() if FLAGS.memory else ():
        size = memory.of_process("layers", name, environment)
        figures["texts"] = size / (4 * FLAGS.batch_size * FLAGS.length * FLAGS.dim)
    texts = {name: f"{figures['texts']:.2f}" for name, figures in candidates.items() if "texts" in figures}
    common.print_times(candidates, **{"memory / text": texts})
    common.save(CONCATENATION, candidates=candidates)


def print_memory(name):
    """Prints the peak memory of a step, without its results."""
    import keras

    step = make_steps([name])[name]
    memory.print_peak(step, sum(int(np.prod(tensor.shape)) * 4 for tensor in keras.tree.flatten(step())))


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

    def products(concatenation, kernel, of_product):
        gradients = ops.matmul(of_product, ops.transpose(kernel)), ops.matmul(ops.transpose(concatenation), of_product)
        return ops.matmul(concatenation, kernel), *gradients

    of_layer = [x, *map(array, layer.trainable_variables)]
    of_products = [normal(rows, len(weights[0])), weights[0], of_product.reshape(rows, -1)]
    makers = {
        "ours": lambda: vjp_step(ours, [x, *weights, *kernels], [of_product, of_total]),
        "plain": lambda: vjp_step(plain, [x, *weights, *kernels], [of_product, of_total]),
        "layer": lambda: vjp_step(stateless(layer, layer), of_layer, [of_total]),
        "products": lambda: step_of(products, of_products),
    }
    return {name: makers[name]() for name in names}


def recurrence():
    random = np.random.default_rng(1)
    uniform = lambda *shape: random.uniform(-1, 1, shape).astype("float32") * FLAGS.units**-0.5  # noqa: E731
    normal = lambda dim: random.standard_normal((FLAGS.batch_size, FLAGS.length, dim)).astype("float32")  # noqa: E731
    weights = {
        "kernel": uniform(FLAGS.input_dim, 4 * FLAGS.units),
        "recurrent_kernel": uniform(FLAGS.units, 4 * FLAGS.units),
        "bias": uniform(4 * FLAGS.units),
    }
    x, upstream = normal(FLAGS.input_dim), normal(FLAGS.units)
    ours, peer = our_lstm(x, weights, upstream), torch_lstm(x, weights, upstream)
    (_, (gradient, *_)), (_, (expected, *_)) = ours(), peer()
    compare(gradient, expected.cpu().numpy(), 1e-4 if FLAGS.dtype == "float32" else 3e-2)
    turns = {"LSTM": {"ours": ours, "torch.nn.LSTM": peer}, "QRNN pooling": {"ours": our_pooling(upstream)}}
    cases = [{"case": name, "candidates": common.times_of(candidates)} for name, candidates in turns.items()]
    for case in cases:
        print(f"\n{case['case']}")
        common.print_times(case["candidates"], 1)
    common.save(RECURRENCE, cases=cases)


def our_lstm(x, weights, upstream):
    from keras import ops

    from keras_adaptive.layers import LSTMDecoder

    body = LSTMDecoder(1, FLAGS.units, FLAGS.units, dtype=FLAGS.dtype)
    body.build(x.shape)
    names = {variable.path: name for name in weights for variable in [getattr(body.recurrent_layers[0], name)]}
    arrays = [weights[names[variable.path]] for variable in body.trainable_variables]

    def outputs(x):
        x = ops.cast(x, body.compute_dtype)
        return ops.cast(body.step(x, body.initial_state(FLAGS.batch_size))[0], "float32")

    return vjp_step(stateless(body, outputs), [x, *arrays], [upstream])


def torch_lstm(x, weights, upstream):
    import torch

    module = torch.nn.LSTM(FLAGS.input_dim, FLAGS.units, batch_first=True)
    with torch.no_grad():
        module.weight_ih_l0.copy_(torch.from_numpy(weights["kernel"].T))
        module.weight_hh_l0.copy_(torch.from_numpy(weights["recurrent_kernel"].T))
        module.bias_ih_l0.copy_(torch.from_numpy(weights["bias"]))
        module.bias_hh_l0.zero_()
    device = common.torch_device()
    module.to(device)
    x, upstream = torch.from_numpy(x).to(device).requires_grad_(), torch.from_numpy(upstream).to(device)

    def step():
        value, _ = module(x)
        return value.detach(), torch.autograd.grad(value, [x, *module.parameters()], upstream)

    return step


def our_pooling(upstream):
    from keras_adaptive.ops import forget_mult

    random = np.random.default_rng(2)
    z, f = np.tanh(random.standard_normal(upstream.shape)), random.uniform(0, 1, upstream.shape)
    arrays = [array.astype("float32") for array in (z, f, np.zeros(upstream[:, 0].shape))]
    return vjp_step(lambda *tensors: (forget_mult(*tensors),), arrays, [upstream])


def stateless(layer, function):
    """Returns a function of tensors and of the weights of a layer, which `function` reads."""
    import keras

    def call(x, *weights):
        with keras.StatelessScope(state_mapping=list(zip(layer.trainable_variables, weights, strict=True))):
            return (function(x),)

    return call


def step_of(function, arrays):
    """Returns a compiled function of arrays as one without arguments."""
    from keras import ops

    return common.compiled_step(function, [], *map(ops.convert_to_tensor, arrays))


def vjp_step(function, arrays, upstream):
    """Returns a compiled step: the values of `function(*arrays)`, and the gradients for `upstream` ones of these."""
    return step_of(_VJPS[FLAGS.backend](function, len(arrays)), [*arrays, *upstream])


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


def compare(actual, expected, tolerance):
    """Raises an ArithmeticError if the results of two steps differ by more than a share of their size."""
    import keras

    pairs = zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True)
    for actual, expected in (map(keras.ops.convert_to_numpy, pair) for pair in pairs):
        error = np.abs(actual - expected).max() / np.abs(expected).max()
        if not error <= tolerance:
            raise ArithmeticError(f"A result is off by {error:.1e} of its size; nothing was timed.")


CASES = {
    "concatenation": common.Case(concatenation),
    "recurrence": common.Case(recurrence, {"batch_size": 40, "length": 70, "units": 1_150}),
}


def main():
    common.run_case(CASES)


if __name__ == "__main__":
    common.run(main, define_flags)
