import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.optimizer_step import inner_optimizer
from keras_adaptive.optimizers.averaged_sgd import AveragedSGD


class NonMonotonicAveraging(keras.callbacks.Callback):
    """Starts averaging the weights of an `AveragedSGD` when validation no longer improves (NT-ASGD).

    Let `patience` be the patience of the optimizer. A validation starts averaging if its loss is higher than the lowest
    loss of all earlier validations, of which the last `patience` ones are not counted. After that, the averages replace
    the weights from the start of each validation to the end of the epoch, so that the averages are validated and saved.
    Training then continues from the weights.

    List this callback after callbacks that save the model, such as `SaveModels`, and before `Backup`. Pass it to the
    `Backup` as one of its `stateful` callbacks.

    Raises:
        ValueError: At the start of `fit`, if the optimizer is not an `AveragedSGD`.

    Reference:
        Merity, Keskar and Socher, Regularizing and Optimizing LSTM Language Models, ICLR 2018, section 4, algorithm 1,
        and the code published with it.

    Example:

    ```python
    averaging = NonMonotonicAveraging()
    backup = Backup("run/checkpoints", stateful=[averaging])
    model.compile(AveragedSGD(30.0, patience=5))
    saving = keras_adaptive.callbacks.SaveModels("run")
    model.fit(x, y, validation_data=(x_valid, y_valid), epochs=10, callbacks=[saving, averaging, backup])
    ```
    """

    def __init__(self) -> None:
        super().__init__()
        self._val_losses = []  # losses of all validations so far

    def get_state(self) -> dict:
        return {"losses": self._val_losses}

    def set_state(self, state: dict) -> None:
        self._val_losses = list(state["losses"])

    @property
    def _optimizer(self):
        return inner_optimizer(self.model.optimizer)

    def on_train_begin(self, logs: dict | None = None) -> None:
        if not isinstance(self._optimizer, AveragedSGD):
            raise ValueError(
                "`NonMonotonicAveraging` needs an `AveragedSGD`. Received: an optimizer of class "
                f"{type(self._optimizer).__name__}. Compile the model with an `AveragedSGD`."
            )
        if self._optimizer.built:
            self._show(averages=False)  # a file, or a training that stopped in a validation, may hold the averages

    def on_test_begin(self, logs: dict | None = None) -> None:
        self._show(averages=_number(self._optimizer.first_averaged) > 0)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._show(averages=False)
        loss, optimizer = (logs or {}).get("val_loss"), self._optimizer
        if loss is None:
            return
        before = self._val_losses[: -optimizer.patience]
        if before and loss > min(before) and not _number(optimizer.first_averaged):
            optimizer.begin_averaging()
        self._val_losses.append(float(loss))

    def _show(self, averages):
        """Makes the model hold the averages or the weights; exchanges them if it holds the other."""
        optimizer = self._optimizer
        if _number(optimizer.swapped) == averages:
            return
        for weight, average in zip(self.model.trainable_variables, optimizer.averages, strict=True):
            kept = np.array(ops.convert_to_numpy(weight))
            weight.assign(np.array(ops.convert_to_numpy(average)))
            average.assign(kept)
        optimizer.swapped.assign(int(averages))


def _number(variable):
    return int(ops.convert_to_numpy(variable))
