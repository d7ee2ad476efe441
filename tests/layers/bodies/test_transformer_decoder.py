import numpy as np
import pytest

from keras_adaptive.layers import CausalAttention, TransformerBlock, TransformerDecoder
from tests import oracle
from tests.backends import runner
from tests.weights import block_weights, randomize, value


def build(decoder, dim):
    decoder.build((None, None, dim))
    randomize(decoder)
    return decoder


@pytest.mark.parametrize("input_dim, first_position", [(8, 2), (6, 0)])
def test_equals_the_oracle(input_dim, first_position):
    decoder = build(TransformerDecoder(2, 8, 12, 2, first_position=first_position), input_dim)
    x = np.random.default_rng(0).normal(size=(2, 5, input_dim)).astype("float32")
    projection = None if decoder.projection is None else value(decoder.projection.kernel)
    expected = oracle.decoder(x, map(block_weights, decoder.blocks), 2, projection, first_position)
    np.testing.assert_allclose(runner(decoder)(x), expected[-1], atol=1e-5)


def test_number_of_weights():
    decoder = build(TransformerDecoder(1, 8, 12, 2), 8)
    assert decoder.count_params() == 4 * (8 * 8 + 8) + (8 * 12 + 12) + (12 * 8 + 8) + 4 * 8
    projected = build(TransformerDecoder(1, 8, 12, 2), 6)
    assert projected.count_params() == decoder.count_params() + 6 * 8  # no bias, no norm, no positions


def test_starting_values():
    block = TransformerBlock(ffn_dim=256, num_heads=2)
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


def test_attention_dropout_falls_on_the_probabilities():
    attention = CausalAttention(2, dropout=0.999)
    x = np.random.default_rng(0).normal(size=(1, 4, 8)).astype("float32")
    attention.build(x.shape)
    assert np.count_nonzero(np.abs(runner(lambda x: attention(x, training=True))(x)) > 1e-6) < 16
    assert np.count_nonzero(runner(attention)(x)) == 32


def test_heads_must_divide_the_dimension():
    with pytest.raises(ValueError, match="`num_heads` must divide the dimension 8. Received: num_heads=3"):
        CausalAttention(3).build((None, None, 8))
