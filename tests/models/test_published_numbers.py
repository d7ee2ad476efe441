"""The Transformer against the numbers of the published implementation, block by block."""

import numpy as np
import pytest

from keras_adaptive.models import transformer_lm
from tests.support.backends import runner
from tests.support.weights import check_published_gradients, published


@pytest.fixture(scope="module")
def case(golden):
    arrays, config = golden("transformer_lm")
    args = config["args"]
    model = transformer_lm(
        config["vocab"],
        dim=args["decoder_embed_dim"],
        num_blocks=args["decoder_layers"],
        num_heads=args["decoder_attention_heads"],
        ffn_dim=args["decoder_ffn_embed_dim"],
        cutoffs=[int(cutoff) for cutoff in args["adaptive_softmax_cutoff"].split(",")],
    )
    pairs = published(model.word_input, model.word_output, model.body, prefix="decoder.")
    for variable, read in pairs:
        variable.assign(read(arrays, "param"))
    assert model.count_params() == config["num_params"]
    assert len(pairs) == len(model.trainable_variables)
    return arrays, model, pairs


def test_every_block(case):
    arrays, model, _ = case
    tokens = arrays["in/src_tokens"].astype("int32")
    real = tokens != 1  # the published positions are zero at padding

    def hidden(tokens):
        vectors = model.word_input(tokens)
        outputs = [model.body.positions(vectors * 32**0.5)]
        for block in model.body.blocks:
            outputs.append(block(outputs[-1]))
        return vectors, outputs, model(tokens)

    vectors, outputs, features = runner(hidden)(tokens)
    np.testing.assert_allclose(vectors, arrays["out/embed_tokens"], atol=1e-5)
    for number, output in enumerate(outputs):
        np.testing.assert_allclose(output[real], arrays[f"out/hidden_{number}"][real], atol=1e-4)
    np.testing.assert_allclose(features[real], arrays["out/features"][real], atol=1e-4)


def test_gradients(case):
    arrays, model, pairs = case
    check_published_gradients(model, arrays, [(variable, read(arrays, "grad")) for variable, read in pairs])
