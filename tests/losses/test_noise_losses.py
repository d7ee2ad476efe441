"""Losses on noise words and the kinds of noise, as a softmax is trained on them, against formulas in float64."""

import warnings
from functools import partial

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveSoftmax, CharCNNSoftmax, SampledSoftmax, WordEmbedding
from keras_adaptive.layers.outputs.unsorted_ids import warn_if_unsorted
from keras_adaptive.layers.regularization.seeds import micro_batch
from keras_adaptive.losses import GBCE, NCE, CorrectedLogQ, ImportanceSampling
from keras_adaptive.models import LanguageModel
from keras_adaptive.ops.sampling import DrawnNoise, InBatchNoise, LogUniform, Unigram
from tests.support import oracle
from tests.support.backends import BACKEND, MODES, numpy, runner, weight_gradients
from tests.support.closeness import close
from tests.support.refusals import refused
from tests.support.tiny import batch
from tests.support.toy_body import ToyBody
from tests.support.weights import built, value

WORDS, DIM, SAMPLES = 20, 4, 6
COUNTS = np.arange(WORDS)[::-1] ** 2
TARGETS = np.array([4, 0, 5, 4, -1, 8, 14, 4, 19, WORDS, 0, 3], "int32")
WEIGHTS = np.array([1, 0.5, 2, 1, 1, 0, 3, 1, 0.25, 1, 2, 1], "float32")  # 8 has no weight
HIDDEN = np.random.default_rng(1).normal(size=(len(TARGETS), DIM)).astype("float32")
COUNTED = np.where((TARGETS >= 0) & (TARGETS < WORDS) & (WEIGHTS != 0), TARGETS, -1)
UNIFORM_BETA = 1 - 0.75 * (1 - SAMPLES / (WORDS - 1))


def gbce(beta, x, table, bias, targets, weights, sampled):
    uncorrected = sampled[0], np.ones(len(targets)), np.ones(len(sampled[0]))
    sums = oracle.sampled_binary_cross_entropy(x, table, bias, targets, weights, uncorrected, beta)
    return sums / (SAMPLES + 1)


LOSSES = {
    "importance sampling": (partial(ImportanceSampling, noise="uniform"), oracle.sampled_cross_entropy),
    "corrected": (CorrectedLogQ, oracle.corrected_log_q),
    "corrected, uniform": (partial(CorrectedLogQ, noise="uniform"), oracle.corrected_log_q),
    "corrected, unigram": (partial(CorrectedLogQ, counts=COUNTS), oracle.corrected_log_q),
    "gBCE": (GBCE, partial(gbce, UNIFORM_BETA)),
    "BCE": (partial(GBCE, t=0.0, noise="log_uniform"), partial(gbce, 1.0)),
    "calibrated": (partial(GBCE, t=1.0, counts=COUNTS), partial(gbce, SAMPLES / (WORDS - 1))),
    "corrected, in batch": (partial(CorrectedLogQ, noise="in_batch"), oracle.corrected_log_q),
    "in batch": (partial(ImportanceSampling, noise="in_batch", counts=COUNTS), oracle.sampled_cross_entropy),
}


def made(loss, dtype="float32"):
    return built(AdaptiveSoftmax(WORDS, (), use_bias=True, loss=loss, dtype=dtype), DIM, 3)


def in_batch(counts, num_samples=SAMPLES):
    """The noise words and the expected counts of all words, by the definition."""
    active = COUNTED[COUNTED >= 0]
    ids, tries = [], 0
    for target in active:
        if len(ids) < num_samples:
            tries += 1
            ids += [target] if target not in ids else []
    shares = np.bincount(active, minlength=WORDS) / len(active)
    probabilities = shares if counts is None else np.maximum(counts, 1) / np.maximum(counts, 1).sum()
    return np.sort(ids), 1 - (1 - probabilities) ** tries


def sampled_values(loss, source):
    """The noise of the first update, in float64."""
    if loss.noise == "in_batch":
        ids, counts = in_batch(loss.counts)
        return ids, np.where(COUNTED >= 0, counts[COUNTED], 1.0), counts[ids]
    draw = lambda targets: source.draw(targets, None, keras.random.SeedGenerator(loss.seed))  # noqa: E731
    ids, of_targets, of_noise = runner(draw)(np.where(TARGETS < WORDS, TARGETS, -1).astype("int32"))
    return ids, of_targets.astype("float64"), of_noise.astype("float64")


