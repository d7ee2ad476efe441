"""What every body must do, whatever it is made of. A new body is one more line of BODIES."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import pytest

from keras_adaptive.layers import TransformerDecoder
from tests.support.backends import gradient_function, runner
from tests.support.weights import randomize

LENGTH, INPUT_DIM = 7, 8
BODIES = {
    "transformer": lambda **kw: TransformerDecoder(1, 8, 12, 2, **kw),
    "transformer, projected": lambda **kw: TransformerDecoder(1, 12, 12, 3, first_position=0, **kw),
    "transformer, otherwise": lambda **kw: TransformerDecoder(
        *(1, 12, 12, 3),
        output_dim=6,
        activation="gelu",
        normalize_first=False,
        final_norm=True,
        input_norm=True,
        scale_input=False,
        learned_positions=LENGTH + 3,
        **kw,
    ),
}


class Body(NamedTuple):
    layer: keras.layers.Layer
    call: Callable
    step: Callable


@pytest.fixture(scope="module", params=BODIES)
def body(request):
    layer = BODIES[request.param](dtype="float32")
    layer.build((None, None, INPUT_DIM))
    randomize(layer)
    return Body(layer, runner(layer), runner(layer.step))


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(2, LENGTH, INPUT_DIM)).astype("float32")


def test_a_token_changes_nothing_before_it(body, x):
    before = body.call(x)
    for token in range(LENGTH):
        changed = x.copy()
        changed[:, token] += 1.0
        difference = np.abs(body.call(changed) - before).max(axis=(0, 2))
        np.testing.assert_array_less(difference[:token], 1e-6)
        assert difference[token] > 1e-3


def test_gradients_do_not_flow_back_from_later_tokens(body, x):
    gradients = gradient_function(lambda x, weight: keras.ops.sum(weight * body.layer(x) ** 2))
    for token in (0, 3, LENGTH - 1):
        gradient, _ = gradients(x, np.eye(LENGTH, dtype="float32")[token, :, None])
        assert np.abs(gradient[:, : token + 1]).max(axis=(0, 2)).min() > 0
        assert not gradient[:, token + 1 :].any()


def test_sequences_do_not_mix(body, x):
    changed = x.copy()
    changed[1] += 1.0
    np.testing.assert_allclose(body.call(changed)[0], body.call(x)[0], atol=1e-6)


@pytest.mark.parametrize("chunks", [[1] * LENGTH, [4, 1, 2], [LENGTH]], ids=str)
def test_steps_equal_the_full_pass(body, x, chunks):
    state, parts, start = body.layer.initial_state(2, LENGTH), [], 0
    for size in chunks:
        y, state = body.step(x[:, start : start + size], state)
        parts.append(y)
        start += size
    np.testing.assert_allclose(np.concatenate(parts, axis=1), body.call(x), atol=5e-6)


def test_room_to_spare_changes_nothing(body, x):
    y, _ = body.step(x, body.layer.initial_state(2, LENGTH + 3))
    np.testing.assert_allclose(y, body.call(x), atol=5e-6)


def test_a_state_can_be_used_twice(body, x):
    _, state = body.step(x[:, :1], body.layer.initial_state(2, LENGTH))
    first, _ = body.step(x[:, 1:2], state)
    body.step(x[:, 5:6], state)
    again, _ = body.step(x[:, 1:2], state)
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "relu_dropout"])
def test_dropout_only_in_training(kind, x):
    body = BODIES["transformer"](**{kind: 0.5})
    body.build(x.shape)
    plain, evaluated, trained = runner(lambda x: [body(x, training=flag) for flag in (None, False, True)])(x)
    np.testing.assert_array_equal(plain, evaluated)
    assert np.abs(trained - plain).max() > 1e-3


def test_config_makes_the_same_body(body):
    copy = type(body.layer).from_config(body.layer.get_config())
    assert copy.get_config() == body.layer.get_config()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_stays_close(policy, x):
    def hidden(policy):
        body = BODIES["transformer"](dtype=policy)
        body.build((None, None, INPUT_DIM))
        randomize(body)
        state = body.initial_state(2, LENGTH)
        return runner(lambda x, state: (body(x), body.step(x, state)[0]))(x, state)

    expected, _ = hidden("float32")
    for actual in hidden(policy):
        assert actual.dtype == policy.removeprefix("mixed_")
        error = np.abs(actual.astype("float32") - expected).max()
        assert error < {"mixed_bfloat16": 0.05, "mixed_float16": 0.01}[policy] * np.abs(expected).max()
