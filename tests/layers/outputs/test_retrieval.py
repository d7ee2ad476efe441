"""Recommenders that return ids, as layers and files, and vectors of items for an index."""

from functools import partial

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveRetrieval, AdaptiveSoftmax, CharCNNSoftmax, WordEmbedding
from keras_adaptive.losses import CrossEntropy
from tests.support.backends import numpy, runner
from tests.support.refusals import refused
from tests.support.tiny import saved_and_loaded
from tests.support.weights import built, exact_log_probs, randomize

ITEMS, DIM, CUTOFFS = 20, 8, (5, 9, 15)
HISTORY = np.array([[1, 4, 2, 7], [19, 3, 3, 11], [0, 16, 8, 12]], "int32")


def tied(make_embedding, **kwargs):
    return AdaptiveSoftmax(ITEMS, CUTOFFS, tied_to=make_embedding(ITEMS, DIM), **kwargs)


BANDS = partial(AdaptiveEmbedding, cutoffs=CUTOFFS, factor=2)
SOFTMAXES = {  # and the size of their vectors
    "bands": (partial(AdaptiveSoftmax, ITEMS, CUTOFFS, factor=2), 8 + 4 + 2 + 1 + 3),
    "bands, biases": (partial(AdaptiveSoftmax, ITEMS, CUTOFFS, factor=2, use_bias=True), 15 + 1 + 3),
    "bands, tied": (partial(tied, BANDS), 15 + 3),
    "bands, projected head": (partial(tied, BANDS, tie_projections=(False, True, False, True)), 15 + 3),
    "one table, tied, biases": (partial(tied, WordEmbedding, use_bias=True), 8 + 1 + 3),
    "plain": (partial(AdaptiveSoftmax, ITEMS, ()), 8),
    "plain, bounded, biases": (partial(AdaptiveSoftmax, ITEMS, (), use_bias=True, loss=CrossEntropy(soft_cap=3.0)), 9),
}


def hidden_states():
    return np.random.default_rng(1).normal(size=(3, 4, DIM)).astype("float32")


@pytest.mark.parametrize("kind", SOFTMAXES)
def test_inner_products_are_log_probabilities_up_to_a_number_per_row(kind):
    make, dim = SOFTMAXES[kind]
    layer, hidden = built(make(dtype="float32"), DIM), hidden_states()
    products = runner(layer.retrieval_queries)(hidden).astype("float64") @ layer.retrieval_vectors().T
    assert layer.retrieval_vectors().shape == (ITEMS, dim)
    np.testing.assert_array_equal(np.argsort(-products), numpy(layer.top_k(hidden, ITEMS)[1]))
    if "bounded" not in kind:
        np.testing.assert_allclose(np.ptp(products - exact_log_probs(layer, hidden), axis=-1), 0, atol=2e-5)


@pytest.mark.once
def test_an_index_finds_the_items_of_top_k():
    import faiss

    layer, hidden = built(SOFTMAXES["bands, biases"][0](), DIM), hidden_states()[0]
    vectors = layer.retrieval_vectors()
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    np.testing.assert_array_equal(index.search(numpy(layer.retrieval_queries(hidden)), 7)[1], layer.top_k(hidden, 7)[1])


@pytest.mark.once
def test_vectors_that_do_not_exist_are_refused():
    bounded = AdaptiveSoftmax(ITEMS, CUTOFFS, factor=2, loss=CrossEntropy(soft_cap=3.0))
    refused(bounded.retrieval_vectors, match="call or build the layer first")
    refused(bounded.retrieval_queries, hidden_states(), match="cutoffs=.. or a loss without a bound. .*soft_cap=3.0")
    refused(bounded.retrieval_vectors, match="cutoffs=.. or a loss without a bound. .*soft_cap=3.0")
    words = ["<s>", "<pad>", "</s>", "<unk>", "a", "b"]
    spelled = built(CharCNNSoftmax(words, 4, char_dim=4, filters=(4,), max_bytes=4), DIM)
    assert spelled.retrieval_vectors().shape == (6, DIM)  # computed from the bytes


def recommender(softmax_of, embedding, **kwargs):
    """Returns a model from histories of any length to the best items that are not in them."""
    history = keras.Input((None,), dtype="int32")
    hidden = keras.layers.GRU(DIM)(embedding(history))
    retrieval = AdaptiveRetrieval(softmax_of(embedding), 3, **kwargs)
    return randomize(keras.Model(history, retrieval(hidden, exclude=history)))


def test_a_recommender_is_saved_and_loaded_as_one_model(tmp_path):
    embedding = BANDS(ITEMS, DIM, name="items")
    model = recommender(lambda embedding: AdaptiveSoftmax(ITEMS, CUTOFFS, tied_to=embedding), embedding)
    loaded = saved_and_loaded(model, tmp_path / "recommender.keras")
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    log_probs, ids = model.predict(HISTORY, verbose=0)
    assert ids.shape == (3, 3) and not any(np.intersect1d(*pair).size for pair in zip(HISTORY, ids, strict=True))
    longer = np.concatenate([HISTORY, ids[:, :1]], axis=1)
    assert not any(np.intersect1d(*pair).size for pair in zip(longer, model.predict(longer, verbose=0)[1], strict=True))
    assert [(*symbol.shape, symbol.dtype) for symbol in model.outputs] == [(None, 3, "float32"), (None, 3, "int32")]
    for other in (loaded, copy):
        assert other.layers[-1].softmax.tied_to is other.get_layer("items")
        assert len(other.weights) == len(model.weights)
        found = other.predict(HISTORY, verbose=0)
        np.testing.assert_array_equal(found[1], ids)
        np.testing.assert_allclose(found[0], log_probs, rtol=1e-6)


def test_ids_alone_of_an_untied_softmax(tmp_path):
    softmax = AdaptiveSoftmax(ITEMS, CUTOFFS, factor=2)
    model = recommender(lambda embedding: softmax, WordEmbedding(ITEMS, DIM), return_scores=False)
    loaded = saved_and_loaded(model, tmp_path / "recommender.keras")
    ids = model.predict(HISTORY, verbose=0)
    np.testing.assert_array_equal(loaded.predict(HISTORY, verbose=0), ids)
    hidden = hidden_states()
    allowed = np.arange(ITEMS) % 2 == 0
    found = numpy(loaded.layers[-1](hidden, allowed=allowed))
    np.testing.assert_array_equal(found, numpy(softmax.top_k(hidden, 3, allowed=allowed)[1]))


@pytest.mark.once
def test_wrong_arguments_of_a_retrieval_are_refused():
    refused(AdaptiveRetrieval, keras.layers.Dense(3), match="`softmax` must be an output layer .* Received: a Dense")
    refused(AdaptiveRetrieval, AdaptiveSoftmax(ITEMS, ()), 21, match="`k` must be between 1 and 20. Received: k=21")
