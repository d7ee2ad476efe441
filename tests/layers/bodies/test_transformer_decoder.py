import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import CausalAttention, LearnedPositions, TransformerBlock, TransformerDecoder
from keras_adaptive.layers.bodies.transformer_block import ACTIVATIONS
from keras_adaptive.models import transformer
from tests.support import oracle
from tests.support.backends import numpy, runner
from tests.support.toy_body import ToyMixer
from tests.support.weights import block_weights, randomize, value


def build(decoder, dim):
    decoder.build((None, None, dim))
    randomize(decoder)
    return decoder


@pytest.mark.parametrize("input_dim, first_position", [(8, 2), (6, 0)])
def test_equals_the_oracle(input_dim, first_position):
    decoder = build(transformer(num_blocks=2, dim=8, ffn_dim=12, num_heads=2, first_position=first_position), input_dim)
    x = np.random.default_rng(0).normal(size=(2, 5, input_dim)).astype("float32")
    projection = None if decoder.projection is None else value(decoder.projection.kernel)
    expected = oracle.decoder(x, map(block_weights, decoder.blocks), 2, projection, first_position)
    np.testing.assert_allclose(runner(decoder)(x), expected[-1], atol=1e-5)


@pytest.mark.parametrize("activation, normalize_first", [("gelu", False), ("relu_squared", True)])
def test_a_block_equals_the_oracle(activation, normalize_first):
    block = build(TransformerBlock(12, CausalAttention(2), activation=activation, normalize_first=normalize_first), 8)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    expected = oracle.block(x, block_weights(block), 2, activation, normalize_first)
    np.testing.assert_allclose(runner(block)(x), expected, atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_the_oracle(name):
    x = np.linspace(-4, 4, 33, dtype="float32")
    np.testing.assert_allclose(
        numpy(ACTIVATIONS[name](ops.convert_to_tensor(x))), oracle.ACTIVATIONS[name](x), atol=2e-6
    )


def test_what_enters_and_leaves_equals_the_oracle():
    blocks = [TransformerBlock(12, CausalAttention(2))]
    options = {"scale_input": False, "input_norm": True, "final_norm": True, "output_dim": 6}
    decoder = TransformerDecoder(blocks, 8, positions=LearnedPositions(5), **options)
    build(decoder, 8)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    y = oracle.layer_norm(x + value(decoder.positions.table)[2:], *map(value, decoder.input_norm.trainable_variables))
    y = oracle.block(y, block_weights(decoder.blocks[0]), 2)
    y = oracle.layer_norm(y, *map(value, decoder.final_norm.trainable_variables))
    np.testing.assert_allclose(runner(decoder)(x), y @ value(decoder.output_projection.kernel), atol=1e-5)


@pytest.mark.once
def test_number_of_weights():
    decoder = build(transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2), 8)
    assert decoder.count_params() == 4 * (8 * 8 + 8) + (8 * 12 + 12) + (12 * 8 + 8) + 4 * 8
    projected = build(transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2), 6)
    assert projected.count_params() == decoder.count_params() + 6 * 8  # no bias, no norm, no positions


@pytest.mark.once
def test_starting_values():
    block = TransformerBlock(256, CausalAttention(2))
    block.build((None, None, 64))
    weights = block_weights(block)
    bounds = {
        **{f"{name}/kernel": np.sqrt(0.5 * 6 / 128) for name in ("query", "key", "value")},
        **{f"{name}/bias": 1 / 8 for name in ("query", "key", "value")},
        "out/kernel": np.sqrt(6 / 128),
        **{f"ffn_in/{kind}": 1 / 8 for kind in ("kernel", "bias")},
        **{f"ffn_out/{kind}": 1 / 16 for kind in ("kernel", "bias")},
    }
    for name, bound in bounds.items():
        assert 0.9 * bound < np.abs(weights[name]).max() <= bound, name
    assert not weights["out/bias"].any()
    different = [weights[f"{name}/kernel"] for name in ("query", "key", "value")]
    assert not np.allclose(different[0], different[1]) and not np.allclose(different[1], different[2])


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
    decoder = build(TransformerDecoder(blocks, 8), 8)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    weights, (first, second) = block_weights(decoder.blocks[1]), decoder.blocks
    norms = [map(value, norm.trainable_variables) for norm in (first.attention_norm, first.ffn_norm)]
    inner, outer = ([value(dense.kernel), value(dense.bias)] for dense in (first.ffn_in, first.ffn_out))
    y = x * np.sqrt(8)
    y = y + np.cumsum(oracle.layer_norm(y, *norms[0]), axis=1) / np.arange(1, 6)[:, None]
    y = y + np.maximum(oracle.layer_norm(y, *norms[1]) @ inner[0] + inner[1], 0) @ outer[0] + outer[1]
    expected = oracle.block(y, weights, 2)
    np.testing.assert_allclose(runner(decoder)(x), expected, atol=1e-5)
    state, step, parts = decoder.initial_state(2, 5), runner(decoder.step), []
    for start, end in ((0, 1), (1, 5)):
        part, state = step(x[:, start:end], state)
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, atol=1e-5)
    copy = TransformerDecoder.from_config(decoder.get_config())
    assert [type(block.attention) for block in copy.blocks] == [ToyMixer, CausalAttention]
    assert decoder.activations_per_token(5) == second.activations_per_token(5, 8) + 6 * 8 + 2 * 12
