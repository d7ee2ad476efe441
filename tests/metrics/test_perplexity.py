import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.metrics import Perplexity, perplexity
from tests.support.refusals import refused


@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 7)), min_size=1, max_size=6),
)
@pytest.mark.once
def test_uneven_batches_equal_one_big_batch(seed, cuts):
    """Batches of any number of rows and any length, padded differently, with and without weights."""
    rng = np.random.default_rng(seed)
    batches = [(rng.exponential(3.0, shape), rng.integers(0, 2, shape)) for shape in cuts]
    batches.append((np.ones((1, 2)), np.ones((1, 2))))
    weighted, plain = Perplexity(), Perplexity()
    for nll, weights in batches:
        weighted.update_state(nll.astype("float32"), weights.astype("float32"))
        plain.update_state(nll.astype("float32"))
    nll, weights = (np.concatenate([array.ravel() for array in column]) for column in zip(*batches, strict=True))
    assert float(weighted.result()) == pytest.approx(np.exp(np.average(nll, weights=weights)), rel=1e-4)
    assert float(plain.result()) == pytest.approx(np.exp(nll.mean()), rel=1e-4)


def test_padding_does_not_count_and_a_reset_forgets():
    metric = Perplexity()
    metric.update_state([[0.0, 1.0], [2.0, 50.0]], sample_weight=[[1.0, 1.0], [1.0, 0.0]])
    assert float(metric.result()) == pytest.approx(np.e)
    metric.reset_state()
    metric.update_state(2.0, sample_weight=5.0)
    assert float(metric.result()) == pytest.approx(np.exp(2))


def test_uniform_guesses_have_the_perplexity_of_the_vocabulary():
    metric = Perplexity()
    metric.update_state(np.full((3, 5), np.log(267_744), "float32"))
    assert float(metric.result()) == pytest.approx(267_744, rel=1e-5)


@pytest.mark.once
def test_it_is_a_keras_metric():
    metric = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(Perplexity("ppl")))
    assert isinstance(metric, Perplexity)
    assert metric.name == "ppl"


@pytest.mark.once
def test_the_perplexity_of_a_loss():
    losses = [0.0, np.float32(1.5), 1e4, np.inf, np.nan]
    np.testing.assert_allclose(list(map(perplexity, losses)), [1.0, np.exp(1.5), np.inf, np.inf, np.nan], rtol=1e-6)


@pytest.mark.parametrize("targets", [None, np.zeros((2, 3), "int32")])
@pytest.mark.once
def test_targets_and_outputs_of_a_model_are_refused(targets):
    message = r"use a `WordModel`.* Received: numbers of axes \[(None|2), 3\]"
    refused(Perplexity().update_state, targets, np.zeros((2, 3, 4), "float32"), match=message)
