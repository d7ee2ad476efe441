import keras
import pytest

from keras_adaptive.callbacks import TerminateOnNonFinite
from tests.support.refusals import refused

pytestmark = pytest.mark.once

GOOD, NAN, OVERFLOW = ({"loss": loss, "gradient_norm": norm} for loss, norm in ((2, 3), (2, float("nan")), (2, 1e999)))


def follow(updates, limit=3, state=None):
    """Goes through the logs of updates; returns the callback."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.25))
    callback = TerminateOnNonFinite(limit)
    callback.set_model(model)
    if state:
        callback.set_state(state)
    for batch, logs in enumerate(updates):
        callback.on_train_batch_end(batch, logs)
    return callback


def test_only_so_many_in_a_row_end_training():
    bad = [NAN, OVERFLOW, {"loss": float("inf")}]
    follow([*bad[:2], GOOD, *bad[:2], {"loss": 1.0}, *bad[:2]])
    message = "3 updates in a row, after 0 good ones, .* loss inf, gradient norm 0 and learning rate 0.25. Lower the"
    refused(follow, [GOOD, *bad], match=message, error=FloatingPointError)


def test_counting_goes_on():
    state = follow([NAN, NAN]).get_state()
    follow([GOOD, NAN, NAN], state=state)
    refused(follow, [NAN], state=state, match="loss 2, gradient norm nan", error=FloatingPointError)
