from typing import Any

from keras import ops

from keras_adaptive.backend.products import matmul
from keras_adaptive.layers.initializers import fan_in_uniform
from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout, in_training
from keras_adaptive.layers.regularization.weight_drop import WeightDrop
from keras_adaptive.ops.quantized_matrix import floats
from keras_adaptive.ops.recurrence import forget_mult
from keras_adaptive.typing import Shape, Tensor


class QRNNLayer(Quantizable):
    """A layer of a `QRNNDecoder`: a linear layer over one or two tokens, followed by pooling over time.

    With the source s_t = x_t, or [x_t, x_{t−1}] for a window of 2,

        z, f, o = tanh(s_t·kernel + bias), sigmoid(…), sigmoid(…)
        c_t = f·z + (1 − f)·c_{t−1}
        y_t = o·c_t

    Zoneout sets f to 0 with its rate in training; evaluation scales f by 1 − rate. The state is c and, for a window of
    2, the last input. The weights start from U(±1/√(window·input_dim)).

    Args:
        units: Number of cells.
        window: Number of tokens of a source, 1 or 2.
        zoneout: Rate of zoneout.
        weight_dropout: Dropout rate on `kernel` (DropConnect), in training.

    Attributes:
        output_dim: Dimension of the output, `units`.
        kernel: Variable (window·input_dim, 3·units), the columns of z, f and o in this order.
        bias: Variable (3·units,).
    """

    matrices = ("kernel",)

    def __init__(
        self, units: int, *, window: int | None = 1, zoneout: float = 0.0, weight_dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.units = self.output_dim = units
        self.window = window
        self.zoneout = zoneout
        self._drop_weights = WeightDrop(weight_dropout, dtype=self.dtype_policy)
        self._drop_updates = SeededDropout(zoneout, dtype="float32")

    def build(self, input_shape: Shape) -> None:
        fan_in, width = self.window * input_shape[-1], 3 * self.units
        self.kernel = self.add_matrix((fan_in, width), fan_in_uniform(fan_in), "kernel")
        self.bias = self.add_weight(shape=(width,), initializer=fan_in_uniform(fan_in), name="bias")
        self.built = True

    def initial_state(self, batch_size: int) -> Any:
        """Returns the initial state: float32 zeros (batch, units) and, with a window of 2, (batch, input_dim).

        Raises:
            ValueError: If the layer has a window of 2 and is not built.
        """
        cells = ops.zeros((batch_size, self.units), "float32")
        if self.window == 1:
            return (cells,)
        if not self.built:
            raise ValueError(
                "The state of a QRNN with window=2 holds its last input, whose dimension is unknown: build the layer "
                "before `initial_state`."
            )
        return cells, ops.zeros((batch_size, self.kernel.shape[0] // self.window), "float32")

    def step(self, x: Tensor, state: Any, training: bool | None = False) -> tuple[Tensor, Any]:
        """Returns `(y, state)` for the next tokens, as `Body.step` does."""
        cells, *last = state
        source = x
        if last:
            before = ops.concatenate([ops.cast(last[0], x.dtype)[:, None], x[:, :-1]], axis=1)
            source, last = ops.concatenate([x, before], axis=-1), [ops.cast(x[:, -1], "float32")]
        z, f, o = ops.split(self._linear(source, training), 3, axis=-1)
        z, f = ops.tanh(ops.cast(z, "float32")), ops.sigmoid(ops.cast(f, "float32"))
        if self.zoneout:
            f = (1 - self.zoneout) * in_training(self._drop_updates, f, training)  # dropout scales kept values
        cells = forget_mult(z, f, cells)  # (batch, steps, units)
        return ops.sigmoid(o) * ops.cast(cells, x.dtype), (cells[:, -1], *last)

    def _linear(self, source, training):
        """Returns source·kernel + bias with all positions as one matrix, as `FlatDense` does."""
        kernel, bias = (ops.cast(variable, self.compute_dtype) for variable in (floats(self.kernel), self.bias))
        kernel = in_training(self._drop_weights, kernel, training)
        sums = matmul(ops.reshape(source, [-1, source.shape[-1]]), kernel, bias)
        return ops.reshape(sums, (*ops.shape(source)[:-1], bias.shape[0]))

    def activations_per_token(self) -> int:
        """Counts the new values, the gates, the cells, the output, and the mask of zoneout."""
        return (5 + (self.zoneout > 0)) * self.units
