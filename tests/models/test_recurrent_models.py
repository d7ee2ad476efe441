"""Language models with recurrent bodies: penalties, masks of weights and carried states."""

import types

import keras
import numpy as np
import pytest

from keras_adaptive.data import EOS
from keras_adaptive.evaluation import word_losses_of_streams
from keras_adaptive.layers import AdaptiveSoftmax, LSTMDecoder, QRNNDecoder, WordEmbedding
from keras_adaptive.models import LanguageModel
from tests.support import oracle
from tests.support.backends import BACKEND, numpy, runner, weight_gradients
from tests.support.streams import ROWS, batches, text
from tests.support.tiny import VOCABULARY, largest_difference
from tests.support.weights import randomize, softmax_weights, value


def recurrent_model(body=LSTMDecoder, dtype=None, **kwargs):
    keras.utils.set_random_seed(1)
    words, softmax = WordEmbedding(VOCABULARY, 8, dtype=dtype), AdaptiveSoftmax(VOCABULARY, (8,), dtype=dtype)
    return randomize(LanguageModel(words, body(2, 6, 8, dtype=dtype, **kwargs), softmax))


def fitted(model, rate, data, micro_batches=1):
    """Returns the logs of each update."""
    seen, eagerly = [], BACKEND == "tensorflow"
    model.compile(keras.optimizers.SGD(rate), micro_batches=micro_batches, stream_rows=ROWS, run_eagerly=eagerly)
    keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: seen.append(dict(logs)))
    model.fit((one for one in data), steps_per_epoch=len(data), shuffle=False, verbose=0, callbacks=[keep])
    return seen


