from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_adaptive.backend.checks import check_number_of_layers, check_positive, check_same_shape
from keras_adaptive.layers.bodies.body import Body
from keras_adaptive.layers.bodies.recurrent_dropout import RecurrentDropout
from keras_adaptive.layers.regularization.activation_regularization import ActivationRegularization
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout, in_training
from keras_adaptive.layers.regularization.temporal_activation_regularization import TemporalActivationRegularization
from keras_adaptive.layers.regularization.variational_dropout import VariationalDropout
from keras_adaptive.typing import Shape, Tensor


class RecurrentDecoder(Body):
    """Base class of recurrent bodies, with the dropout and the penalties of AWD-LSTM.

    A subclass sets `recurrent_layers` in its constructor: layers with `build`, `output_dim`,
    `initial_state(batch_size)`, `step(x, state, training)` and `activations_per_token()`. The state of the body is the
    list of their states. It is float32, and its size does not depend on the length of the text, so that streams can
    carry it.

    Args:
        num_layers: Number of recurrent layers.
        units: Number of units of all layers but the last.
        output_dim: Dimension of the hidden states.
        dropout: Dropout rate, in training; or three rates, for the input, between layers, and for the hidden states; or
            a `RecurrentDropout`.
        penalties: Strengths of the activation regularization of the hidden states after dropout (AR), and of the
            temporal regularization of their changes before dropout (TAR).

    Raises:
        ValueError: If a number is out of range.
    """

    def __init__(
        self,
        num_layers: int,
        units: int,
        output_dim: int,
        *,
        dropout: float | Sequence[float] = 0.0,
        penalties: tuple[float, float] = (0.0, 0.0),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(num_layers=num_layers, units=units, output_dim=output_dim)
        check_number_of_layers(num_layers, "num_layers")
        self.num_layers = num_layers
        self.units = units
        self.output_dim = output_dim
        self.dropout = _recurrent_dropout(dropout)
        self.penalties = tuple(penalties)
        policy = {"dtype": self.dtype_policy}
        *rates, variational = self.dropout
        dropout_class = VariationalDropout if variational else SeededDropout
        self._drop_input, self._drop_between, self._drop_output = (dropout_class(rate, **policy) for rate in rates)
        of_activations, of_changes = self.penalties
        self._penalize_activations = ActivationRegularization(of_activations, **policy)
        self._penalize_changes = TemporalActivationRegularization(of_changes, **policy)

    def build(self, input_shape: Shape) -> None:
        for layer in self.recurrent_layers:
            layer.build(input_shape)
            input_shape = (*input_shape[:-1], layer.output_dim)
        self.built = True

    def initial_state(self, batch_size: int, length: int | None = None) -> list[Any]:
        return [layer.initial_state(batch_size) for layer in self.recurrent_layers]

    def step(self, x: Tensor, state: Any, training: bool | None = False) -> tuple[Tensor, Any]:
        state = keras.tree.map_structure(ops.convert_to_tensor, state)
        for tensor in keras.tree.flatten(state):
            check_same_shape(tensor, (x.shape[0], *tensor.shape[1:]), "state", f"a batch of {x.shape[0]} rows")
        y, new_states = ops.cast(x, self.compute_dtype), []
        for number, (layer, layer_state) in enumerate(zip(self.recurrent_layers, state)):
            y = in_training(self._drop_between if number else self._drop_input, y, training)
            y, layer_state = layer.step(y, layer_state, training)
            new_states.append(layer_state)
        y = in_training(self._penalize_changes, y, training)
        y = in_training(self._drop_output, y, training)
        return in_training(self._penalize_activations, y, training), new_states

    def activations_per_token(self, length: int) -> int:
        """Returns the sum over the layers, plus their outputs after dropout."""
        rates = [self._drop_between.rate] * (self.num_layers - 1) + [self._drop_output.rate]
        dropped = sum(layer.output_dim * (rate > 0) for layer, rate in zip(self.recurrent_layers, rates))
        return dropped + sum(layer.activations_per_token() for layer in self.recurrent_layers)

    def get_config(self) -> dict[str, Any]:
        sizes = {"num_layers": self.num_layers, "units": self.units, "output_dim": self.output_dim}
        dropout = {"dropout": self.dropout[:3], "variational": self.dropout.variational}
        penalties = dict(zip(("activation_penalty", "temporal_penalty"), self.penalties))
        return {**super().get_config(), **sizes, **dropout, **penalties}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        config = dict(config)
        dropout = _recurrent_dropout(config.pop("dropout", 0.0))
        dropout = dropout._replace(variational=config.pop("variational", dropout.variational))
        penalties = config.pop("activation_penalty", 0.0), config.pop("temporal_penalty", 0.0)
        return super().from_config({**config, "dropout": dropout, "penalties": penalties})


def _recurrent_dropout(dropout):
    """Returns the `RecurrentDropout` of one rate, three rates, or the values of a `RecurrentDropout`."""
    values = tuple(dropout) if isinstance(dropout, (list, tuple)) else (dropout,) * 3
    if len(values) not in (3, 4):
        raise ValueError(
            "`dropout` must be one rate, or three: for the input, between layers, and for the hidden states; or a "
            f"`RecurrentDropout`. Received: dropout={dropout}."
        )
    return RecurrentDropout(*values)
