import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.callbacks import Backup, NonMonotonicAveraging, backup
from keras_adaptive.optimizers import AveragedSGD

X = np.array([[1.0], [2.0]], "float32")


def one_weight(**kwargs):
    """A model whose weight w has the loss (3 w - 6)² / 2 on average, in two updates an epoch."""
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile(AveragedSGD(0.05, **kwargs), loss="mse", run_eagerly=keras.config.backend() == "tensorflow")
    model.optimizer.build(model.trainable_variables)
    return model


def number(variable):
    return float(ops.convert_to_numpy(variable).reshape(()))


class Watch(keras.callbacks.Callback):
    """Notes the weight after each update, at each validation and, listed before the averaging, as it is saved."""

    def __init__(self):
        super().__init__()
        self.trained, self.validated, self.saved = [], [], []

    def on_train_batch_end(self, batch, logs=None):
        self.trained.append(number(self.model.trainable_variables[0]))

    def on_test_batch_end(self, batch, logs=None):
        self.validated.append(number(self.model.trainable_variables[0]))

    def on_epoch_end(self, epoch, logs=None):
        self.saved.append(number(self.model.trainable_variables[0]))


def fit(model, epochs, callbacks, first=0):
    data = X, 2 * X
    return model.fit(
        *data, batch_size=1, shuffle=False, validation_data=data, validation_batch_size=2, initial_epoch=first,
        epochs=epochs, verbose=0, callbacks=callbacks,
    )  # fmt: skip


def test_averages_are_validated_and_saved_and_the_weights_are_trained():
    model, watch, averaging = one_weight(patience=1), Watch(), NonMonotonicAveraging()
    averaging.set_state({"losses": [0.0, 9.0]})  # so that it begins after the first validation
    fit(model, 3, [watch, averaging])
    plain, steps = one_weight(), Watch()
    fit(plain, 3, [steps])
    np.testing.assert_allclose(watch.trained, steps.trained, rtol=1e-6)
    means = [watch.trained[1], np.mean(watch.trained[2:4]), np.mean(watch.trained[2:6])]
    np.testing.assert_allclose(watch.validated, means, rtol=1e-6)
    assert watch.saved == watch.validated
    assert number(model.trainable_variables[0]) == watch.trained[-1]


@pytest.mark.parametrize("patience", [1, 2, 5])
@pytest.mark.once
def test_averaging_begins_as_in_the_published_code(patience):
    losses = np.random.default_rng(4).uniform(size=30) + np.linspace(1, 0, 30)
    model, averaging = one_weight(patience=patience), NonMonotonicAveraging()
    averaging.set_model(model)
    averaging.on_train_begin()
    before, expected, begun = [], None, None
    for check, loss in enumerate(losses):
        if expected is None and len(before) > patience and loss > min(before[:-patience]):
            expected = check
        before.append(loss)
        averaging.on_epoch_end(check, {"val_loss": loss})
        if begun is None and number(model.optimizer.first_averaged):
            begun = check
    assert begun == expected is not None


class Killed(BaseException):
    pass


def test_a_training_stopped_in_a_validation_of_averages_ends_the_same(tmp_path):
    """The checkpoint holds exchanged weights and averages, and says so."""

    def train(folder, kill=None):
        model, averaging = one_weight(patience=1), NonMonotonicAveraging()
        averaging.set_state({"losses": [0.0, 9.0]})
        kept = Backup(folder, stateful=[averaging])
        kept.restore(model)

        def stop(batch, logs=None):
            if kept.epoch == kill:
                kept.save()
                kept.wait()
                raise Killed

        callbacks = [averaging, kept, keras.callbacks.LambdaCallback(on_test_batch_end=stop)]
        if kept.step:  # as `trainers.experiments.resume` does
            callbacks = keras.callbacks.CallbackList(callbacks, model=model)
            callbacks.on_train_begin()
            found = model.evaluate(X, 2 * X, batch_size=2, callbacks=callbacks, verbose=0, return_dict=True)
            callbacks.on_epoch_end(kept.epoch, {"val_loss": found["loss"]})
            callbacks.on_train_end()
            callbacks = callbacks.callbacks
        fit(model, 4, callbacks, kept.epoch)
        groups = backup.variables(model)
        return [np.array(ops.convert_to_numpy(one)) for name in ("model", "optimizer") for one in groups[name]]

    whole = train(tmp_path / "whole")
    with pytest.raises(Killed):
        train(tmp_path / "killed", kill=2)
    for found, expected in zip(train(tmp_path / "killed"), whole, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_file_holds_the_averages_and_training_continues_from_the_weights(tmp_path):
    model, watch, averaging, later = one_weight(patience=1), Watch(), NonMonotonicAveraging(), Watch()
    averaging.set_state({"losses": [0.0, 9.0]})
    saving = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: model.save(tmp_path / "last.keras"))
    fit(model, 2, [watch, saving, averaging])
    loaded = keras.saving.load_model(tmp_path / "last.keras")
    assert number(loaded.trainable_variables[0]) == watch.saved[-1] != watch.trained[-1]
    for one in (model, loaded):
        fit(one, 1, [later, NonMonotonicAveraging()])
    assert later.trained[:2] == later.trained[2:]


@pytest.mark.once
def test_another_optimizer_is_refused():
    class Other(keras.optimizers.SGD):
        patience = 5

        def begin_averaging(self):
            raise AssertionError

    model = one_weight()
    for name, optimizer in (("SGD", "sgd"), ("Other", Other())):
        model.compile(optimizer, loss="mse")
        with pytest.raises(ValueError, match=f"needs an `AveragedSGD`. Received: an optimizer of class {name}"):
            fit(model, 1, [NonMonotonicAveraging()])
