"""What attention with a memory of earlier segments sees, and when."""

import keras
import numpy as np
import pytest

from keras_adaptive.layers import PositionInfusedAttention, RelativeAttention, TransformerBlock, TransformerDecoder
from keras_adaptive.models import transformer_xl
from tests.support.backends import numpy, runner
from tests.support.weights import built

MIXERS = {
    "segments": lambda: RelativeAttention(2, 4, segment_length=3),
    "window": lambda: RelativeAttention(2, 4),
    "infused": lambda: PositionInfusedAttention(2, 4, 3),
}


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(2, 14, 8)).astype("float32")


def seen_by(call, x):
    """Returns which tokens of a row change the output of each, (outputs, tokens)."""
    before, changes = call(x[:1]), []
    for token in range(x.shape[1]):
        changed = x[:1].copy()
        changed[0, token] += 1.0
        changes.append(np.abs(call(changed) - before).max(axis=(0, 2)) > 1e-6)
    return np.stack(changes, axis=1)


@pytest.mark.parametrize("name", MIXERS)
def test_a_token_sees_its_segment_and_the_memory_or_its_window(name, x):
    places = np.arange(14)
    first = np.maximum(places - 3 if name == "window" else places // 3 * 3 - 4, 0)
    expected = (first[:, None] <= places) & (places <= places[:, None])
    np.testing.assert_array_equal(seen_by(runner(built(MIXERS[name](), 8)), x), expected)


@pytest.mark.parametrize("name", MIXERS)
def test_rows_of_streams_begin_when_they_want(name, x):
    """Row 0 begins again after two segments, as a stream does; it then has the outputs of a text of its own."""
    layer = built(MIXERS[name](), 8)
    step = runner(lambda x, state: layer.step(x, state, 0))
    empty = numpy(layer.initial_state(2, None, 8))
    _, state = step(x[:, :6], empty)
    again = np.array([True, False])
    begun = [np.where(again.reshape(2, *[1] * (new.ndim - 1)), new, old) for new, old in zip(empty, state)]
    y, _ = step(x[:, 6:], tuple(begun))
    np.testing.assert_allclose(y[0], runner(layer)(x[:1, 6:])[0], atol=1e-6)
    np.testing.assert_allclose(y[1], runner(layer)(x[1:])[0, 6:], atol=1e-6)


def test_shared_biases_are_shared_and_saved_once(x):
    body = transformer_xl(num_blocks=3, dim=8, ffn_dim=12, num_heads=2, memory_length=4)
    body.build((None, None, 8))
    names = [variable.name for variable in body.weights]
    assert names.count("content_bias") == names.count("position_bias") == 1
    copy = TransformerDecoder.from_config(body.get_config())
    copy.build((None, None, 8))
    copy.set_weights(built(body, 8).get_weights())
    x = x[:, :5]
    np.testing.assert_allclose(runner(copy)(x), runner(body)(x), atol=1e-6)
    before = numpy(body(x))  # a compiled function would keep the value of the variable
    for block in body.blocks[1:]:
        assert block.attention._lender() is body.blocks[0].attention
    body.blocks[0].attention.content_bias.assign_add(keras.ops.ones((2, 4)))
    assert np.abs(numpy(body(x)) - before).max() > 1e-3


def test_only_bodies_of_a_memory_carry_their_state():
    blocks = [TransformerBlock(12), TransformerBlock(12, RelativeAttention(2, 4))]
    assert TransformerDecoder(blocks, 8).initial_state(2)[0].shape == (2,)
