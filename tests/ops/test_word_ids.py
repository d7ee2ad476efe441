"""Ids and weights reach every input and every output as they are, whatever their dtype and the dtype policy."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveSoftmax, WordEmbedding
from keras_adaptive.ops.word_ids import check_ids, count_outside, word_ids
from tests.support.backends import BACKEND, numpy, runner
from tests.support.refusals import refused
from tests.support.weights import built
from tests.support.word_parts import inputs, outputs

pytestmark = pytest.mark.usefixtures("one_number_of_slots")

WORDS = ["<s>", "<pad>", "</s>", "<unk>", *map(str, range(2096))]
DIM, CUTOFFS = 8, (5, 300)
INPUTS, OUTPUTS = inputs(WORDS, DIM, CUTOFFS), outputs(WORDS, DIM, CUTOFFS)
IDS = np.array([[4, 257, 2051, 2099], [301, 5, 511, 2]], "int32")  # bfloat16 and float16 round some of them
POLICIES = ["mixed_bfloat16", "mixed_float16"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", INPUTS)
def test_inputs_read_ids_in_floats(name, policy):
    keras.config.set_dtype_policy(policy)
    layer = INPUTS[name]()
    expected = numpy(layer(IDS))
    assert expected.dtype == layer.compute_dtype
    floats = IDS.astype("float32")
    ids = keras.Input((None,))  # float32, as everywhere in Keras
    models = [layer, keras.Model(ids, layer(ids)), keras.Sequential([ids, layer])]
    for model in models:
        np.testing.assert_array_equal(numpy(model(floats)), expected)
    np.testing.assert_array_equal(numpy(models[1](ops.convert_to_tensor(floats))), expected)
    np.testing.assert_array_equal(numpy(layer(floats.astype("float64"))), expected)


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_read_targets_in_floats_and_weights_of_any_size(name):
    keras.config.set_dtype_policy("mixed_float16")  # which can hold neither the targets nor most of the weights
    layer, random = OUTPUTS[name](), np.random.default_rng(0)
    layer.normalized = False  # an LSTM of characters would compute all words
    built(layer, DIM)
    states, targets, shares = keras.Input((None, DIM)), keras.Input((None,)), keras.Input((None,))
    model = keras.Model([states, targets, shares], layer(states, targets, weights=shares))

    def losses(hidden, ids, floats, weights):
        model([hidden, floats, weights])
        functional = layer.losses[-1]
        layer(hidden, floats, weights)
        return layer.nll(hidden, ids), layer.nll(hidden, floats), functional, layer.losses[-1]

    run, hidden = runner(losses), random.normal(size=(*IDS.shape, DIM)).astype("float32")
    weights = np.array([[1, 0, 2, 1], [3, 0, 1, 1]], "float32")
    for factor in (1.0, 1e5, 1e-8, 1e30, 1e-30):
        nll, of_floats, *means = run(hidden, IDS, IDS.astype("float32"), weights * np.float32(factor))
        np.testing.assert_array_equal(of_floats, nll)
        np.testing.assert_allclose(means, np.sum(nll * weights) / np.sum(weights), rtol=1e-5)


@pytest.mark.parametrize("make", [lambda: WordEmbedding(2100, 4), lambda: AdaptiveSoftmax(2100, ())])
def test_dtypes_that_round_ids_are_refused(make):
    layer, ids = make(), ops.cast(IDS, "bfloat16")
    arguments = [ids] if isinstance(layer, WordEmbedding) else [np.ones((*IDS.shape, DIM), "float32"), ids]
    with pytest.raises(ValueError, match=r"Ids of 2,100 words must be .* Received: dtype=bfloat16\."):
        layer(*arguments)


OUTSIDE = {
    "int64": np.array([2**32 + 5, -(2**32) + 5, 600, -1], "int64"),
    "uint64": np.array([2**32 + 5, 2**64 - 1, 2**63 + 5, 600], "uint64"),
    "uint32": np.array([2**31 + 5, 2**32 - 1, 600, 601], "uint32"),
    "float64": np.array([2.0**32 + 5, np.nan, np.inf, -np.inf, -1.0, 4.5, 1e300], "float64"),
    "float32": np.array([2.0**32, np.nan, np.inf, -np.inf, -1.0, 4.5, 600.0], "float32"),
}
TENSORS = {  # the dtypes of tensors of Keras
    "tensorflow": [*OUTSIDE],
    "jax": ["uint32", "float32"],
    "torch": ["int64", "uint32", "float64", "float32"],
}[BACKEND]


@pytest.mark.parametrize("dtype", OUTSIDE)
def test_what_is_outside_stays_outside(dtype):
    ids = np.concatenate([np.array([5, 599], dtype), OUTSIDE[dtype]])
    expected = [5, 599] + [-1] * len(OUTSIDE[dtype])
    found = word_ids(ids, 600)
    assert isinstance(found, np.ndarray) and found.dtype == "int32"
    np.testing.assert_array_equal(found, expected)
    if dtype in TENSORS:
        found = word_ids(ops.convert_to_tensor(ids), 600)
        assert keras.backend.standardize_dtype(found.dtype) == "int32"
        np.testing.assert_array_equal(numpy(found), expected)


@pytest.mark.once
def test_ids_are_returned_as_int32():
    ids = check_ids([[0, 9], [3, 4]], 10)
    assert ids.dtype == "int32"
    np.testing.assert_array_equal(ids, [[0, 9], [3, 4]])


@pytest.mark.once
def test_ids_outside_the_vocabulary_count_if_they_have_a_weight():
    ids, weights = np.array([-1, 5, 7, 4, 6], "int32"), np.array([0.5, 1.0, 0.0, 2.0, 1.0], "float32")
    assert float(count_outside(ids, 5, weights)) == 3.0
    assert float(count_outside(ids, 5)) == 4.0


@pytest.mark.once
@pytest.mark.parametrize(
    "ids, message",
    [
        ([[0, 10]], r"`targets` must be ids from 0 to 9: .* Received: the id 10 at \(0, 1\)"),
        ([[0, 1], [-1, 0]], r"Received: the id -1 at \(1, 0\)"),
        ([[0.5]], "`targets` must be integers. Received: dtype=float64"),
        ([[2**40]], "Received: the id 1099511627776"),
    ],
)
def test_ids_outside_are_refused(ids, message):
    refused(check_ids, ids, 10, "targets", match=message)
