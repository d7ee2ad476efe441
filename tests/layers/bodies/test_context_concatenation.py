"""ContextConcatenation and the NPLM's body: the formulas of the paper, and what only they have."""

import keras
import numpy as np
import pytest

from keras_adaptive.layers import (
    CausalAttention,
    ContextConcatenation,
    NPLMDecoder,
    TransformerBlock,
    TransformerDecoder,
)
from tests.support import oracle
from tests.support.backends import runner
from tests.support.weights import randomize, value

LENGTH, DIM = 9, 4
OPTIONS = {
    "local only": {"num_local": 3},
    "a hidden layer": {"num_local": 2, "hidden_dim": 5},
    "kernels": {"num_local": 2, "num_global": 2, "global_window": 3, "hidden_dim": 5},
    "two means": {"num_local": 3, "num_global": 2, "global_window": 2, "aggregate": "average"},
    "a window longer than the text": {"num_local": 2, "num_global": 1, "global_window": 30},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def built(layer, dim=DIM):
    layer.build((None, None, dim))
    randomize(layer)
    return layer


def vectors(length=LENGTH, seed=0):
    return np.random.default_rng(seed).normal(size=(2, length, DIM)).astype("float32")


def formula(layer, x):
    """The output of a ContextConcatenation and the sum of its global blocks, in float64."""
    if layer.num_global and layer.aggregate == "average":
        size = layer.global_window
        filters = [
            np.repeat([0, 1 / size], [layer.num_local + block * size, size]) for block in range(layer.num_global)
        ]
    else:
        filters = [np.concatenate([np.zeros(layer.num_local), weights]) for weights in kernels(layer)]
    dense = [one for one in (layer.hidden, layer.out) if one is not None]
    weights = [
        *((value(one.kernel), value(one.bias)) for one in dense),
        (value(layer.norm.gamma), value(layer.norm.beta)),
    ]
    return oracle.context_concatenation(x.astype("float64"), layer.num_local, filters, weights)


def kernels(layer):
    return value(layer.global_kernels) if layer.num_global else []


@every_option
def test_a_pass_and_steps_are_those_of_the_oracle(options):
    layer, x = built(ContextConcatenation(**options)), vectors()
    expected, global_sum = formula(layer, x)
    y, *found = runner(lambda x: [part for part in layer.mix(x) if part is not None])(x)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert len(found) == (layer.num_global > 0)
    for one in found:
        np.testing.assert_allclose(one, global_sum, atol=1e-5)
    np.testing.assert_array_equal(runner(layer)(x), y)
    step, state, parts = runner(layer.step), layer.initial_state(2, None, DIM), []
    for start, end in ((0, 1), (1, 2), (2, LENGTH)):
        part, state = step(x[:, start:end], state, start)
        parts.append(part)
        assert state.shape == layer.initial_state(2, None, DIM).shape  # the same after any number of tokens
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@every_option
def test_a_changed_token_changes_nothing_before_it(options):
    layer, x = built(ContextConcatenation(**options)), vectors()
    run = runner(layer)
    before = run(x)
    for token in range(LENGTH):
        changed = x.copy()
        changed[:, token] += 1.0
        np.testing.assert_array_equal(run(changed)[:, :token], before[:, :token])


def test_without_a_norm_it_returns_the_sum():
    layer, x = built(ContextConcatenation(2, normalize=False)), vectors()
    product, total = oracle.context_product(
        x.astype("float64"), value(layer.hidden.kernel), value(layer.hidden.bias), num_local=2
    )
    np.testing.assert_allclose(runner(layer)(x), total + np.maximum(product, 0.0), rtol=0, atol=1e-5)


def test_an_nplm_is_that_of_the_oracle():
    body = built(NPLMDecoder(3, 6, num_local=2, num_global=2, global_window=4, concatenation_dim=5))
    x = vectors()
    y, global_sum = formula(body.concatenation, x * DIM**0.5)
    for block in body.blocks:
        inner = np.maximum(y @ value(block.ffn_in.kernel) + value(block.ffn_in.bias), 0.0)
        y = y + inner @ value(block.ffn_out.kernel) + value(block.ffn_out.bias)
        y = oracle.layer_norm(y, value(block.ffn_norm.gamma), value(block.ffn_norm.beta)) + global_sum
    np.testing.assert_allclose(runner(body)(x), y, rtol=0, atol=1e-5 * np.abs(y).max())


@pytest.mark.once
def test_an_nplm_needs_no_length_for_its_state():
    body = built(NPLMDecoder(2, 6, num_local=2, num_global=3, global_window=4))
    assert tuple(body.initial_state(3).shape) == (3, 1 + 4, DIM)


def test_elements_of_a_transformer():
    """A concatenation, a feed-forward layer alone, and a block with attention: a pass, steps, a config."""
    elements = [
        ContextConcatenation(2, num_global=1, global_window=3),
        TransformerBlock(6, normalize_first=False),
        TransformerBlock(6, CausalAttention(2)),
    ]
    decoder, x = built(TransformerDecoder(elements, DIM)), vectors()
    expected = runner(decoder)(x)
    state, step, parts = decoder.initial_state(2, LENGTH), runner(decoder.step), []
    for start, end in ((0, 4), (4, LENGTH)):
        part, state = step(x[:, start:end], state)
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, atol=1e-5)
    copy = TransformerDecoder.from_config(decoder.get_config())
    assert [type(block) for block in copy.blocks] == [type(block) for block in decoder.blocks]
    assert copy.blocks[1].attention is None and len(copy.weights) == len(decoder.weights)


