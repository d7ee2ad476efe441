"""Attention to the nearest positions only, whose state is as long as its window."""

import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import CausalAttention
from tests.support import oracle
from tests.support.backends import numpy, runner, weight_gradients
from tests.support.chunks import set_chunk_sizes
from tests.support.closeness import all_close
from tests.support.steps import changed_at_each_token, in_steps
from tests.support.weights import built, value

LENGTH, DIM, HEADS = 9, 8, 2


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    set_chunk_sizes(monkeypatch, window_queries=2)


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(2, LENGTH, DIM)).astype("float32")


def attention(window, **kwargs):
    return built(CausalAttention(HEADS, window=window, **kwargs), DIM)


@pytest.mark.parametrize("use_bias", [True, False])
def test_equals_the_dense_masked_form(use_bias, x):
    layer = attention(4, use_bias=use_bias)
    assert len(layer.trainable_variables) == (8 if use_bias else 4)
    project = lambda dense, x: x @ value(dense.kernel) + (value(dense.bias) if use_bias else 0.0)  # noqa: E731
    query, key, values = (
        project(dense, x).reshape(2, LENGTH, HEADS, -1) for dense in (layer.query, layer.key, layer.value)
    )
    mixed = oracle.windowed_attention(query / np.sqrt(DIM // HEADS), key, values, 4).reshape(2, LENGTH, DIM)
    np.testing.assert_allclose(runner(layer)(x), project(layer.out, mixed), atol=1e-5)


@pytest.mark.parametrize(
    "window, chunks", [(4, [1] * LENGTH), (4, [2, 6, 1]), (1, [3, 1, 5]), (LENGTH, [4, 5])], ids=str
)
def test_steps_equal_the_full_pass(window, chunks, x):
    layer = attention(window)
    y, states = in_steps(runner(layer.step), x, layer.initial_state(2, None, DIM), chunks, position=True)
    np.testing.assert_allclose(y, runner(layer)(x), atol=1e-6)
    assert {array.shape for state in states for array in state} == {(2, window - 1, HEADS, DIM // HEADS)}


def test_gradients_flow_through_the_steps(x):
    layer = attention(4)

    def two_steps(x):
        first, state = layer.step(x[:, :3], layer.initial_state(2, None, DIM), 0)
        second, _ = layer.step(x[:, 3:], state, 3)
        return ops.sum(first**2) + ops.sum(second**2)

    variables = layer.trainable_variables
    expected = weight_gradients(lambda x: ops.sum(layer(x) ** 2), variables, [x])[1]
    all_close(weight_gradients(two_steps, variables, [x])[1], expected, rtol=0, atol=1e-4)


def test_a_window_as_long_as_the_text_is_all_of_it(x):
    windowed, plain = attention(LENGTH), attention(None)
    np.testing.assert_allclose(runner(windowed)(x), runner(plain)(x), atol=1e-5)


def test_tokens_outside_of_the_window_change_exactly_nothing(x):
    run = runner(attention(3))
    before = run(x)
    for token, after in changed_at_each_token(run, x):
        difference = np.abs(after - before).max(axis=(0, 2))
        assert np.flatnonzero(difference).tolist() == list(range(token, min(token + 3, LENGTH)))


@pytest.mark.once
def test_the_cost_of_training_is_linear_in_the_length():
    layer = CausalAttention(HEADS, window=3)
    assert layer.activations_per_token(100, DIM) == layer.activations_per_token(1000, DIM) == 8 * DIM + HEADS * 4 * 2
    plain = CausalAttention(HEADS)
    assert plain.activations_per_token(2, DIM) == layer.activations_per_token(2, DIM) == 4 * DIM + HEADS * 2 * 2


@pytest.mark.once
def test_configs_of_earlier_versions_have_biases_and_no_window():
    config = CausalAttention(HEADS, dropout=0.1).get_config()
    old = {name: setting for name, setting in config.items() if name not in ("window", "use_bias", "alibi")}
    assert CausalAttention.from_config(old).get_config() == config
    assert (config["window"], config["use_bias"], config["alibi"]) == (None, True, False)


@pytest.mark.once
def test_the_state_does_not_depend_on_the_length():
    layer = CausalAttention(HEADS, window=5)
    for length in (None, 2, 1000):
        assert [array.shape for array in map(numpy, layer.initial_state(3, length, DIM))] == [(3, 4, HEADS, 4)] * 2
