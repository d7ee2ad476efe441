"""Attention in blocks against the dense formula with a mask, of which it computes only what is seen."""

import functools

import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops import attention as module
from keras_adaptive.ops.attention import alibi_slopes, causal_attention
from tests.support import oracle
from tests.support.backends import MODES, gradient_function, largest_array, runner, value_and_gradients
from tests.support.chunks import set_chunk_sizes
from tests.support.closeness import close, close_to_formula
from tests.support.steps import changed_at_each_token

# Tokens and windows: blocks that divide the length or not, a window of one, of the whole text, and beyond it.
CASES = [(6, 3), (7, 4), (5, 1), (5, 5), (3, 6)]
WHOLE = [(2, None), (3, None), (7, None)]  # without a window: one block, two blocks, and three with a shorter one
SLOPES = (0.5, 0.03)  # of two heads


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    set_chunk_sizes(monkeypatch, queries=2, window_queries=2)
    monkeypatch.setattr(module, "MOST_BLOCKS", 3)


def arguments(steps, length=None):
    """Queries, keys and values of two texts and two heads."""
    random = np.random.default_rng(0)
    return [random.normal(size=(2, size, 2, 3)).astype("float32") for size in (steps, length or steps, length or steps)]


@pytest.mark.parametrize(
    "steps, window, mode",
    [*((*case, MODES[0]) for case in [*CASES, *WHOLE]), *((7, window, m) for m in MODES[1:] for window in (4, None))],
)
def test_values_and_gradients_are_those_of_the_dense_masked_form(steps, window, mode):
    weights = np.random.default_rng(1).normal(size=(2, steps, 2, 3)).astype("float32")
    total = lambda *qkv: ops.sum(ops.multiply(causal_attention(*qkv, window=window), weights))  # noqa: E731
    formula = lambda *qkv: np.sum(weights * oracle.windowed_attention(*qkv, window or steps))  # noqa: E731
    close_to_formula(total, formula, arguments(steps), mode, least=1.0)


@pytest.mark.parametrize("steps, window", [*CASES[:2], *WHOLE])
@pytest.mark.parametrize("drop", [None, lambda probabilities: probabilities], ids=["", "dropout"])
def test_linear_biases_lower_the_scores_of_far_keys(steps, window, drop):
    weights = np.random.default_rng(1).normal(size=(2, steps, 2, 3)).astype("float32")

    def total(*qkv):
        return ops.sum(ops.multiply(causal_attention(*qkv, drop=drop, window=window, slopes=SLOPES), weights))

    formula = lambda *qkv: np.sum(weights * oracle.windowed_attention(*qkv, window or steps, SLOPES))  # noqa: E731
    close_to_formula(total, formula, arguments(steps), MODES[0], least=1.0)


@pytest.mark.parametrize("window", [None, 4])
def test_linear_biases_count_from_the_query_after_other_tokens_too(window):
    (query, key, value), position = arguments(9), 5
    expected = oracle.windowed_attention(query, key, value, window or 9, SLOPES)[:, position:]
    run = runner(lambda *given: causal_attention(*given[:3], given[3], window=window, slopes=SLOPES))
    first = position - window + 1 if window else 0
    found = run(query[:, position:], key[:, first:], value[:, first:], np.int32(position))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.once
def test_slopes_are_those_of_the_published_program(golden):
    arrays, _ = golden("alibi")
    published = {name: values for name, values in arrays.items() if name.endswith("_heads")}
    assert len(published) == 16
    for values in published.values():
        np.testing.assert_allclose(alibi_slopes(len(values)), values, rtol=1e-6)


@pytest.mark.parametrize("steps", [1, 5])
def test_queries_after_other_tokens_see_the_keys_that_are_given_before_them(steps):
    """After two tokens the window of four reaches before the text, after five it does not."""
    (query, key, value), window = arguments(10), 4
    expected = oracle.windowed_attention(query, key, value, window)
    run = runner(lambda *given: causal_attention(*given[:3], given[3], window=window))
    for position in (2, 5):
        end = position + steps
        front = np.full((2, max(window - 1 - position, 0), 2, 3), 7, "float32")  # before the text: never seen
        seen = [np.concatenate([front, one[:, max(position - window + 1, 0) : end]], 1) for one in (key, value)]
        found = run(query[:, position:end], *seen, np.int32(position))
        np.testing.assert_allclose(found, expected[:, position:end], atol=1e-6)


@pytest.mark.parametrize("drop", [None, lambda probabilities: probabilities], ids=["", "dropout"])
def test_a_changed_token_changes_exactly_the_queries_that_see_it(drop):
    steps, window = 9, 3
    query, key, value = arguments(steps)
    run = runner(lambda *given: causal_attention(*given, drop=drop, window=window))
    before = run(query, key, value)
    for token, after in changed_at_each_token(lambda *changed: run(query, *changed), key, value):
        difference = np.abs(after - before).max(axis=(0, 2, 3))
        seen = (np.arange(steps) >= token) & (np.arange(steps) < token + window)
        assert not difference[~seen].any() and difference[seen].min() > 1e-3


def test_gradients_do_not_leave_the_window():
    steps, window, token = 9, 3, 6
    gradients = gradient_function(lambda *given: ops.sum(causal_attention(*given, window=window)[:, token] ** 2))
    _, of_keys, of_values = gradients(*arguments(steps))
    for gradient in (of_keys, of_values):
        reached = np.abs(gradient).max(axis=(0, 2, 3)) > 0
        assert np.flatnonzero(reached).tolist() == [4, 5, 6]


def test_time_and_memory_are_linear_in_the_length(monkeypatch):
    set_chunk_sizes(monkeypatch, window_queries=4)
    attend = lambda *given: ops.sum(causal_attention(*given, drop=lambda p: p, window=3))  # noqa: E731
    small, large = (largest_array(attend, *(array[:1] for array in arguments(steps))) for steps in (32, 128))
    assert small < large <= 4.5 * small < 2 * 128 * 128


def test_dropout_falls_on_the_probabilities_that_are_seen():
    kept = []

    def drop(probabilities):
        kept.append(tuple(probabilities.shape))
        return 0.5 * probabilities

    given = arguments(7)
    halved = runner(functools.partial(causal_attention, drop=drop, window=3))(*given)
    np.testing.assert_allclose(halved, 0.5 * oracle.windowed_attention(*given, 3), atol=1e-6)
    assert kept[0] == (2 * 4, 2, 2, 4)  # batch and blocks, heads, queries, keys


@pytest.mark.parametrize("short_keys", [0, 512])
@pytest.mark.parametrize("slopes", [None, SLOPES])
def test_bfloat16_is_near_float32(short_keys, slopes, monkeypatch):
    """Tests torch's fused kernel, and the separate products that are faster for a few keys."""
    set_chunk_sizes(monkeypatch, short_keys=short_keys)
    given, weights = arguments(6), np.random.default_rng(1).normal(size=(2, 6, 2, 3)).astype("float32")

    def total(*qkv):
        mixed = causal_attention(*(ops.cast(array, "bfloat16") for array in qkv), slopes=slopes)
        return ops.sum(ops.multiply(ops.cast(mixed, "float32"), weights))

    value, gradients = value_and_gradients(total, given)
    formula = lambda *qkv: np.sum(weights * oracle.windowed_attention(*qkv, 6, slopes or 0.0))  # noqa: E731
    np.testing.assert_allclose(value, formula(*given), rtol=2e-2)
    close(gradients, oracle.gradients(formula, given), 2e-2)
