from collections.abc import Sequence
from typing import Any

import keras

from keras_adaptive.layers.bodies.lstm_layer import LSTMLayer
from keras_adaptive.layers.bodies.recurrent_decoder import RecurrentDecoder


@keras.saving.register_keras_serializable(package="keras_adaptive")
class LSTMDecoder(RecurrentDecoder):
    """Body of long short-term memory layers, as in AWD-LSTM and in LSTMs with projections.

    Without projections all layers but the last have `units` units. The last has `output_dim`, so that its hidden states
    fit tied word vectors. With projections all layers have `units` cells. Their outputs are projected to
    `projection_dim`, or to `output_dim` in the last layer, before they recur and leave the layer. The published models
    set both dimensions to the same number.

    The matrices start from U(±1/√units), as in the published code of AWD-LSTM. The biases start from 0, except for the
    forget gates, whose biases start from 1 as Jozefowicz et al. recommend. Each layer has one vector of biases; the
    published code adds two.

    Args:
        num_layers: Number of layers.
        units: Number of units of all layers but the last; with projections, number of cells of all layers.
        output_dim: Dimension of the hidden states.
        projection_dim: Dimension of the projections of all layers but the last, `None` for no projections.
        weight_dropout: Dropout rate on the hidden-to-hidden matrices (DropConnect), in training.
        dropout: Dropout rate, in training; or three rates, for the input, between layers, and for the hidden states; or
            a `RecurrentDropout`.
        penalties: Strengths of the activation regularization of the hidden states after dropout (AR), and of the
            temporal regularization of their changes before dropout (TAR).

    Call arguments:
        x, training: As in `Body`; training adds the penalties too.

    Raises:
        ValueError: If a number is out of range.

    Reference:
        Merity et al., An Analysis of Neural Language Modeling at Multiple Scales, 2018, section 3; Jozefowicz et al.,
        Exploring the Limits of Language Modeling, 2016, section 3.

    Example:

    >>> body = LSTMDecoder(3, 64, 16, weight_dropout=0.5, dropout=(0.1, 0.25, 0.1))
    >>> x = np.random.normal(size=(2, 6, 16)).astype("float32")
    >>> tuple(body(x).shape)
    (2, 6, 16)
    """

    def __init__(
        self,
        num_layers: int,
        units: int,
        output_dim: int,
        *,
        projection_dim: int | None = None,
        weight_dropout: float = 0.0,
        dropout: float | Sequence[float] = 0.0,
        penalties: tuple[float, float] = (0.0, 0.0),
        **kwargs: Any,
    ) -> None:
        super().__init__(num_layers, units, output_dim, dropout=dropout, penalties=penalties, **kwargs)
        if projection_dim is not None and projection_dim < 1:
            raise ValueError(
                f"`projection_dim` must be at least 1, or None for none. Received: projection_dim={projection_dim}."
            )
        self.projection_dim = projection_dim
        self.weight_dropout = weight_dropout
        sizes: list[tuple[int, int | None]] = [(units, projection_dim)] * (num_layers - 1)
        sizes.append((output_dim, None) if projection_dim is None else (units, output_dim))
        self.recurrent_layers = [
            LSTMLayer(
                cells,
                projection_dim=projected,
                weight_dropout=weight_dropout,
                dtype=self.dtype_policy,
                name=f"layer_{number}",
            )
            for number, (cells, projected) in enumerate(sizes)
        ]

    def get_config(self) -> dict[str, Any]:
        config = {"projection_dim": self.projection_dim, "weight_dropout": self.weight_dropout}
        return {**super().get_config(), **config}
