from collections.abc import Callable
from typing import Any

import keras

from keras_adaptive.backend.fused_adam import FusedAdam


@keras.saving.register_keras_serializable(package="keras_adaptive")
class L2Adam(FusedAdam):
    """Implements Adam with an L2 penalty on the weights, which is added to the gradients after clipping.

    The penalty enters the moments of Adam, as the `weight_decay` of `torch.optim.Adam` does. The `weight_decay` of
    `keras.optimizers.Adam` is a different method, which is decoupled from the gradients (AdamW).

    Args:
        learning_rate: A float, a `keras.optimizers.schedules.LearningRateSchedule`, or a callable without
            arguments that returns the rate.
        epsilon: Constant for numerical stability. The default is that of `torch.optim.Adam`, which the published code
            uses.
        l2: Factor of the L2 penalty. `l2` times the weight is added to its gradient, for biases too.
        **kwargs: The other arguments of `keras.optimizers.Adam`.

    Raises:
        ValueError: If `l2` is negative.

    Reference:
        Merity, Keskar and Socher, An Analysis of Neural Language Modeling at Multiple Scales, 2018, table 6, and the
        code published with it.

    Example:

    ```python
    model.compile(L2Adam(1e-3, l2=1.2e-6, global_clipnorm=0.25))
    ```
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule | Callable[[], float] = 0.001,
        *,
        epsilon: float = 1e-8,
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if l2 < 0:
            raise ValueError(f"`l2` must not be negative. Received: l2={l2}. The published models use 1.2e-6.")
        super().__init__(learning_rate, epsilon=epsilon, **kwargs)
        self.l2 = l2

    def get_config(self) -> dict:
        return {**super().get_config(), "l2": self.l2}
