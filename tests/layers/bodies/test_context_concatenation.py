"""ContextConcatenation and the NPLM's body: the formulas of the paper, and what only they have."""

import numpy as np
import pytest

from keras_adaptive import layers
from keras_adaptive.layers import ContextConcatenation, NPLMDecoder, TransformerBlock
from tests.support import oracle
from tests.support.backends import runner
from tests.support.closeness import all_close, close
from tests.support.steps import changed_at_each_token, in_steps
from tests.support.weights import built, value, values

LENGTH, DIM = 9, 4
OPTIONS = {
    "local only": {"num_local": 3},
    "a hidden layer": {"num_local": 2, "hidden_dim": 5},
    "kernels": {"num_local": 2, "num_global": 2, "global_window": 3, "hidden_dim": 5},
    "two means": {"num_local": 3, "num_global": 2, "global_window": 2, "aggregate": "average"},
    "a window longer than the text": {"num_local": 2, "num_global": 1, "global_window": 30},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def vectors(length=LENGTH, seed=0):
    return np.random.default_rng(seed).normal(size=(2, length, DIM)).astype("float32")


def formula(layer, x):
    """The output of a ContextConcatenation and the sum of its global blocks, in float64."""
    local, size, blocks = layer.num_local, layer.global_window, range(layer.num_global)
    if layer.num_global and layer.aggregate == "average":
        filters = [np.repeat([0, 1 / size], [local + block * size, size]) for block in blocks]
    else:
        filters = [np.concatenate([np.zeros(local), value(layer.global_kernels)[block]]) for block in blocks]
    weights = [values(part) for part in (layer.hidden, layer.out, layer.norm) if part is not None]
    return oracle.context_concatenation(x.astype("float64"), local, filters, weights)


@every_option
def test_a_pass_and_steps_are_those_of_the_oracle(options):
    layer, x = built(ContextConcatenation(**options), DIM), vectors()
    expected, global_sum = formula(layer, x)
    y, *found = runner(lambda x: [part for part in layer.mix(x) if part is not None])(x)
    close(y, expected, 1e-5, least=0.0)
    all_close(found, [global_sum] * (layer.num_global > 0), atol=1e-5)
    np.testing.assert_array_equal(runner(layer)(x), y)
    start = layer.initial_state(2, None, DIM)
    y, states = in_steps(runner(layer.step), x, start, [1, 1, LENGTH - 2], position=True)
    close(y, expected, 1e-5, least=0.0)
    assert {state.shape for state in states} == {tuple(start.shape)}  # the same after any number of tokens


@every_option
def test_a_changed_token_changes_nothing_before_it(options):
    layer, x = built(ContextConcatenation(**options), DIM), vectors()
    run = runner(layer)
    before = run(x)
    for token, after in changed_at_each_token(run, x):
        np.testing.assert_array_equal(after[:, :token], before[:, :token])


def test_without_a_norm_it_returns_the_sum():
    layer, x = built(ContextConcatenation(2, normalize=False), DIM), vectors()
    product, total = oracle.context_product(x.astype("float64"), *values(layer.hidden), num_local=2)
    np.testing.assert_allclose(runner(layer)(x), total + np.maximum(product, 0.0), rtol=0, atol=1e-5)


def test_an_nplm_is_that_of_the_oracle():
    body = built(NPLMDecoder(3, 6, num_local=2, num_global=2, global_window=4, concatenation_dim=5), DIM)
    x = vectors()
    y, global_sum = formula(body.concatenation, x * DIM**0.5)
    for block in body.blocks:
        inner, outer = values(block.ffn_in), values(block.ffn_out)
        y = y + np.maximum(y @ inner[0] + inner[1], 0.0) @ outer[0] + outer[1]
        y = oracle.layer_norm(y, *values(block.ffn_norm)) + global_sum
    close(runner(body)(x), y, 1e-5, least=0.0)


@pytest.mark.once
def test_an_nplm_needs_no_length_for_its_state():
    body = built(NPLMDecoder(2, 6, num_local=2, num_global=3, global_window=4), DIM)
    assert tuple(body.initial_state(3).shape) == (3, 1 + 4, DIM)


def test_elements_of_a_transformer():
    """A concatenation, a feed-forward layer alone, and a block with attention: a pass, steps, a config."""
    elements = [ContextConcatenation(2, num_global=1, global_window=3)]
    elements += [TransformerBlock(6, normalize_first=False), TransformerBlock(6, layers.CausalAttention(2))]
    decoder, x = built(layers.TransformerDecoder(elements, DIM), DIM), vectors()
    expected = runner(decoder)(x)
    y, _ = in_steps(runner(decoder.step), x, decoder.initial_state(2, LENGTH), [4, LENGTH - 4])
    np.testing.assert_allclose(y, expected, atol=1e-5)
    copy = layers.TransformerDecoder.from_config(decoder.get_config())
    assert [type(block) for block in copy.blocks] == [type(block) for block in decoder.blocks]
    assert copy.blocks[1].attention is None and len(copy.weights) == len(decoder.weights)


def test_a_block_without_a_mixer_is_a_feed_forward_layer():
    block, x = built(TransformerBlock(6), DIM), vectors()
    norm, inner, outer = map(values, (block.ffn_norm, block.ffn_in, block.ffn_out))
    y = x + np.maximum(oracle.layer_norm(x, *norm) @ inner[0] + inner[1], 0.0) @ outer[0] + outer[1]
    np.testing.assert_allclose(runner(block)(x), y, atol=1e-5)
    assert block.count_params() == 2 * DIM + 2 * 6 * DIM + 6 + DIM
    assert block.initial_state(2, LENGTH, DIM) == ()
    assert block.activations_per_token(LENGTH, DIM) == 3 * DIM + 2 * 6


@pytest.mark.once
def test_values_that_are_kept_for_the_backward_pass():
    assert ContextConcatenation(5).activations_per_token(LENGTH, DIM) == 4 * DIM
    assert ContextConcatenation(5, hidden_dim=7, dropout=0.1).activations_per_token(LENGTH, DIM) == 4 * DIM + 7
    body = built(NPLMDecoder(3, 6, num_local=5), DIM)
    assert body.activations_per_token(LENGTH) == 4 * DIM + 2 * (3 * DIM + 2 * 6)


@pytest.mark.once
def test_starting_values():
    layer = ContextConcatenation(3, num_global=2, global_window=4, hidden_dim=64)
    layer.build((None, None, 64))
    np.testing.assert_array_equal(value(layer.global_kernels), np.full((2, 4), 0.25))
    for dense, fan_in in ((layer.hidden, 5 * 64), (layer.out, 64)):
        assert 0.9 * fan_in**-0.5 < np.abs(value(dense.kernel)).max() <= fan_in**-0.5


def test_dropout_falls_on_the_branch():
    layer, x = built(ContextConcatenation(3, dropout=0.999, normalize=False), DIM), vectors()
    total = oracle.context_product(x, *values(layer.hidden), num_local=3)[1]
    kept = np.abs(runner(lambda x: layer(x, training=True))(x) - total) < 1e-5
    assert kept.mean() > 0.8
