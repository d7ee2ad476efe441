from collections.abc import Callable

import keras
from keras import ops


class SGDR(keras.callbacks.Callback):
    """Sets the learning rate of every update by a schedule.

    The schedule receives `optimizer.iterations`, the number of updates already done. Training that resumes from a saved
    optimizer therefore continues the schedule, and an update that loss scaling skips does not advance it. The learning
    rate of the optimizer must be a plain number. The callback adds `learning_rate`, the rate of the last update, to the
    logs of each batch and each epoch: list it before callbacks that read the logs.

    Args:
        schedule: Function from the number of updates already done, an integer, to a rate: a `CosineRestarts`,
            any other Keras schedule, or a plain function.
        factor: Function without arguments that returns a factor for the rate of the next update, such as the relative
            length of its batch. Optional.

    Raises:
        ValueError: At the start of `fit`, if the model was compiled with more than one step per execution:
            Keras then does not call callbacks before every update.

    Reference:
        Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017.

    Example:

    ```python
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(NAG(learning_rate=1.0), loss="mse")
    model.fit(np.ones((8, 3)), np.ones((8, 1)), callbacks=[SGDR(CosineRestarts(1.0, period=1000, warmup=100))])
    ```
    """

    def __init__(self, schedule: Callable[[int], float], factor: Callable[[], float] | None = None) -> None:
        super().__init__()
        self.schedule = schedule
        self.factor = factor
        self.learning_rate = None

    def on_train_begin(self, logs: dict | None = None) -> None:
        steps = self.model.steps_per_execution
        if steps > 1:
            raise ValueError(
                f"`SGDR` must be called before every update. Received: a model with steps_per_execution={steps}. "
                "Compile it with steps_per_execution=1, or give the schedule to the optimizer as its learning rate."
            )

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        optimizer = self.model.optimizer
        updates = int(ops.convert_to_numpy(optimizer.iterations))
        self.learning_rate = float(self.schedule(updates)) * (self.factor() if self.factor else 1.0)
        optimizer.learning_rate = self.learning_rate

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if logs is not None:
            logs["learning_rate"] = self.learning_rate

    on_epoch_end = on_train_batch_end
