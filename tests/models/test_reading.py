"""How texts longer than the rows of training are read: one rule for scores, next words and generation."""

import keras
import numpy as np
import pytest

from keras_adaptive.data import EOS, TextCodec, Vocabulary
from keras_adaptive.layers import CausalAttention, LearnedPositions, TransformerBlock, TransformerDecoder
from keras_adaptive.models import Ensemble, LanguageModel, Reading, read_language_model
from keras_adaptive.models.reading import reading_of
from keras_adaptive.text import TextModel
from tests.support.backends import BACKEND
from tests.support.tiny import VOCABULARY, WORDS, language_model
from tests.support.toy_body import ToyBody

LENGTH, CONTEXT = 8, 4
pytestmark = pytest.mark.usefixtures("eager_predictions")


@pytest.fixture(scope="module")
def model():
    model = language_model()
    model.trained_length = LENGTH
    return model


@pytest.fixture(scope="module")
def ids():
    return np.append(EOS, np.random.default_rng(3).integers(4, VOCABULARY, 22)).astype("int32")


def expected_nll(model, ids, context=CONTEXT, window=LENGTH):
    """The loss of each target, computed one by one from the tokens that it may see."""
    block, nll = window - context, []
    for place, target in enumerate(ids[1:]):
        seen = ids[max(place // block * block - context, 0) : place + 1]
        nll.append(-model.log_probs(seen[None])[0, -1, target])
    return np.array(nll)


@pytest.mark.parametrize("window, context", [(1, 0), (2, 1), (7, 3), (8, 0), (8, 4), (8, 7), (9, 5)])
@pytest.mark.once
def test_windows_score_every_token_once_and_never_exceed_the_window(window, context):
    reading = Reading(window, context)
    for length in range(1, 40):
        windows = reading.windows(length)
        assert [place for _, start, stop in windows for place in range(start, stop)] == list(range(length))
        assert all(0 <= begin <= start < stop <= begin + window for begin, start, stop in windows)
        assert all(reading.begin(place) == begin for begin, start, stop in windows for place in range(start, stop))
        assert (reading.describe(length) == "as a whole") == (len(windows) == 1)
    np.testing.assert_array_equal(reading.begin(np.arange(9)), [reading.begin(place) for place in range(9)])


@pytest.mark.once
def test_a_text_as_a_whole_is_one_window():
    assert Reading().windows(5) == [(0, 0, 5)] and Reading().begin(10**6) == 0
    assert Reading().describe(10**6) == "as a whole"
    assert Reading(64, 32).describe() == "in windows of 64 tokens, 32 of them context"
    assert Reading(2048, 0).describe(3000) == "in windows of 2,048 tokens without context"


def learned(length, parts):
    block = TransformerBlock(12, CausalAttention(2))
    return LanguageModel(
        parts.word_input, TransformerDecoder([block], 8, positions=LearnedPositions(length)), parts.word_output
    )


@pytest.mark.once
def test_the_default_is_the_trained_length_where_the_state_grows(model):
    recurrent = LanguageModel(model.word_input, ToyBody(8), model.word_output, trained_length=LENGTH)
    untrained, positions = language_model(), learned(10, model)
    assert reading_of(model) == Reading(8, 4) and reading_of(recurrent) == Reading()
    assert reading_of(untrained) == Reading(2048, 1024) and reading_of(positions) == Reading(10, 5)
    assert reading_of(model, window=30) == Reading(30, 15) and reading_of(model, context=6) == Reading(8, 6)
    assert reading_of(recurrent, window=6) == Reading(6, 3)
    assert reading_of(Ensemble([recurrent, untrained, model])) == Reading(8, 4)
    assert reading_of(Ensemble([recurrent])) == Reading()


@pytest.mark.once
def test_linear_biases_alone_are_read_beyond_the_trained_length(model):
    def with_blocks(*alibi, **kwargs):
        blocks = [TransformerBlock(12, CausalAttention(2, alibi=each)) for each in alibi]
        body = TransformerDecoder(blocks, 8, **kwargs)
        return LanguageModel(model.word_input, body, model.word_output, trained_length=LENGTH)

    alibi, mixed = with_blocks(True, True), with_blocks(True, False)
    assert reading_of(alibi) == Reading(2048, 1024) and reading_of(alibi, window=6) == Reading(6, 3)
    assert reading_of(mixed) == Reading(8, 4)
    assert reading_of(with_blocks(True, positions=LearnedPositions(10))) == Reading(8, 4)
    assert reading_of(Ensemble([alibi, alibi])) == Reading(2048, 1024)
    assert reading_of(Ensemble([alibi, model])) == Reading(8, 4)


def text_model(model, **how):
    return TextModel(model, TextCodec(Vocabulary(WORDS, range(len(WORDS)))), **how)


def test_scores_and_next_words_see_the_same_tokens(model, ids):
    expected = expected_nll(model, ids)
    text, words = text_model(model), [WORDS[id] for id in ids[1:]]
    (record,) = text.score_tokens([words])
    np.testing.assert_allclose(record["log_probs"], -expected, atol=2e-5)
    assert record["reading"] == "in windows of 8 tokens, 4 of them context"
    for place in (0, 7, 8, 12, 21):
        found = dict(text.next_words(" ".join(words[:place]), k=VOCABULARY))
        assert np.log(found[words[place]]) == pytest.approx(-expected[place], abs=2e-5)
    more = text_model(model, window=LENGTH, context=6)
    (record,) = more.score_tokens([words])
    np.testing.assert_allclose(record["log_probs"], -expected_nll(model, ids, 6), atol=2e-5)
    (whole,) = text_model(model, window=30).score_tokens([words])
    np.testing.assert_allclose(whole["log_probs"], -model.nll(ids[None, :-1], ids[None, 1:])[0], atol=2e-5)
    assert whole["reading"] == "as a whole"


def test_the_trained_length_is_kept_in_files_and_copies(model, tmp_path):
    model.save(tmp_path / "model.keras")
    assert read_language_model(tmp_path / "model.keras").trained_length == LENGTH
    assert keras.saving.load_model(tmp_path / "model.keras").trained_length == LENGTH
    config = model.get_config()
    del config["trained_length"]
    assert LanguageModel.from_config(config).trained_length is None
    for wrong in (0, -1, 1.5, "8", True, 2**40):
        with pytest.raises(ValueError, match="`trained_length` must be None or a whole number from 1"):
            model.trained_length = wrong
    assert model.for_inference().trained_length == LENGTH


@pytest.mark.once
def test_fit_remembers_its_longest_rows(ids):
    model = language_model()
    model.compile("sgd")
    for length in (6, 5):
        model.fit(ids[None, :length], ids[None, 1 : length + 1], verbose=0)
        assert model.trained_length == 6


def test_generated_words_are_those_that_the_windows_predict(model):
    prompts = [[EOS, 5, 6], [EOS, *range(4, 19)], [EOS]]
    together = model.generate(prompts, 9, temperature=0)
    for prompt, new in zip(prompts, together, strict=True):
        np.testing.assert_array_equal(model.generate([prompt], 9, temperature=0)[0], new)
        text = np.append(prompt, new)
        for place in range(len(prompt) - 1, len(text) - 1):
            seen = text[max(place // CONTEXT * CONTEXT - CONTEXT, 0) : place + 1]
            log_probs = model.log_probs(seen[None])[0, -1]
            assert log_probs[text[place + 1]] == pytest.approx(log_probs.max(), abs=1e-5)
    whole = model.generate(prompts[:1], 9, temperature=0, reading=Reading())
    np.testing.assert_array_equal(whole[0, :5], together[0, :5])
    seen, last = np.append(prompts[0], whole[0, :-1]), whole[0, -1]
    assert int(np.argmax(model.log_probs(seen[None])[0, -1])) == last


def test_a_stream_has_the_probabilities_of_the_scores(model, ids):
    text = text_model(model)
    stream = model.stream(ids[None, :10], 9, seed=4, alternatives=2)
    new, log_probs = (np.concatenate(arrays) for arrays in zip(*(step[:2] for step in stream)))
    expected = expected_nll(model, np.append(ids[:10], new))[9:]
    np.testing.assert_allclose(log_probs, -expected, atol=2e-5)
    assert text.generate("word1", 9, seed=1) == "".join(piece for _, piece in text.stream("word1", 9, seed=1))


def test_positions_beyond_the_learned_ones_are_never_read(model):
    words = learned(10, model).generate([[EOS, 5]], 12, temperature=0)
    assert words.shape == (1, 12)


@pytest.mark.parametrize("sampler", ["greedy", "beam", "contrastive"] if BACKEND == "torch" else ["beam"])
def test_samplers_of_keras_hub_read_the_same_windows(model, sampler):
    samplers = pytest.importorskip("keras_hub").samplers
    make = {"greedy": samplers.GreedySampler, "beam": samplers.BeamSampler, "contrastive": samplers.ContrastiveSampler}
    how = {"beam": {"num_beams": 1}, "contrastive": {"k": 1}}.get(sampler, {})
    for prompt in ([EOS, 5, 6], [EOS, *range(4, 16)], [EOS, *range(4, 17)]):
        found = model.generate([prompt], 9, sampler=make[sampler](**how))
        np.testing.assert_array_equal(found, model.generate([prompt], 9, temperature=0))