def test_micro_batches_share_the_masks_of_weights_and_divide_the_penalties():
    options = {"weight_dropout": 0.5, "penalties": (2.0, 1.0)}
    whole, parts, start = (recurrent_model(**options) for _ in range(3))
    logs, logs_of_parts = fitted(whole, 0.5, batches()[:3]), fitted(parts, 0.5, batches()[:3], micro_batches=2)
    for one, other in zip(logs, logs_of_parts, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
    assert largest_difference(whole, parts) < 1e-6 < 1e-2 < largest_difference(whole, start)
    for one, other in zip(whole._seeds(), parts._seeds(), strict=True):
        np.testing.assert_array_equal(numpy(one.value), numpy(other.value))


def test_penalties_of_a_stream_are_added_to_its_loss():
    model = recurrent_model(penalties=(2.0, 0.5))
    state, expected = model.body.initial_state(ROWS), []
    for (part, _), *_ in batches():
        hidden, state = model(part, state=state)
        hidden = numpy(hidden)
        expected.append(2.0 * np.mean(hidden**2) + 0.5 * np.mean(np.diff(hidden, axis=1) ** 2))
    logs = fitted(model, 0.0, batches())
    penalties = [one["loss"] - np.log(one["perplexity"]) for one in logs]  # means over all batches so far
    np.testing.assert_allclose(penalties, np.cumsum(expected) / np.arange(1, len(expected) + 1), rtol=1e-4)
    found = model.evaluate((one for one in batches()), steps=len(expected), verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(np.log(found["perplexity"]), rel=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_an_awd_qrnn_is_that_of_the_oracle_in_a_segment_that_continues_another(tied):
    """The objective with both penalties, the gradient of every weight, and the state; gradients end at the segment."""
    penalties, cutoffs, dim = (2.0, 0.5), (6, 13), 3
    words = WordEmbedding(VOCABULARY, dim)
    body = QRNNDecoder(2, 4, dim if tied else 4, window=2, penalties=penalties)
    softmax = AdaptiveSoftmax(VOCABULARY, cutoffs, factor=None, tied_to=words if tied else None, use_bias=True)
    model = randomize(LanguageModel(words, body, softmax))
    variables = model.trainable_variables
    stream = np.random.default_rng(0).integers(0, VOCABULARY, (2, 11)).astype("int32")
    (first, tokens), targets = (stream[:, :5], stream[:, 5:10]), stream[:, 6:]

    def oracle_hidden(tokens, state, read=value):
        y, new = read(words.tables[0])[tokens], []
        for layer, before in zip(body.recurrent_layers, state, strict=True):
            y, after = oracle.qrnn(y, read(layer.kernel), read(layer.bias), *before)
            new.append(after)
        return y, new

    def expected(*arrays):
        values = {id(variable): array for variable, array in zip(variables, arrays, strict=True)}
        read = lambda variable: values[id(variable)]  # noqa: E731
        hidden, _ = oracle_hidden(tokens, state, read)
        log_probs = oracle.adaptive_log_probs(hidden, *softmax_weights(softmax, read))
        nll = -np.take_along_axis(log_probs, targets[..., None], axis=-1).mean()
        changes = hidden[:, 1:] - hidden[:, :-1]
        return nll + penalties[0] * (hidden**2).mean() + penalties[1] * (changes**2).mean()

    empty = [tuple(np.zeros(part.shape) for part in layer) for layer in numpy(body.initial_state(2))]
    _, state = oracle_hidden(first, empty)
    found_state = runner(lambda tokens: model(tokens, state=body.initial_state(2))[1])(first)
    for found, exact in zip(*map(keras.tree.flatten, (found_state, state)), strict=True):
        np.testing.assert_allclose(found, exact, atol=1e-6)
    shares = keras.ops.full(tokens.shape, 1 / tokens.size, "float32")
    carried = keras.tree.map_structure(lambda part: part.astype("float32"), state)
    objective = lambda: model._objective(tokens, targets, shares, carried, 1.0, keras.ops.ones(2))[0]  # noqa: E731
    found, gradients = weight_gradients(objective, variables)
    arrays = [value(variable) for variable in variables]
    assert found == pytest.approx(expected(*arrays), rel=1e-6)
    for gradient, exact in zip(gradients, oracle.gradients(expected, arrays), strict=True):
        np.testing.assert_allclose(gradient, exact, rtol=0, atol=3e-6 * np.abs(exact).max())


SEGMENTS = (1, 7, 70, 150)  # of which the last is the whole text


@pytest.mark.parametrize(
    "body, options", [(LSTMDecoder, {}), (LSTMDecoder, {"projection_dim": 5}), (QRNNDecoder, {"window": 2})]
)
def test_a_text_in_segments_and_in_streams_has_one_loss(body, options):
    model = recurrent_model(body, **options)
    stream = np.random.default_rng(0).integers(0, VOCABULARY, (1, SEGMENTS[-1] + 1)).astype("int32")
    stream[0, 0] = EOS
    text = types.SimpleNamespace(  # a corpus
        tokens=lambda split: stream[0, 1:],
        words=lambda split: stream[0, 1:],
        word_starts=lambda split: np.arange(SEGMENTS[-1]),
        verify=lambda split: None,
    )
    whole = float(model.nll(stream[:, :-1], stream[:, 1:]).astype("float64").mean())
    for segment in SEGMENTS:
        nll = model.nll(stream[:, :-1], stream[:, 1:], segment=segment)
        assert float(nll.astype("float64").mean()) == pytest.approx(whole, rel=1e-6)
        if segment > 1:  # 1 takes most of the time
            of_streams, _ = word_losses_of_streams(model, text, "valid", segment)
            assert float(of_streams.mean()) == pytest.approx(whole, rel=1e-6)


def test_a_text_in_segments_has_one_perplexity():
    model = recurrent_model(QRNNDecoder, window=2)
    stream = np.random.default_rng(0).integers(0, VOCABULARY, (2, 15)).astype("int32")
    tokens, targets = stream[:, :-1], stream[:, 1:]
    whole = -model.nll(tokens, targets)
    for segment in (1, 7, 14):
        log_probs, _ = model.score(tokens, targets, segment=segment)
        np.testing.assert_allclose(log_probs, whole, rtol=1e-5)
        assert np.exp(-log_probs.mean()) == pytest.approx(np.exp(-whole.mean()), rel=1e-6)


def test_the_state_that_a_model_carries_is_not_rounded():
    model = recurrent_model(dtype="mixed_bfloat16")
    for layer in model.body.recurrent_layers:
        for matrix in (layer.kernel, layer.recurrent_kernel):
            matrix.assign(np.zeros(matrix.shape))
        layer.bias.assign(np.repeat([-40.0, 40.0, 0.0, 0.0], layer.units))
    state = keras.tree.map_structure(lambda part: 0 * part + 257.0, model.body.initial_state(ROWS))
    _, state = model(text()[0], state=state)
    for _, cells in numpy(state):
        np.testing.assert_array_equal(cells, 257.0)
