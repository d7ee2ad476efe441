import keras
import numpy as np
import pytest

from keras_adaptive.backend.any_length import of_any_length

BATCHES = [((np.zeros((2, n), "int32"), np.ones(2, bool)), np.zeros((2, n), "float32")) for n in (3, 3, 5)]


@pytest.mark.parametrize("count", [3, None])
def test_batches_of_another_length_may_follow_two_of_one_length(count):
    again = of_any_length(BATCHES, count)
    for found in (again, again, of_any_length((batch for batch in BATCHES), count)):
        assert [tuple(targets.shape) for _, targets in found] == [(2, 3), (2, 3), (2, 5)]


def test_fit_takes_them():
    model = keras.Sequential([keras.Input((None, 1)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse", run_eagerly=True)
    data = [(np.ones((2, n, 1), "float32"), np.ones((2, n, 1), "float32")) for n in (3, 3, 5)]
    history = model.fit(of_any_length(one for one in data), steps_per_epoch=3, verbose=0, shuffle=False)
    assert np.isfinite(history.history["loss"]).all()
