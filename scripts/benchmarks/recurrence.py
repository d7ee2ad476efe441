"""Measures an LSTM layer against `torch.nn.LSTM`, and the pooling of a QRNN layer of the same size.

    python -m scripts.benchmarks.recurrence --backend=torch --results=scripts/results/recurrence_torch.json
    python -m scripts.benchmarks.recurrence --backend=jax --dtype=mixed_bfloat16

A step computes the outputs of all time steps and the gradients of the input and all weights. The layer and the peer are
timed in turns in one process, after their values have been compared. The peer is always PyTorch in float32.
"""

import numpy as np
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS
SETTINGS = ("backend", "dtype", "batch_size", "length", "input_dim", "units")


def define_flags():
    common.define_flags(7)
    flags.DEFINE_string("dtype", "float32", "Keras dtype policy of this package.")
    flags.DEFINE_integer("batch_size", 40, "Number of rows in a batch.", lower_bound=1)
    flags.DEFINE_integer("length", 70, "Number of time steps.", lower_bound=1)
    flags.DEFINE_integer("input_dim", 400, "Dimension of the input.", lower_bound=1)
    flags.DEFINE_integer("units", 1150, "Number of units of the layer.", lower_bound=1)


def make_case():
    """Returns the input, the weights of an LSTM by the names of Keras, and the upstream gradient of its outputs."""
    random = np.random.default_rng(1)
    uniform = lambda *shape: random.uniform(-1, 1, shape).astype("float32") * FLAGS.units**-0.5  # noqa: E731
    shape = FLAGS.batch_size, FLAGS.length
    weights = {
        "kernel": uniform(FLAGS.input_dim, 4 * FLAGS.units),
        "recurrent_kernel": uniform(FLAGS.units, 4 * FLAGS.units),
        "bias": uniform(4 * FLAGS.units),
    }
    x, upstream = random.standard_normal((*shape, FLAGS.input_dim)), random.standard_normal((*shape, FLAGS.units))
    return x.astype("float32"), weights, upstream.astype("float32")


def step_of(function, layer, inputs, upstream):
    """Returns a compiled step: Σ upstream·function(*inputs), and its gradients for the inputs and a layer's weights.

    Args:
        function: Function of tensors.
        layer: Layer whose weights `function` reads, or `None`.
        inputs: List of arrays.
        upstream: Array of the shape of the result.
    """
    import keras
    from keras import ops

    class Problem(keras.layers.Layer):
        """Holds the inputs as weights, in addition to the weights of the layer."""

        def __init__(self):
            super().__init__(dtype="float32")
            self.inputs = [self.add_weight(shape=array.shape) for array in inputs]
            self.layer = layer

    problem = Problem()
    for variable, array in zip(problem.inputs, inputs, strict=True):
        variable.assign(array)

    def loss(upstream):
        values = function(*(variable.value for variable in problem.inputs))
        return ops.sum(ops.cast(values, "float32") * upstream)

    def gradients(upstream):
        return common.differentiated(loss, (upstream,), problem)

    return common.compiled_step(gradients, problem.variables, ops.convert_to_tensor(upstream))


def our_lstm(x, weights, upstream):
    from keras import ops

    from keras_adaptive.layers import LSTMDecoder

    body = LSTMDecoder(1, FLAGS.units, FLAGS.units, dtype=FLAGS.dtype)
    body.build(x.shape)
    (layer,) = body.recurrent_layers
    for name, value in weights.items():
        getattr(layer, name).assign(value)

    def function(x):
        x = ops.cast(x, body.compute_dtype)
        return body.step(x, body.initial_state(FLAGS.batch_size))[0]

    return step_of(function, body, [x], upstream)


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
        value = (module(x)[0] * upstream).sum()
        return value.detach(), torch.autograd.grad(value, [x, *module.parameters()])

    return step


def our_pooling(upstream):
    from keras_adaptive.ops import forget_mult

    random = np.random.default_rng(2)
    z, f = np.tanh(random.standard_normal(upstream.shape)), random.uniform(0, 1, upstream.shape)
    return step_of(forget_mult, None, [z, f, np.zeros(upstream[:, 0].shape)], upstream)


def compare(ours, peer):
    """Raises if our gradient of the input differs from the peer's by more than the dtype explains."""
    import keras

    (_, gradients), (_, (expected, *_)) = ours(), peer()
    expected = np.asarray(expected.cpu())
    gradient = next(one for one in gradients if tuple(one.shape) == expected.shape)
    gradient = np.asarray(keras.ops.convert_to_numpy(gradient), "float32")
    error = np.abs(gradient - expected).max() / np.abs(expected).max()
    if not error <= (1e-4 if FLAGS.dtype == "float32" else 3e-2):
        raise ArithmeticError(f"The gradient of the input is off by {error:.1e} of its size; nothing was timed.")


def main():
    case = make_case()
    ours, peer = our_lstm(*case), torch_lstm(*case)
    compare(ours, peer)
    layer = common.time_interleaved({"ours": ours, "torch.nn.LSTM": peer}, FLAGS.repeats)
    pooling = common.time_interleaved({"ours": our_pooling(case[2])}, FLAGS.repeats)
    cases, rows = [], []
    for name, seconds in {"LSTM": layer, "QRNN pooling": pooling}.items():
        candidates = {candidate: common.spread(times) for candidate, times in seconds.items()}
        cases.append({"case": name, "candidates": candidates})
        for candidate, figures in candidates.items():
            of_peer = figures["median"] / candidates.get("torch.nn.LSTM", figures)["median"]
            rows.append([f"{name}, {candidate}", f"{1e3 * figures['median']:.1f}", f"{of_peer:.2f}"])
    common.print_table(["candidate", "ms", "of the peer"], rows)
    common.save(SETTINGS, cases=cases)


if __name__ == "__main__":
    common.run(main, define_flags)
