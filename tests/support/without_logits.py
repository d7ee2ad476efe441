"""One training of a model as it is and of the same model without its logits, and what both must share."""

import keras
import pytest

from keras_adaptive.models import without_logits
from tests.support.backends import BACKEND
from tests.support.closeness import all_close


def with_and_without(make, x, y, weights, *args, epochs=1, batch_size=4, **how):
    """Returns the logs of `fit` and `evaluate`, and the weights after them, with and without logits."""
    results = []
    for model in (make(), without_logits(make())):
        model.compile(keras.optimizers.SGD(0.5), *args, run_eagerly=BACKEND == "tensorflow", **how)
        data = {"sample_weight": weights, "batch_size": batch_size, "verbose": 0}
        logs = model.fit(x, y, epochs=epochs, shuffle=False, **data).history
        known = model.evaluate(x, y, return_dict=True, **data)
        results.append(({name: values[-1] for name, values in logs.items()}, known, model.get_weights()))
    return results


def assert_equal(plain, ours):
    """The logs that the plain model has, and all weights, are equal."""
    for of_plain, of_ours in zip(plain[:2], ours[:2]):
        assert {name: of_ours[name] for name in of_plain} == pytest.approx(of_plain, rel=1e-5)
    all_close(ours[2], plain[2], atol=1e-5)