def test_a_block_without_a_mixer_is_a_feed_forward_layer():
    block, x = built(TransformerBlock(6)), vectors()
    norm, inner, outer = (
        [value(one) for one in part.weights] for part in (block.ffn_norm, block.ffn_in, block.ffn_out)
    )
    y = x + np.maximum(oracle.layer_norm(x, *norm) @ inner[0] + inner[1], 0.0) @ outer[0] + outer[1]
    np.testing.assert_allclose(runner(block)(x), y, atol=1e-5)
    assert block.count_params() == 2 * DIM + 2 * 6 * DIM + 6 + DIM
    assert block.initial_state(2, LENGTH, DIM) == ()
    assert block.activations_per_token(LENGTH, DIM) == 3 * DIM + 2 * 6


@pytest.mark.once
def test_values_that_are_kept_for_the_backward_pass():
    assert ContextConcatenation(5).activations_per_token(LENGTH, DIM) == 4 * DIM
    assert ContextConcatenation(5, hidden_dim=7, dropout=0.1).activations_per_token(LENGTH, DIM) == 4 * DIM + 7
    body = built(NPLMDecoder(3, 6, num_local=5))
    assert body.activations_per_token(LENGTH) == 4 * DIM + 2 * (3 * DIM + 2 * 6)


@pytest.mark.once
def test_starting_values():
    layer = ContextConcatenation(3, num_global=2, global_window=4, hidden_dim=64)
    layer.build((None, None, 64))
    np.testing.assert_array_equal(value(layer.global_kernels), np.full((2, 4), 0.25))
    for dense, fan_in in ((layer.hidden, 5 * 64), (layer.out, 64)):
        assert 0.9 * fan_in**-0.5 < np.abs(value(dense.kernel)).max() <= fan_in**-0.5


def test_dropout_falls_on_the_branch():
    layer, x = built(ContextConcatenation(3, dropout=0.999, normalize=False)), vectors()
    total = oracle.context_product(x, value(layer.hidden.kernel), value(layer.hidden.bias), num_local=3)[1]
    kept = np.abs(runner(lambda x: layer(x, training=True))(x) - total) < 1e-5
    assert kept.mean() > 0.8


@pytest.mark.once
def test_config_keeps_everything():
    options = {"num_global": 2, "global_window": 4, "aggregate": "average", "hidden_dim": 5, "dropout": 0.1}
    layer = ContextConcatenation(3, normalize=False, **options)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert copy.get_config() == layer.get_config()
    assert copy.norm is None and {name: getattr(copy, name) for name in options} == options
