import keras
import numpy as np
import pytest

from tests.support import oracle
from tests.support.backends import runner
from tests.support.closeness import all_close
from tests.support.tiny import LENGTH, VOCABULARY, batch, language_model
from tests.support.weights import block_weights, embedding_weights, randomize, softmax_weights

TOKENS, TARGETS, _ = batch(3)
PROMPT, PROMPTS = TOKENS[:, :2], [TOKENS[0, :1], TOKENS[1, :4], TOKENS[2, :2]]


@pytest.fixture(scope="module")
def model():
    return language_model(dtype="float32")


def test_equals_the_oracle(model):
    vectors = oracle.adaptive_embedding(TOKENS, *embedding_weights(model.word_input))
    hidden = oracle.decoder(vectors, map(block_weights, model.body.blocks), heads=2)[-1]
    expected = oracle.adaptive_log_probs(hidden, *softmax_weights(model.word_output))
    log_probs = model.log_probs(TOKENS)
    assert log_probs.shape == (3, LENGTH, VOCABULARY)
    np.testing.assert_allclose(log_probs, expected, atol=5e-6)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=-1), 1.0, atol=1e-5)
    nll = model.nll(TOKENS, TARGETS)
    np.testing.assert_allclose(nll, -np.take_along_axis(expected, TARGETS[..., None], axis=-1)[..., 0], atol=5e-6)


def test_weights_are_read_at_every_call():
    model = language_model()
    before = model.nll(TOKENS, TARGETS)
    randomize(model, seed=9)
    assert np.abs(model.nll(TOKENS, TARGETS) - before).max() > 0.1


@pytest.mark.parametrize("temperature, top_k", [(1.0, None), (0.7, 6), (0, None)])
def test_generation_with_the_cache_equals_the_full_pass(model, temperature, top_k):
    length = 4
    ids = model.generate(PROMPT, length, temperature, top_k, seed=5)
    assert ids.shape == (3, length) and ids.dtype == "int32"
    random = np.random.default_rng(5)
    full = np.zeros((3, 2 + length), "int32")  # any words follow the words so far
    full[:, :2] = PROMPT
    sample = runner(
        lambda tokens, place, uniform: model.word_output.sample_from_uniform(
            keras.ops.take(model(tokens), place, axis=1), uniform, temperature, top_k
        )
    )
    for step in range(length):
        full[:, 2 + step] = sample(full, np.int32(1 + step), random.random((2, 3), dtype="float32"))
    np.testing.assert_array_equal(ids, full[:, 2:])


