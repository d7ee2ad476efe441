import os

import keras
import numpy as np
import pytest

from keras_adaptive.callbacks import SaveModels
from tests.support.refusals import refused

pytestmark = pytest.mark.once


def make_model():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile("sgd", loss="mse")
    return model


def end_epochs(model, run_dir, val_losses, **kwargs):
    """Ends epochs that found these losses, with the number of the epoch as the model's weight."""
    callback = SaveModels(run_dir, **kwargs)
    callback.set_model(model)
    callback.on_train_begin()
    for epoch, val_loss in enumerate(val_losses):
        model.set_weights([np.full((1, 1), float(epoch)), np.zeros(1)])
        callback.on_epoch_end(epoch, {"loss": 0.0} if val_loss is None else {"loss": 0.0, "val_loss": val_loss})


def saved_epoch(path):
    return int(keras.saving.load_model(path).get_weights()[0][0, 0])


BEST = [([3.0, 2.0, 1.0], 2), ([3.0, 1.0, 2.0], 1), ([1.0, 2.0, 1.0], 2), ([np.nan, 2.0, np.nan], 1)]


@pytest.mark.parametrize("val_losses, best", [*BEST, ([None, 5.0, None], 1)])
def test_last_and_best_are_kept(tmp_path, val_losses, best):
    end_epochs(make_model(), tmp_path / "run", val_losses)
    assert saved_epoch(tmp_path / "run" / "last.keras") == 2
    assert saved_epoch(tmp_path / "run" / "best.keras") == best
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["best.keras", "last.keras"]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_that_is_not_finite_is_not_written(tmp_path, bad):
    model = make_model()
    end_epochs(model, tmp_path, [1.0])
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    model.set_weights([np.full((1, 1), bad), np.zeros(1)])
    callback = SaveModels(tmp_path, best=1.0)
    callback.set_model(model)
    with pytest.raises(FloatingPointError, match="weight .*kernel is not finite after epoch 2: no model is written"):
        callback.on_epoch_end(1, {"val_loss": 0.5})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_full_disk_is_named(tmp_path):
    (tmp_path / "partial_last.keras").symlink_to("/dev/full")
    refused(end_epochs, make_model(), tmp_path, [1.0], error=OSError, match="No space left on device: .*last.keras")
    assert list(tmp_path.iterdir()) == []


def test_without_validation_there_is_no_best(tmp_path):
    end_epochs(make_model(), tmp_path, [None, np.nan])
    assert [path.name for path in tmp_path.iterdir()] == ["last.keras"]


def test_a_save_that_breaks_leaves_the_one_before(tmp_path, monkeypatch):
    model = make_model()
    end_epochs(model, tmp_path, [1.0])

    def break_off(path):
        with open(path, "wb") as file:
            file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(model, "save", break_off)
    refused(end_epochs, model, tmp_path, [0.5], error=OSError, match="disk full")
    assert saved_epoch(tmp_path / "last.keras") == saved_epoch(tmp_path / "best.keras") == 0


def test_training_that_goes_on_keeps_a_better_best(tmp_path):
    end_epochs(make_model(), tmp_path, [2.0, 1.0])
    end_epochs(make_model(), tmp_path, [1.5], best=1.0)
    assert saved_epoch(tmp_path / "last.keras") == 0
    assert saved_epoch(tmp_path / "best.keras") == 1
    end_epochs(make_model(), tmp_path, [1.5, 1.5, 0.5], best=1.0)
    assert saved_epoch(tmp_path / "best.keras") == 2


def test_the_best_is_in_place_before_the_last(tmp_path, monkeypatch):
    end_epochs(make_model(), tmp_path, [5.0, 4.0])
    replace = os.replace

    def break_off(source, target):
        if os.path.basename(target) == "last.keras":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", break_off)
    with pytest.raises(KeyboardInterrupt):
        end_epochs(make_model(), tmp_path, [3.0])
    assert saved_epoch(tmp_path / "best.keras") == 0
    assert saved_epoch(tmp_path / "last.keras") == 1


def test_fit_saves_the_weights_and_the_optimizer_of_the_epoch(tmp_path):
    model, zeros = make_model(), np.zeros((4, 1))
    how = {"validation_data": (zeros, zeros + 1), "epochs": 2, "verbose": 0}
    model.fit(zeros, zeros + 1, **how, callbacks=[SaveModels(tmp_path)])
    last = keras.saving.load_model(tmp_path / "last.keras")
    np.testing.assert_array_equal(last.get_weights()[1], model.get_weights()[1])
    assert int(keras.ops.convert_to_numpy(last.optimizer.iterations)) == 2
    assert saved_epoch(tmp_path / "best.keras") == 0


def test_a_process_that_does_not_write_only_takes_part(tmp_path, monkeypatch):
    model, saved = make_model(), []
    monkeypatch.setattr(type(model), "save", lambda model, path: saved.append(path))
    end_epochs(model, tmp_path / "run", [3.0, 2.0], writes=False)
    assert len(saved) == 2 and os.listdir(tmp_path) == []


def test_patience_ends_training_and_its_count_goes_on(tmp_path):
    model = make_model()

    def stopped_after(val_losses, state=None, **kwargs):
        callback = SaveModels(tmp_path, **kwargs)
        callback.set_model(model)
        if state:
            callback.set_state(state)
        for number, val_loss in enumerate(val_losses, 1):
            model.stop_training = False
            callback.on_epoch_end(number, {"val_loss": val_loss})
            assert model.stop_training == callback.has_ended
            if model.stop_training:
                return number
        return callback.get_state()

    losses = [3.0, 4.0, 2.0, 2.0, np.nan, 1.0]
    for writes in (True, False):
        assert stopped_after(losses, patience=1, writes=writes) == 2
        assert stopped_after(losses, patience=2, writes=writes) == 5
        assert stopped_after(losses, patience=3, writes=writes) == {"best": 1.0, "since_best": 0}
        assert stopped_after([4.0], {"best": 3.0, "since_best": 1}, patience=2, writes=writes) == 1
    assert stopped_after([4.0] * 9) == {"best": 4.0, "since_best": 8}
    state = {"best": 3.0, "since_best": 0}
    assert stopped_after([4.0, 5.0], state, patience=3) == {"best": 3.0, "since_best": 2}