@pytest.mark.parametrize(
    "name, mode", [*((name, MODES[0]) for name in LOSSES), *(("corrected, in batch", mode) for mode in MODES[1:])]
)
def test_value_and_gradients(name, mode):
    make, formula = LOSSES[name]
    layer = made(make(SAMPLES, seed=5))
    variables = [layer.tables[0], layer.bias]
    total = lambda hidden: layer.training_loss(hidden, TARGETS, WEIGHTS)  # noqa: E731
    found, (of_table, of_bias, of_hidden) = weight_gradients(total, variables, [HIDDEN], mode)
    sampled = sampled_values(layer.loss, layer.noise)
    arrays = [array.astype("float64") for array in (HIDDEN, value(layer.tables[0]), value(layer.bias))]
    whole = lambda x, table, bias: formula(x, table, bias, COUNTED, WEIGHTS, sampled)  # noqa: E731
    np.testing.assert_allclose(found, whole(*arrays), rtol=2e-6)
    close([of_hidden, of_table, of_bias], oracle.gradients(whole, arrays), 2e-6)
    exact = numpy(layer.total_nll(HIDDEN, TARGETS, WEIGHTS))
    np.testing.assert_allclose(numpy(layer.training_loss(HIDDEN, TARGETS, WEIGHTS, training=False)), exact, rtol=1e-6)


def test_the_gradient_of_a_well_predicted_target_is_finite():
    """The weight 1 − P is 0, and the logarithm that it multiplies is infinite."""
    layer = made(CorrectedLogQ(SAMPLES, noise="uniform", seed=1))
    layer.bias.assign(np.where(np.arange(WORDS) == 4, 1e4, 0.0))
    total = lambda hidden: layer.training_loss(hidden, np.full(3, 4, "int32"))  # noqa: E731
    loss, gradients = weight_gradients(total, [layer.tables[0], layer.bias], [HIDDEN[:3]])
    assert loss == 0 and all(np.abs(gradient).max() < 1e-20 for gradient in gradients)


@pytest.mark.parametrize("make", [CorrectedLogQ, GBCE, partial(CorrectedLogQ, noise="in_batch")])
def test_narrow_hidden_states(make):
    narrow, wide = (made(make(SAMPLES, seed=1), dtype) for dtype in ("mixed_bfloat16", "float32"))
    total = lambda layer, hidden: layer.training_loss(hidden, TARGETS, WEIGHTS)  # noqa: E731
    losses = [runner(partial(total, layer))(HIDDEN) for layer in (narrow, wide)]
    np.testing.assert_allclose(*losses, rtol=2e-2)


def test_batches_with_fewer_targets_than_noise_words():
    source = InBatchNoise(SAMPLES)
    draw = lambda targets, weights: source.draw(targets, weights, None)  # noqa: E731
    sampled = runner(draw)(np.array([7, -1, 7, 3, 9], "int32"), np.array([1, 1, 1, 1, 0], "float32"))
    ids, of_targets, of_noise = sampled
    assert ids[of_noise > 0].tolist() == [3, 7]
    expected = 1 - (1 - np.array([1, 2]) / 3) ** 3
    np.testing.assert_allclose(of_noise[of_noise > 0], expected, rtol=1e-6)
    np.testing.assert_allclose(of_targets[[3, 0]], expected, rtol=1e-6)
    nothing = runner(draw)(np.full(5, -1, "int32"), np.ones(5, "float32"))
    assert not nothing[2].any() and np.isfinite(nothing[1]).all()


def test_replicas_share_the_targets_of_the_batch(monkeypatch):
    draw = lambda targets, weights: InBatchNoise(4).draw(targets, weights, None)  # noqa: E731
    whole = runner(draw)(TARGETS[:10] % WORDS, WEIGHTS[:10])
    monkeypatch.setattr(
        "keras_adaptive.ops.sampling.gather_over_replicas",
        lambda ids: ops.convert_to_tensor(np.where(WEIGHTS[:10] != 0, TARGETS[:10] % WORDS, -1)),
    )
    ids, of_targets, of_noise = runner(draw)(TARGETS[:5] % WORDS, WEIGHTS[:5])
    np.testing.assert_array_equal(ids, whole[0])
    np.testing.assert_allclose(of_targets, whole[1][:5])
    np.testing.assert_allclose(of_noise, whole[2])


