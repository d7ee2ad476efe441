"""What the base class of outputs gives to one that knows no more than its log-probabilities."""

import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import Output
from keras_adaptive.ops.token_weights import token_weights
from tests.support.backends import numpy
from tests.support.refusals import refused

VOCABULARY, DIM = 6, 3


class Linear(Output):
    """A plain softmax, by the book."""

    def __init__(self, vocabulary_size, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size, self.boundaries = vocabulary_size, (0, vocabulary_size)

    def build(self, hidden_shape):
        self.kernel = self.add_weight(shape=(hidden_shape[-1], self.vocabulary_size), name="kernel")

    def compute_log_probs(self, x):
        return ops.log_softmax(ops.matmul(x, self.kernel))

    def compute_nll(self, x, targets):
        return -ops.take_along_axis(self.compute_log_probs(x), targets[:, None], axis=-1)[:, 0]


@pytest.fixture
def output():
    return Linear(VOCABULARY)


@pytest.fixture
def hidden():
    return np.random.default_rng(0).normal(size=(2, 4, DIM)).astype("float32")


def test_two_methods_make_an_output(output, hidden):
    targets = np.arange(8).reshape(2, 4) % VOCABULARY
    weights = np.linspace(0, 1, 8, dtype="float32").reshape(2, 4)
    log_probs = numpy(output.log_probs(hidden))  # the first call builds
    assert log_probs.shape == (2, 4, VOCABULARY) and output.built
    nll = -np.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(numpy(output.nll(hidden, targets)), nll, rtol=1e-6)
    for total in (output.total_nll, output.training_loss):
        np.testing.assert_allclose(numpy(total(hidden, targets, weights)), np.sum(weights * nll), rtol=1e-6)
    output(hidden, targets, weights)
    np.testing.assert_allclose(numpy(output.losses[0]), np.average(nll, weights=weights), rtol=1e-6)
    assert numpy(output.sample(hidden, seed=1)).shape == numpy(output.sample(hidden, 0.5, seed=1)).shape == (2, 4)
    assert output.for_inference() is output


@pytest.mark.once
def test_ranks_are_those_of_a_score(output, hidden):
    output.compute_score = lambda x, targets: (ops.cast(targets, "float32"), targets + 1)
    targets = np.arange(8).reshape(2, 4) % VOCABULARY
    np.testing.assert_array_equal(numpy(output.rank(hidden, targets)), targets + 1)


def test_the_rest_follows_from_the_log_probabilities(output, hidden):
    targets = np.arange(8).reshape(2, 4) % VOCABULARY
    every = numpy(output.log_probs(hidden))
    order = np.argsort(-every, axis=-1)
    log_probs, ids = numpy(output.top_k(hidden, 2))
    np.testing.assert_array_equal(ids, order[..., :2])
    np.testing.assert_allclose(log_probs, np.take_along_axis(every, ids, axis=-1), rtol=1e-6)
    log_probs, ranks = numpy(output.score(hidden, targets))
    np.testing.assert_allclose(log_probs, -numpy(output.nll(hidden, targets)), rtol=1e-6)
    np.testing.assert_array_equal(np.take_along_axis(order, ranks[..., None] - 1, axis=-1)[..., 0], targets)


@pytest.mark.once
def test_targets_and_weights_of_another_shape_are_refused(output, hidden):
    """Some shapes would broadcast, and some have as many elements."""
    message = r"must have the shape \(2, 4\) of the hidden states. Received: "
    for wrong in ((2,), (3, 4), (2, 3), (8,), (2, 4, 1)):
        for method in (output.total_nll, output.nll, output.score, output.rank):
            refused(method, hidden, np.zeros(wrong, "int32"), match=f"`targets` {message}")
    weights = np.ones((2, 1), "float32")
    refused(output.total_nll, hidden, np.zeros((2, 4), "int32"), weights, match=f"`weights` {message}")


def test_weights_of_rows_and_masks():
    targets, mask = np.zeros((2, 3), "int32"), np.array([[True, True, False], [True, False, False]])
    found = numpy(token_weights(targets, np.array([2.0, 3.0], "float32"), None, mask))
    np.testing.assert_array_equal(found, [[2, 2, 0], [3, 0, 0]])
    np.testing.assert_array_equal(numpy(token_weights(targets)), np.ones((2, 3)))
