import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import CausalAttention, LearnedPositions, TransformerBlock, TransformerDecoder
from keras_adaptive.layers.bodies.transformer_block import ACTIVATIONS
from keras_adaptive.models import transformer
from tests.support import oracle
from tests.support.backends import numpy, runner
from tests.support.steps import in_steps
from tests.support.toy_body import ToyMixer
from tests.support.weights import block_weights, built, value, values


@pytest.mark.parametrize("input_dim, first_position", [(8, 2), (6, 0)])
def test_equals_the_oracle(input_dim, first_position):
    decoder = built(transformer(num_blocks=2, dim=8, ffn_dim=12, num_heads=2, first_position=first_position), input_dim)
    x = np.random.default_rng(0).normal(size=(2, 5, input_dim)).astype("float32")
    projection = None if decoder.projection is None else value(decoder.projection.kernel)
    expected = oracle.decoder(x, map(block_weights, decoder.blocks), 2, projection, first_position)
    np.testing.assert_allclose(runner(decoder)(x), expected[-1], atol=1e-5)


@pytest.mark.parametrize("activation, normalize_first", [("gelu", False), ("relu_squared", True)])
def test_a_block_equals_the_oracle(activation, normalize_first):
    block = built(TransformerBlock(12, CausalAttention(2), activation=activation, normalize_first=normalize_first), 8)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    expected = oracle.block(x, block_weights(block), 2, activation, normalize_first)
    np.testing.assert_allclose(runner(block)(x), expected, atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_the_oracle(name):
    x = np.linspace(-4, 4, 33, dtype="float32")
    y = ACTIVATIONS[name](ops.convert_to_tensor(x))
    np.testing.assert_allclose(numpy(y), oracle.ACTIVATIONS[name](x), atol=2e-6)


def test_what_enters_and_leaves_equals_the_oracle():
    blocks = [TransformerBlock(12, CausalAttention(2))]
    options = {"scale_input": False, "input_norm": True, "final_norm": True, "output_dim": 6}
    decoder = built(TransformerDecoder(blocks, 8, positions=LearnedPositions(5), **options), 8)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    y = oracle.layer_norm(x + value(decoder.positions.table)[2:], *values(decoder.input_norm))
    y = oracle.layer_norm(oracle.block(y, block_weights(decoder.blocks[0]), 2), *values(decoder.final_norm))
    np.testing.assert_allclose(runner(decoder)(x), y @ value(decoder.output_projection.kernel), atol=1e-5)


@pytest.mark.once
def test_number_of_weights():
    decoder = built(transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2), 8)
    assert decoder.count_params() == 4 * (8 * 8 + 8) + (8 * 12 + 12) + (12 * 8 + 8) + 4 * 8
    projected = built(transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2), 6)
    assert projected.count_params() == decoder.count_params() + 6 * 8  # no bias, no norm, no positions


@pytest.mark.once
def test_starting_values():
    block = TransformerBlock(256, CausalAttention(2))
    block.build((None, None, 64))
    weights = block_weights(block)
    bounds = {f"{name}/kernel": np.sqrt(0.5 * 6 / 128) for name in ("query", "key", "value")}
    bounds |= {f"{name}/bias": 1 / 8 for name in ("query", "key", "value", "ffn_in")}
    bounds |= {"out/kernel": np.sqrt(6 / 128), "ffn_in/kernel": 1 / 8, "ffn_out/kernel": 1 / 16, "ffn_out/bias": 1 / 16}
    for name, bound in bounds.items():
        assert 0.9 * bound < np.abs(weights[name]).max() <= bound, name
    assert not weights["out/bias"].any()
    query, key, value = (weights[f"{name}/kernel"] for name in ("query", "key", "value"))
    assert not np.allclose(query, key) and not np.allclose(key, value)


@pytest.mark.parametrize("window", [None, 3])
def test_attention_dropout_falls_on_the_probabilities(window):
    attention = CausalAttention(2, window=window, dropout=0.999)
    x = np.random.default_rng(0).normal(size=(1, 4, 8)).astype("float32")
    attention.build(x.shape)
    assert np.count_nonzero(np.abs(runner(lambda x: attention(x, training=True))(x)) > 1e-6) < 16
    assert np.count_nonzero(runner(attention)(x)) == 32


def test_blocks_of_different_mixers():
    """Another mixer in one block: a pass and steps agree, and a config and a file keep it."""
    blocks = [TransformerBlock(12, ToyMixer()), TransformerBlock(12, CausalAttention(2))]
    decoder = built(TransformerDecoder(blocks, 8), 8)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    first, second = decoder.blocks
    inner, outer = values(first.ffn_in), values(first.ffn_out)
    y = x * np.sqrt(8)
    y = y + np.cumsum(oracle.layer_norm(y, *values(first.attention_norm)), axis=1) / np.arange(1, 6)[:, None]
    y = y + np.maximum(oracle.layer_norm(y, *values(first.ffn_norm)) @ inner[0] + inner[1], 0) @ outer[0] + outer[1]
    expected = oracle.block(y, block_weights(second), 2)
    np.testing.assert_allclose(runner(decoder)(x), expected, atol=1e-5)
    in_pieces, _ = in_steps(runner(decoder.step), x, decoder.initial_state(2, 5), [1, 4])
    np.testing.assert_allclose(in_pieces, expected, atol=1e-5)
    copy = TransformerDecoder.from_config(decoder.get_config())
    assert [type(block.attention) for block in copy.blocks] == [ToyMixer, CausalAttention]
    assert decoder.activations_per_token(5) == second.activations_per_token(5, 8) + 6 * 8 + 2 * 12
