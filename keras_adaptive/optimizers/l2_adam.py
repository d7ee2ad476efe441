import keras

from keras_adaptive.backend.fused_adam import FusedAdam


@keras.saving.register_keras_serializable(package="keras_adaptive")
class L2Adam(FusedAdam):
    """Adam with an L2 penalty on the weights, added to the gradient after clipping.

    The penalty passes through the moments of Adam, as the `weight_decay` of `torch.optim.Adam` does. The `weight_decay`
    of `keras.optimizers.Adam` is another method: it is decoupled from the gradient (AdamW).

    Reference:
        Merity, Keskar and Socher, An Analysis of Neural Language Modeling at Multiple Scales (2018), table 6, and the
        code published with it.

    Args:
        learning_rate: As in `keras.optimizers.Adam`.
        epsilon: As in `keras.optimizers.Adam`, with the default of `torch.optim.Adam`, which the published code uses.
        l2: Factor of every weight, biases included, in its gradient.
        **kwargs: The other arguments of `keras.optimizers.Adam`.

    Raises:
        ValueError: If `l2` is negative.

    Example:

    ```python
    model.compile(L2Adam(1e-3, l2=1.2e-6, global_clipnorm=0.25))
    ```
    """

    def __init__(self, learning_rate=0.001, *, epsilon=1e-8, l2=0.0, **kwargs):
        if l2 < 0:
            raise ValueError(f"`l2` must not be negative. Received: l2={l2}. The published models use 1.2e-6.")
        super().__init__(learning_rate, epsilon=epsilon, **kwargs)
        self.l2 = l2

    def get_config(self):
        return {**super().get_config(), "l2": self.l2}