def test_noise_from_the_batch_refuses_micro_batches():
    layer = made(CorrectedLogQ(SAMPLES, noise="in_batch"))
    with micro_batch(1):
        refused(layer.training_loss, HIDDEN, TARGETS, match="train with micro_batches=1, or choose noise from a dist")


def test_a_model_is_trained_and_its_file_holds_the_loss(tmp_path):
    loss = CorrectedLogQ(SAMPLES, noise="in_batch", counts=COUNTS)
    tokens, targets, weights = batch(4)
    model = LanguageModel(WordEmbedding(WORDS, DIM), ToyBody(DIM), AdaptiveSoftmax(WORDS, (), loss=loss))
    model.compile(keras.optimizers.Adagrad(0.5), run_eagerly=BACKEND == "tensorflow")
    losses = [model.train_on_batch(tokens, targets, weights, return_dict=True)["loss"] for _ in range(9)]
    assert losses[-1] < losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.word_output.loss.get_config() == model.word_output.loss.get_config()
    np.testing.assert_array_equal(loaded.word_output.top_k(HIDDEN, 3)[1], model.word_output.top_k(HIDDEN, 3)[1])


@pytest.mark.once
def test_configurations_of_earlier_versions():
    for config, noise in (({"counts": None}, "log_uniform"), ({"counts": COUNTS.tolist()}, "unigram")):
        assert NCE.from_config({"num_samples": 3, "seed": 1, **config}).noise == noise
    words = ["<s>", "<pad>", "</s>", "<unk>", "a"]
    layer = CharCNNSoftmax(words, CorrectedLogQ(3, noise="uniform"), filters=(2,), char_dim=2)
    assert CharCNNSoftmax.from_config(layer.get_config()).get_config() == layer.get_config()
    old = {**layer.get_config(), "loss": "nce", "num_samples": 3, "counts": [1] * 5, "seed": 2}
    assert CharCNNSoftmax.from_config(old).loss.get_config() == NCE(3, counts=[1] * 5, seed=2).get_config()
    assert "noise" not in SampledSoftmax(WORDS, 3, counts=COUNTS).get_config()


@pytest.mark.once
def test_sources_of_noise():
    """Uniform noise needs neither a table nor an order of the ids; its configuration is of constant size."""
    loss = CorrectedLogQ(SAMPLES, noise="uniform", seed=1)
    assert loss.get_config() == {"num_samples": SAMPLES, "seed": 1, "noise": "uniform", "counts": None}
    kinds = [type(make(SAMPLES).source(WORDS).distribution) for make in (NCE, partial(NCE, counts=COUNTS))]
    assert kinds == [LogUniform, Unigram] and isinstance(loss.source(WORDS), DrawnNoise)


@pytest.mark.once
def test_only_log_uniform_noise_relies_on_the_order_of_the_ids():
    unsorted = WORDS - np.minimum(np.random.default_rng(0).geometric(0.3, 3_000), WORDS)
    for noise, expected in (("uniform", 0), ("in_batch", 0), ("log_uniform", 1)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            warn_if_unsorted(keras.Sequential(), made(CorrectedLogQ(SAMPLES, noise=noise)), None, unsorted)
        assert len(found) == expected


@pytest.mark.once
def test_wrong_arguments():
    refused(NCE, 4, noise="in_batch", match="`noise` of NCE must be one of log_uniform, uniform, unigram. Received")
    refused(GBCE, 4, noise="popular", match="`noise` of GBCE must be one of uniform, log_uniform, unigram. Received")
    message = "`counts` must be given with `unigram` noise, may be given with `in_batch` noise"
    refused(CorrectedLogQ, 4, noise="unigram", match=message)
    refused(CorrectedLogQ, 4, noise="uniform", counts=COUNTS, match=message)
    refused(GBCE, 4, t=1.5, match="`t` must be from 0 to 1. Received: t=1.5")
    refused(made, GBCE(WORDS), match=f"`num_samples` of GBCE must be below `vocabulary_size`, {WORDS}")
