"""Recurrences over time: the LSTM, and the pooling of a QRNN."""

import keras
from keras import ops

from keras_adaptive.backend.checks import check_shapes
from keras_adaptive.backend.custom_vjp import custom_vjp
from keras_adaptive.backend.scan import scan
from keras_adaptive.typing import Tensor

GATES = "units+units+units+units"


def lstm(
    x: Tensor,
    kernel: Tensor,
    recurrent_kernel: Tensor,
    bias: Tensor,
    h: Tensor,
    c: Tensor,
    projection: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes an LSTM layer over time.

    With the gates i, f, g and o in this order along the last axis of the weights,

        i, f, o = sigmoid(x_t·kernel + h·recurrent_kernel + bias), g = tanh(…)
        c ← f·c + i·g
        h ← o·tanh(c), times `projection` if there is one

    The state is float32 whatever the dtype of `x`. The gradients of the weights are one matrix product over all steps.
    torch runs its own kernel if the dtype is float32 and all rows share the bias; with a projection only on a GPU and
    for an `output_dim` below `units`. TensorFlow and JAX run a loop over the steps, without cuDNN on a GPU.

    Args:
        x: Float tensor (batch, time, input_dim).
        kernel: Float tensor (input_dim, 4·units) in the dtype of `x`.
        recurrent_kernel: Float tensor (output_dim, 4·units) in the dtype of `x`. `output_dim` is `units`, or the
            dimension of the projection.
        bias: Float tensor (4·units,) in the dtype of `x`, or (batch, 4·units) for one bias per row, such as the product
            with an input that is the same at all steps.
        h: Float32 tensor (batch, output_dim), the output before the first step.
        c: Float32 tensor (batch, units), the cells before the first step.
        projection: Float tensor (units, output_dim) in the dtype of `x`, optional.

    Returns:
        `(y, h, c)`: the outputs (batch, time, output_dim) in the dtype of `x`, and the float32 state after the last
        step. All arguments have gradients.

    Raises:
        ValueError: If the shapes do not fit together.

    Reference:
        Hochreiter and Schmidhuber, Long Short-Term Memory, 1997; Gers et al., Learning to Forget, 2000 (forget gate);
        Sak et al., Long Short-Term Memory Based Recurrent Neural Network Architectures, 2014 (projection).

    Example:

    >>> x = np.random.normal(size=(2, 5, 3)).astype("float32")
    >>> kernel, recurrent_kernel, bias = np.ones((3, 16)), np.ones((4, 16)), np.zeros(16)
    >>> weights = [weight.astype("float32") for weight in (kernel, recurrent_kernel, bias)]
    >>> y, h, c = lstm(x, *weights, h=np.zeros((2, 4), "float32"), c=np.zeros((2, 4), "float32"))
    >>> y.shape
    (2, 5, 4)
    """
    check_shapes(
        x=(x, "batch time input_dim"),
        h=(h, "batch output_dim"),
        c=(c, "batch units"),
        kernel=(kernel, f"input_dim {GATES}"),
        recurrent_kernel=(recurrent_kernel, f"output_dim {GATES}"),
        bias=(bias, GATES if len(bias.shape) == 1 else f"batch {GATES}"),
        projection=(projection, "units output_dim"),
    )
    x, kernel, recurrent_kernel, bias, h, c = map(ops.convert_to_tensor, (x, kernel, recurrent_kernel, bias, h, c))
    extra = () if projection is None else (ops.convert_to_tensor(projection),)
    if keras.config.backend() == "torch" and x.dtype == h.dtype and _torch_has_kernel(x, bias, h, c, extra):
        import torch

        weights = [kernel.T, recurrent_kernel.T, bias, torch.zeros_like(bias), *(matrix.T for matrix in extra)]
        if x.is_cuda:  # cuDNN reads the weights from one array
            flat = torch.cat([weight.reshape(-1) for weight in weights])
            parts = flat.split([weight.numel() for weight in weights])
            weights = [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]
        training = torch.is_grad_enabled()  # cuDNN keeps the values for the backward pass only on request
        y, h, c = torch.lstm(x, (h[None], c[None]), weights, True, 1, 0.0, training, False, True)
        return y, h[0], c[0]
    bias = ops.transpose(bias) if len(bias.shape) == 2 else bias[:, None]
    x, h, c = ops.transpose(x, (1, 2, 0)), ops.transpose(h), ops.transpose(c)
    y, h, c = custom_vjp(_lstm_forward, _lstm_backward)(x, kernel, recurrent_kernel, bias, h, c, *extra)
    return ops.transpose(y, (2, 0, 1)), ops.transpose(h), ops.transpose(c)


def _torch_has_kernel(x, bias, h, c, projection):
    """Returns whether torch has a kernel for the arguments; it infers a projection from an output below the cells."""
    return len(bias.shape) == 1 and (not projection or (x.is_cuda and h.shape[-1] < c.shape[-1]))


def _lstm_forward(x, kernel, recurrent_kernel, bias, h, c, *projection):
    """Computes `lstm` with the batch last: x (time, input_dim, batch), h (output_dim, batch) and c (units, batch).

    The bias is (4·units, 1), or (4·units, batch).

    On a CPU all backends multiply a large matrix and a few columns faster than a few rows and a large matrix. The input
    and the output of a step form one such matrix of columns.
    """
    dtype, wide = _dtype(x), "float32"
    multiply, wide_bias = _gate_product(kernel, recurrent_kernel, x.shape[0]), ops.cast(bias, wide)
    project = [ops.transpose(matrix) for matrix in projection]

    def step(state, inputs):
        h, c = state
        sums = ops.cast(multiply(*inputs, ops.cast(h, dtype)), wide) + wide_bias
        i, f, g, o = ops.split(sums, 4)
        i, f, g, o = ops.sigmoid(i), ops.sigmoid(f), ops.tanh(g), ops.sigmoid(o)
        c = f * c + i * g
        h = o * ops.tanh(c)
        for matrix in project:
            h = ops.cast(ops.matmul(matrix, ops.cast(h, dtype)), wide)
        return (h, c), (ops.cast(h, dtype), c, ops.cast(ops.concatenate([i, f, g, o]), dtype))

    outputs = ((h.shape, dtype), (c.shape, wide), ((bias.shape[0], c.shape[1]), dtype))
    state, (y, cells, activations) = scan(step, (h, c), (x,), outputs)
    return (y, *state), (activations, cells, y, x, kernel, recurrent_kernel, bias, h, c, *projection)


def _gate_product(kernel, recurrent_kernel, time):
    """Returns the function of x_t and h that computes kernelᵀ·x_t + recurrent_kernelᵀ·h, for `time` steps."""
    if time == 1:  # as in generation, where rearranging the weights takes longer than the product
        return lambda x, h: ops.transpose(
            ops.matmul(ops.transpose(x), kernel) + ops.matmul(ops.transpose(h), recurrent_kernel)
        )
    weights = ops.concatenate([ops.transpose(kernel), ops.transpose(recurrent_kernel)], axis=1)
    return lambda x, h: ops.matmul(weights, ops.concatenate([x, h]))


def _lstm_backward(residuals, upstream):
    activations, cells, y, x, kernel, recurrent_kernel, bias, h, c, *projection = residuals
    dtype, wide = _dtype(x), "float32"
    weights = ops.concatenate([kernel, recurrent_kernel])
    cells_before = _shifted(cells, c)

    def step(state, inputs):
        of_h, of_c = state
        of_y, activations, c, c_before = inputs
        i, f, g, o = ops.split(ops.cast(activations, wide), 4)
        of_h = of_h + ops.cast(of_y, wide)
        of_cells = of_h  # the gradient of o·tanh(c)
        for matrix in projection:
            of_cells = ops.cast(ops.matmul(matrix, ops.cast(of_h, dtype)), wide)
        t = ops.tanh(c)
        of_c = of_c + of_cells * o * (1 - t * t)
        parts = [of_c * g * i * (1 - i), of_c * c_before * f * (1 - f), of_c * i * (1 - g * g)]
        of_sums = ops.cast(ops.concatenate([*parts, of_cells * t * o * (1 - o)]), dtype)
        before = ops.matmul(weights, of_sums)
        of_x, before = before[: x.shape[1]], ops.cast(before[x.shape[1] :], wide)
        return (before, of_c * f), (of_x, of_sums, ops.cast(of_h, dtype))[: 2 + len(projection)]

    of_y, of_h, of_c = upstream
    outputs = ((x.shape[1:], dtype), (activations.shape[1:], dtype), (h.shape, dtype))[: 2 + len(projection)]
    inputs = of_y, activations, cells, cells_before
    state, (of_x, of_sums, *of_outputs) = scan(step, (of_h, of_c), inputs, outputs, reverse=True)
    of_bias = ops.sum(of_sums, axis=0)
    of_bias = ops.sum(of_bias, axis=1, keepdims=True) if bias.shape[1] == 1 else of_bias
    of_sums = _columns(of_sums)
    before = _columns(ops.concatenate([x, _shifted(y, ops.cast(h, dtype))], axis=1))
    of_weights = ops.matmul(before, ops.transpose(of_sums))
    of_projection = []
    if projection:
        o = ops.split(activations, 4, axis=1)[3]
        outputs = _columns(o * ops.cast(ops.tanh(cells), dtype))
        of_projection = [ops.matmul(outputs, ops.transpose(_columns(*of_outputs)))]
    return [of_x, of_weights[: x.shape[1]], of_weights[x.shape[1] :], of_bias, *state, *of_projection]


def forget_mult(z: Tensor, f: Tensor, c: Tensor) -> Tensor:
    """Computes the pooling of a QRNN over time: c_t = f_t·z_t + (1 − f_t)·c_{t−1}.

    Args:
        z: Float tensor (batch, time, units), the new values.
        f: Float tensor (batch, time, units) in [0, 1], the share of the new value.
        c: Float32 tensor (batch, units), the cells before the first step.

    Returns:
        The cells (batch, time, units), float32; the cells of the last step are the state. All arguments have gradients.

    Raises:
        ValueError: If the shapes do not fit together.

    Reference:
        Bradbury et al., Quasi-Recurrent Neural Networks, ICLR 2017, section 2.1. As in the code of Merity et al., An
        Analysis of Neural Language Modeling at Multiple Scales, 2018, `f` multiplies the new value.

    Example:

    >>> z, f = np.ones((1, 3, 1)), np.full((1, 3, 1), 0.5)
    >>> cells = forget_mult(z, f, np.zeros((1, 1), "float32"))
    >>> keras.ops.convert_to_numpy(cells)[0, :, 0]
    array([0.5  , 0.75 , 0.875], dtype=float32)
    """
    check_shapes(z=(z, "batch time units"), f=(f, "batch time units"), c=(c, "batch units"))
    z, f = (ops.transpose(ops.cast(tensor, "float32"), (1, 0, 2)) for tensor in (z, f))
    c = ops.convert_to_tensor(c)
    return ops.transpose(custom_vjp(_forget_mult_forward, _forget_mult_backward)(z, f, c), (1, 0, 2))


def _forget_mult_forward(z, f, c):
    cells = _decay(f * z, 1 - f, c)
    return cells, (z, f, c, cells)


def _forget_mult_backward(residuals, upstream):
    z, f, c, cells = residuals
    keeps = 1 - f
    # The gradient of c_t is its upstream gradient plus the gradient of c_{t+1} times 1 − f_{t+1}.
    of_cells = _decay(
        upstream, ops.concatenate([keeps[1:], ops.zeros_like(keeps[:1])]), ops.zeros_like(c), reverse=True
    )
    return [of_cells * f, of_cells * (z - _shifted(cells, c)), of_cells[0] * keeps[0]]


def _decay(values, keeps, start, reverse=False):
    """Returns a_t = values_t + keeps_t·a_{t−1} for every step, (time, batch, units), with a_{−1} = `start`."""

    def step(state, inputs):
        value, keep = inputs
        state = value + keep * state[0]
        return (state,), (state,)

    return scan(step, (start,), (values, keeps), ((start.shape, "float32"),), reverse)[1][0]


def _shifted(steps, start):
    """Returns the predecessors of the `steps` (time, …): `start`, followed by all steps but the last."""
    return ops.concatenate([start[None], steps[:-1]])


def _columns(steps):
    """Returns the columns of all `steps` (time, rows, batch) as one matrix (rows, time·batch)."""
    return ops.reshape(ops.transpose(steps, (1, 0, 2)), (steps.shape[1], -1))


def _dtype(tensor):
    return keras.backend.standardize_dtype(tensor.dtype)
