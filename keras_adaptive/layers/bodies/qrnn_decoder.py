from collections.abc import Sequence
from typing import Any, Self

import keras

from keras_adaptive.layers.bodies.qrnn_layer import QRNNLayer
from keras_adaptive.layers.bodies.recurrent_decoder import RecurrentDecoder


@keras.saving.register_keras_serializable(package="keras_adaptive")
class QRNNDecoder(RecurrentDecoder):
    """Body of quasi-recurrent layers, as in AWD-QRNN.

    A layer computes its gates from its input only, all time steps at once. Only the pooling
    c_t = f_t·z_t + (1 − f_t)·c_{t−1} runs over time, without a matrix product.

    All layers but the last have `units` units. The last has `output_dim`, so that its hidden states fit tied word
    vectors. The weights of a layer start from U(±1/√n) for n inputs.

    Args:
        num_layers: Number of layers.
        units: Number of units of all layers but the last.
        output_dim: Dimension of the hidden states.
        window: Window of the first layer in tokens, 1 or 2. The other layers have a window of 1, as in the published
            code, whose first layer has 2.
        zoneout: Probability that a unit keeps its previous value in a time step, in training. Evaluation scales the
            share of new values by 1 − `zoneout`.
        weight_dropout: Dropout rate on the input matrices (DropConnect), in training.
        dropout: Dropout rate, in training; or three rates, for the input, between layers, and for the hidden states; or
            a `RecurrentDropout`.
        penalties: Strengths of the activation regularization of the hidden states after dropout (AR), and of the
            temporal regularization of their changes before dropout (TAR).

    Call arguments:
        x, training: As in `Body`; training adds the penalties too.

    Raises:
        ValueError: If a number is out of range.

    Reference:
        Bradbury et al., Quasi-Recurrent Neural Networks, ICLR 2017; Merity et al., An Analysis of Neural Language
        Modeling at Multiple Scales, 2018, section 3.

    Example:

    >>> body = QRNNDecoder(4, 64, 16, window=2, dropout=0.1)
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
        window: int = 1,
        zoneout: float = 0.0,
        weight_dropout: float = 0.0,
        dropout: float | Sequence[float] = 0.0,
        penalties: tuple[float, float] = (0.0, 0.0),
        **kwargs: Any,
    ) -> None:
        super().__init__(num_layers, units, output_dim, dropout=dropout, penalties=penalties, **kwargs)
        if window not in (1, 2):
            raise ValueError(f"`window` must be 1 or 2. Received: window={window}.")
        self.window = window
        self.zoneout = zoneout
        self.weight_dropout = weight_dropout
        self.recurrent_layers = [
            QRNNLayer(
                units if number < num_layers - 1 else output_dim,
                window=window if number == 0 else 1,
                zoneout=zoneout,
                weight_dropout=weight_dropout,
                dtype=self.dtype_policy,
                name=f"layer_{number}",
            )
            for number in range(num_layers)
        ]

    def get_config(self) -> dict[str, Any]:
        config = {"window": self.window, "zoneout": self.zoneout, "weight_dropout": self.weight_dropout}
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        # Files may hold the former argument `output_gate`, which was True by default.
        return super().from_config({name: value for name, value in config.items() if name != "output_gate"})
