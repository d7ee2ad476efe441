"""Losses of rows, against formulas in float64."""

from functools import partial

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveSoftmax, CharLSTMSoftmax, WordEmbedding
from keras_adaptive.losses import CrossEntropy, ImportanceSampling, RowLoss
from keras_adaptive.models import LanguageModel
from keras_adaptive.ops import linear_cross_entropy
from tests.support import oracle, tiny
from tests.support.backends import BACKEND, MODES, numpy, runner, value_and_gradients
from tests.support.closeness import all_close
from tests.support.refusals import refused
from tests.support.toy_body import ToyBody
from tests.support.weights import built, randomize

ROWS, DIM, CLASSES, EXTRAS, CHUNK = 11, 4, 7, 2, 4
TARGETS = np.array([-1, 6, 8, 7, -5, 3, 100, 0, 1, 2, 1])
WEIGHTS = np.linspace(0, 2, ROWS).astype("float32")


class Focal(RowLoss):
    """One more loss: a formula and nothing else."""

    def row(self, target, log_total, mean):
        nll = log_total - target
        return (1 - keras.ops.exp(-nll)) * nll


LOSSES = {
    "smoothing": CrossEntropy(0.1),
    "z-loss": CrossEntropy(z_loss=0.3),
    "cap": CrossEntropy(soft_cap=1.5),
    "all": CrossEntropy(0.2, z_loss=0.1, soft_cap=2.0),
    "focal": Focal(),
}


def exact(loss, x, table, extra, bias):
    """The weighted sum over the rows with a target, by the formula."""
    logits = np.concatenate([x @ table.T + bias, extra], axis=1)
    if loss.soft_cap is not None:
        logits = loss.soft_cap * np.tanh(logits / loss.soft_cap)
    total = 0.0
    for row, target in enumerate(TARGETS):
        if 0 <= target < CLASSES + EXTRAS:
            log_total = np.log(np.exp(logits[row]).sum())
            nll = log_total - logits[row, target]
            if isinstance(loss, Focal):
                value = (1 - np.exp(-nll)) * nll
            else:
                smooth = loss.label_smoothing
                value = (1 - smooth) * nll + smooth * (log_total - logits[row].mean()) + loss.z_loss * log_total**2
            total += WEIGHTS[row] * value
    return total


@pytest.mark.parametrize("name, mode", [*((name, MODES[0]) for name in LOSSES), *(("all", mode) for mode in MODES[1:])])
@pytest.mark.parametrize("chunk_rows", [CHUNK, 128])  # the two orders of the logits under JAX
def test_value_and_gradients(name, mode, chunk_rows):
    random, loss = np.random.default_rng(3), LOSSES[name]
    arrays = [random.normal(size=shape) for shape in ((ROWS, DIM), (CLASSES, DIM), (ROWS, EXTRAS), (CLASSES,))]
    op = lambda x, table, extra, bias: linear_cross_entropy(  # noqa: E731
        x, table, TARGETS.astype("int32"), WEIGHTS, extra, chunk_rows, bias, loss=loss
    )
    value, gradients = value_and_gradients(op, [array.astype("float32") for array in arrays], mode)
    np.testing.assert_allclose(value, exact(loss, *arrays), rtol=2e-6)
    all_close(gradients, oracle.gradients(partial(exact, loss), arrays), atol=2e-5)


def test_no_option_is_the_plain_cross_entropy():
    random = np.random.default_rng(3)
    x, table = (random.normal(size=(n, DIM)).astype("float32") for n in (ROWS, CLASSES))
    plain, other = (linear_cross_entropy(x, table, TARGETS, WEIGHTS, loss=loss) for loss in (None, CrossEntropy()))
    assert CrossEntropy().is_plain and float(plain) == float(other)


