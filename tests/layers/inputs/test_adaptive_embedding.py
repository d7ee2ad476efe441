import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveEmbedding
from tests.support import oracle
from tests.support.backends import numpy, runner, weight_gradients
from tests.support.closeness import close
from tests.support.weights import built, embedding_weights, value

IDS = np.array([[0, 4, 5, 11, 12, 39], [39, 5, 4, 3, 11, 12]])


@pytest.mark.parametrize("cutoffs", [(), (5, 12), (5, 12, 39)])
@pytest.mark.parametrize("output_dim", [None, 6])
def test_equals_the_oracle(cutoffs, output_dim):
    embedding = built(AdaptiveEmbedding(40, 16, cutoffs, output_dim=output_dim, factor=2))
    vectors = runner(embedding)(IDS)
    assert vectors.shape == (2, 6, output_dim or 16)
    np.testing.assert_allclose(vectors, oracle.adaptive_embedding(IDS, *embedding_weights(embedding)), atol=5e-6)


@pytest.mark.parametrize("cutoffs, output_dim", [((), 6), ((5, 12), None), ((5, 12), 6)])
def test_every_gradient_is_that_of_the_oracle(cutoffs, output_dim):
    embedding = built(AdaptiveEmbedding(40, 16, cutoffs, output_dim=output_dim, factor=2))
    variables = embedding.trainable_variables
    upstream = np.random.default_rng(1).normal(size=(*IDS.shape, output_dim or 16)).astype("float32")
    _, gradients = weight_gradients(lambda: ops.sum(ops.multiply(embedding(IDS), upstream)), variables)

    def truth(*arrays):
        arrays = dict(zip(map(id, variables), arrays))
        weights = embedding_weights(embedding, lambda variable: arrays[id(variable)])
        return np.sum(upstream * oracle.adaptive_embedding(IDS, *weights))

    close(gradients, oracle.gradients(truth, map(value, variables)), 1e-6)


@pytest.mark.once
def test_attributes_of_the_public_contract():
    embedding = built(AdaptiveEmbedding(40, 16, (5, 12), output_dim=6))
    assert [tuple(table.shape) for table in embedding.tables] == [(5, 16), (7, 4), (28, 1)]
    assert [tuple(projection.shape) for projection in embedding.projections] == [(16, 6), (4, 6), (1, 6)]
    assert len(embedding.trainable_variables) == 6


@pytest.mark.once
def test_starting_values():
    embedding = AdaptiveEmbedding(3000, 64, (1000,))
    embedding.build()
    for table, dim in zip(embedding.tables, (64, 16), strict=True):
        np.testing.assert_allclose(np.std(numpy(table.value)), dim**-0.5, rtol=0.02)
    bound = np.sqrt(6 / (64 + 64))
    projection = numpy(embedding.projections[0].value)
    assert 0.9 * bound < np.abs(projection).max() <= bound


def test_ids_outside_the_vocabulary_give_zero_vectors():
    embedding = AdaptiveEmbedding(40, 16, (5, 12))
    assert not numpy(embedding(np.array([40, -1, 1000]))).any()


def test_rank_of_ids_is_free():
    embedding = AdaptiveEmbedding(40, 16, (5, 12))
    assert embedding(np.array(7)).shape == (16,)
    assert embedding(np.array([[[7], [8]]])).shape == (1, 2, 1, 16)
    assert embedding.compute_output_shape((3, None)) == (3, None, 16)


def test_mixed_precision_stays_close():
    keras.config.set_dtype_policy("mixed_bfloat16")
    embedding = AdaptiveEmbedding(40, 16, (5, 12))
    vectors = embedding(IDS)
    assert keras.backend.standardize_dtype(vectors.dtype) == "bfloat16"
    expected = oracle.adaptive_embedding(IDS, *embedding_weights(embedding))
    np.testing.assert_allclose(numpy(vectors).astype("float64"), expected, atol=0.02 * np.abs(expected).max())


def test_only_sizes_are_given_by_position():
    """The twin `AdaptiveSoftmax` has another argument after the cutoffs."""
    with pytest.raises(TypeError, match="positional argument"):
        AdaptiveEmbedding(40, 16, (5, 12), 4)
