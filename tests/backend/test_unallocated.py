import keras
import numpy as np
import pytest

from keras_adaptive.backend.unallocated import allocate, unallocated
from keras_adaptive.models import transformer_lm
from tests.support.backends import BACKEND
from tests.support.closeness import all_equal
from tests.support.tiny import VOCABULARY, batch


def make():
    sizes = {"dim": 8, "num_blocks": 1, "num_heads": 2, "ffn_dim": 12, "cutoffs": (5,), "factor": 2}
    return transformer_lm(VOCABULARY, dropout=0.5, **sizes)


@pytest.fixture
def model():
    model = unallocated(make)
    allocate(model)
    return model


def test_allocated_weights_are_zeros_until_they_are_set(model):
    expected = make()
    assert [variable.path for variable in model.variables] == [variable.path for variable in expected.variables]
    assert not any(np.any(weight) for weight in model.get_weights())
    model.set_weights(expected.get_weights())
    tokens, targets, _ = batch(3)
    np.testing.assert_array_equal(model.nll(tokens, targets), expected.nll(tokens, targets))


def test_a_model_that_was_allocated_later_trains(model):
    expected = make()
    seeds, of_expected = ([s for s in one.non_trainable_variables if "seed" in s.path] for one in (model, expected))
    assert len(seeds) == len(of_expected) > 0
    for one in (model, expected):
        one.set_weights(expected.get_weights())
        one.compile("sgd", run_eagerly=BACKEND == "tensorflow")
    for seed, other in zip(seeds, of_expected):
        other.assign(np.array(keras.ops.convert_to_numpy(seed)))
    tokens, targets, weights = batch(3)
    losses = [one.train_on_batch(tokens, targets, weights) for one in (model, expected)]
    assert losses[0] == losses[1]
    all_equal(model.get_weights(), expected.get_weights())