@pytest.mark.parametrize(
    "options", [{"cutoffs": (5, 9), "factor": 2}, {"cutoffs": (5, 9), "factor": None}, {"cutoffs": ()}], ids=str
)
def test_a_softmax_is_worth_the_loss_in_each_band_and_its_probabilities_are_capped(options):
    loss = CrossEntropy(0.2, z_loss=0.1, soft_cap=2.0)
    layer, plain = (built(AdaptiveSoftmax(20, loss=one, **options), DIM, 3) for one in (loss, None))
    random = np.random.default_rng(5)
    hidden, targets = random.normal(size=(6, DIM)).astype("float32"), np.array([0, 4, 5, 8, 9, 19], "int32")
    run = runner(lambda x, t, w: [layer.log_probs(x), *layer.training_sums(x, t, w)[:2]])
    probabilities, total, nll = run(hidden, targets, np.ones(6, "float32"))
    np.testing.assert_allclose(np.exp(probabilities).sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(nll, -probabilities[np.arange(6), targets].sum(), rtol=1e-5)
    np.testing.assert_allclose(numpy(layer.total_nll(hidden, targets)), nll, rtol=1e-5)
    assert total > nll and np.abs(probabilities - numpy(plain.log_probs(hidden))).max() > 1e-3


def test_logs_have_the_perplexity_of_the_probabilities_and_the_penalty():
    tokens, targets, weights = tiny.batch(4)
    loss = CrossEntropy(0.1, z_loss=0.2)
    layer = AdaptiveSoftmax(tiny.VOCABULARY, (5,), factor=2, loss=loss)
    model = randomize(LanguageModel(WordEmbedding(tiny.VOCABULARY, 4), ToyBody(4), layer))
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=BACKEND == "tensorflow")
    logs = model.fit(tokens, targets, sample_weight=weights, verbose=0).history
    evaluated = model.evaluate(tokens, targets, sample_weight=weights, verbose=0, return_dict=True)
    np.testing.assert_allclose(logs["perplexity"], [evaluated["perplexity"]], rtol=1e-5)
    assert logs["loss"][0] > np.log(evaluated["perplexity"]) and logs["z_loss"][0] > 0
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert copy.loss.get_config() == loss.get_config()


def test_other_outputs_compute_it_from_all_probabilities():
    words = ["<s>", "<pad>", "</s>", "<unk>", "a", "b"]
    layer = CharLSTMSoftmax(words, units=3, char_dim=3, normalized=True, loss=CrossEntropy(0.3))
    hidden, targets = np.ones((2, DIM), "float32"), np.array([4, 5], "int32")
    log_probs = numpy(layer.log_probs(hidden))
    expected = -(0.7 * log_probs[[0, 1], targets] + 0.3 * log_probs.mean(axis=1)).sum()
    np.testing.assert_allclose(numpy(layer.training_loss(hidden, targets)), expected, rtol=1e-5)
    layer = CharLSTMSoftmax(words, units=3, char_dim=3, loss=CrossEntropy(z_loss=0.1))
    message = "`soft_cap` and `z_loss` are about logits, and a CharLSTMSoftmax"
    refused(layer.training_loss, hidden, targets, match=message)


@pytest.mark.once
def test_wrong_arguments():
    refused(CrossEntropy, label_smoothing=1.0, match="`label_smoothing` must be at least 0 and below 1")
    refused(CrossEntropy, z_loss=-1.0, match="`z_loss` must be finite and at least 0")
    refused(CrossEntropy, soft_cap=0.0, match="`soft_cap` must be positive: pass None")
    noise = ImportanceSampling(4)
    refused(AdaptiveSoftmax, 20, (5,), loss=noise, match=r"needs a softmax without tails: pass cutoffs=\(\)")
    refused(
        CharLSTMSoftmax, ["a"], units=3, char_dim=3, loss=noise, match="`loss` of a CharLSTMSoftmax must be a RowLoss"
    )
    refused(AdaptiveSoftmax, 20, (), loss="nce", match="must be a RowLoss or a SampledLoss. Received: loss='nce'")