def test_seeds_of_generation(model):
    prompt = np.full((4, 1), 2)
    first, again, other = (model.generate(prompt, 4, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
    assert np.any(first != first[:1])  # rows are drawn independently
    greedy = model.generate(prompt, 4, temperature=0)
    np.testing.assert_array_equal(greedy, model.generate(prompt, 4, top_k=1, seed=3))


def test_stream_yields_the_words_of_generate(model):
    words = list(model.stream(PROMPT, 4, seed=5))
    np.testing.assert_array_equal(np.stack(words, axis=1), model.generate(PROMPT, 4, seed=5))


@pytest.mark.parametrize("how", [{}, {"temperature": 0.5}, {"temperature": 0}, {"top_p": 0.7}], ids=str)
def test_stream_yields_alternatives(model, how):
    """The alternatives equal those of the whole text, and do not change the words."""
    prompt = TOKENS[:, :4]
    ids, log_probs, best, best_ids = zip(*model.stream(prompt, 3, seed=5, alternatives=4, **how))
    np.testing.assert_array_equal(ids, list(model.stream(prompt, 3, seed=5, **how)))
    text = np.concatenate([prompt, np.stack(ids, axis=1)], axis=1)
    expected = [array[:, 3:] for array in model.alternatives(text[:, :-1], text[:, 1:], 4)]
    np.testing.assert_allclose(np.stack(log_probs, axis=1), expected[0], atol=1e-5)
    np.testing.assert_allclose(np.stack(best, axis=1), expected[3], atol=1e-5)
    np.testing.assert_array_equal(np.stack(best_ids, axis=1), expected[4])


def test_prompts_of_different_lengths_are_continued_as_alone(model):
    together = model.generate(PROMPTS, 3, temperature=0)
    alone = [model.generate(prompt[None], 3, temperature=0)[0] for prompt in PROMPTS]
    np.testing.assert_array_equal(together, alone)


def test_score_gives_log_probabilities_and_ranks_in_any_segments(model):
    log_probs, ranks = model.score(TOKENS, TARGETS)
    np.testing.assert_allclose(log_probs, -model.nll(TOKENS, TARGETS), atol=5e-6)
    every = model.log_probs(TOKENS)
    own = np.take_along_axis(every, TARGETS[..., None], axis=-1)
    np.testing.assert_array_equal(ranks, (every > own).sum(axis=-1) + 1)
    all_close(model.score(TOKENS, TARGETS, segment=4), (log_probs, ranks), atol=5e-6)
    reported = []
    segmented = model.nll(TOKENS, TARGETS, segment=4, report=lambda *at: reported.append(at))
    np.testing.assert_allclose(segmented, -log_probs, atol=5e-6)
    assert reported == [(1, 2), (2, 2)]
    *scores, entropies, best, ids = model.alternatives(TOKENS, TARGETS, 2, segment=4)
    all_close(scores, (log_probs, ranks), atol=5e-6)
    np.testing.assert_allclose(entropies, -np.sum(np.exp(every) * every, axis=-1), atol=5e-6)
    np.testing.assert_allclose(best, np.take_along_axis(every, ids, axis=-1), atol=5e-6)


def test_samplers_of_keras_hub(model):
    samplers = pytest.importorskip("keras_hub").samplers
    greedy = model.generate(PROMPT, 3, temperature=0)
    np.testing.assert_array_equal(model.generate(PROMPT, 3, sampler=samplers.GreedySampler()), greedy)
    beams = model.generate(PROMPT, 3, sampler=samplers.BeamSampler(num_beams=VOCABULARY))

    def worth(words):
        whole = np.concatenate([PROMPT, words], axis=1)
        return -model.nll(whole[:, :-1], whole[:, 1:])[:, 1:].sum(axis=1)

    assert np.all(worth(beams) >= worth(greedy) - 1e-5) and np.any(worth(beams) > worth(greedy))
    top_p = model.generate(PROMPT, 3, sampler=samplers.TopPSampler(p=1e-6, seed=1))  # so few that one word is left
    np.testing.assert_array_equal(top_p, greedy)


@pytest.mark.once
def test_samplers_have_names(model):
    names = {"greedy": {"temperature": 0}, "random": {}, "top_k": {"top_k": 5}, "top_p": {"top_p": 0.1}}
    for name, others in names.items():
        expected = model.generate(PROMPT, 3, seed=1, **others)
        np.testing.assert_array_equal(model.generate(PROMPT, 3, seed=1, sampler=name), expected)
    pytest.importorskip("keras_hub")
    assert model.generate(PROMPT, 3, sampler="beam").shape == (3, 3)


def test_a_row_ends_with_its_stop_word(model):
    free = model.generate(PROMPTS, 6, seed=4)
    stop = int(free[0, 2])
    ended = model.generate(PROMPTS, 6, seed=4, stop=stop)
    for row, whole in zip(ended, free):
        places = np.flatnonzero(whole == stop)
        end = places[0] + 1 if len(places) else len(whole)
        np.testing.assert_array_equal(row, [*whole[:end], *[1] * (len(whole) - end)])
    best = int(model.generate(PROMPTS[:1], 1, 0)[0, 0])
    assert len(list(model.stream(PROMPTS[:1], 6, seed=4, temperature=0, stop=best))) == 1
