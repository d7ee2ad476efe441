"""The Transformer against the numbers of the published implementations, block by block."""

import numpy as np
import pytest

from keras_adaptive.models import transformer_lm
from tests.support.backends import runner
from tests.support.weights import check_published_gradients, published


@pytest.fixture(scope="module")
def read(golden):
    """`read(name, positions)` is the arrays of a case, the model of it, and where its variables lie in the arrays."""
    return lambda name, positions="sinusoidal": case_of(*golden(name), positions)


@pytest.fixture(scope="module")
def case(read):
    return read("transformer_lm")


def case_of(arrays, config, positions):
    args = config["args"]
    model = transformer_lm(
        config["vocab"],
        dim=args["decoder_embed_dim"],
        num_blocks=args["decoder_layers"],
        num_heads=args["decoder_attention_heads"],
        ffn_dim=args["decoder_ffn_embed_dim"],
        cutoffs=[int(cutoff) for cutoff in args["adaptive_softmax_cutoff"].split(",")],
        positions=positions,
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


def test_alibi_also_at_three_times_the_length_of_training(read):
    arrays, model, pairs = read("alibi", "alibi")
    arrays |= {f"in/{ours}": arrays[f"in/{theirs}"] for ours, theirs in (("src_tokens", "src"), ("targets", "target"))}
    for suffix in ("", "_long"):
        tokens, targets = (arrays[f"in/{name}{suffix}"].astype("int32") for name in ("src", "target"))
        nll = np.where(targets != 1, model.nll(tokens, targets), 0)
        np.testing.assert_allclose(nll, arrays[f"out/nll{suffix}"], atol=2e-5)
    hidden = runner(model)(arrays["in/src_long"].astype("int32")[:1])
    np.testing.assert_allclose(hidden[0], arrays["out/hidden_long_2"], atol=1e-5)
    check_published_gradients(model, arrays, [(variable, read(arrays, "grad")) for variable, read in pairs])
