from typing import Any

from keras import ops

from keras_adaptive.layers.initializers import fan_in_uniform, open_forget_gates
from keras_adaptive.layers.quantizable import Quantizable
from keras_adaptive.layers.regularization.seeded_dropout import in_training
from keras_adaptive.layers.regularization.weight_drop import WeightDrop
from keras_adaptive.ops.quantized_matrix import floats
from keras_adaptive.ops.recurrence import lstm
from keras_adaptive.typing import Shape, Tensor


class LSTMLayer(Quantizable):
    """A layer of an `LSTMDecoder`: the weights of `ops.lstm`, with DropConnect.

    The matrices start from U(±1/√units). The biases start from 0, except for the forget gates, which start from 1.

    Args:
        units: Number of cells.
        projection_dim: Dimension to which the output of the cells is projected, `None` for no projection.
        weight_dropout: Dropout rate on `recurrent_kernel` (DropConnect), in training.

    Attributes:
        output_dim: Dimension of the output.
        kernel: Variable (input_dim, 4·units), the gates i, f, g and o in this order.
        recurrent_kernel: Variable (output_dim, 4·units).
        bias: Variable (4·units,).
        projection: Variable (units, output_dim), `None` without a projection.
    """

    matrices = ("kernel", "recurrent_kernel", "projection")

    def __init__(
        self, units: int, *, projection_dim: int | None = None, weight_dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.output_dim = projection_dim or units
        self.projection = None
        self._projected = projection_dim is not None
        self._drop = WeightDrop(weight_dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        self.kernel = self._matrix("kernel", input_shape[-1], 4 * self.units)
        self.recurrent_kernel = self._matrix("recurrent_kernel", self.output_dim, 4 * self.units)
        self.bias = self.add_weight(shape=(4 * self.units,), initializer=open_forget_gates, name="bias")
        if self._projected:
            self.projection = self._matrix("projection", self.units, self.output_dim)
        self.built = True

    def _matrix(self, name, *shape):
        return self.add_matrix(shape, fan_in_uniform(self.units), name)

    def initial_state(self, batch_size: int) -> Any:
        """Returns `(h, c)` before the first token: zeros (batch, output_dim) and (batch, units), float32."""
        return tuple(ops.zeros((batch_size, size), "float32") for size in (self.output_dim, self.units))

    def step(self, x: Tensor, state: Any, training: bool | None = False) -> tuple[Tensor, Any]:
        """Returns `(y, state)` for the next tokens, as `Body.step` does."""
        cast = lambda variable: ops.cast(floats(variable), self.compute_dtype)  # noqa: E731
        recurrent_kernel = in_training(self._drop, cast(self.recurrent_kernel), training)
        projection = None if self.projection is None else cast(self.projection)
        h, c = state
        y, h, c = lstm(x, cast(self.kernel), recurrent_kernel, cast(self.bias), h, c, projection)
        return y, (h, c)

    def activations_per_token(self) -> int:
        """Counts four gates, the cells and the output."""
        return 5 * self.units + self.output_dim
