"""Transformer-N and Transformer-C as bodies of language models: their parts, and prediction from their state."""

from functools import partial

import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveSoftmax, ContextConcatenation, WordEmbedding
from keras_adaptive.models import assemble, hybrid_transformer
from tests.support.tiny import VOCABULARY, batch
from tests.support.weights import randomize

SIZES = {"num_blocks": 2, "dim": 8, "ffn_dim": 12, "num_heads": 2}


def test_by_default_it_is_the_plain_transformer_of_the_paper():
    body = hybrid_transformer(dropout=0.1, dtype="mixed_bfloat16", name="other", **SIZES)
    assert (body.name, body.dropout, body.positions.first_position, len(body.blocks)) == ("other", 0.1, 0, 2)
    for block in body.blocks:
        attention = block.attention
        assert (block.normalize_first, block.dropout, block.ffn_dim) == (False, 0.1, 12)
        assert (attention.window, attention.use_bias, attention.dropout) == (None, False, 0.0)
        assert {layer.dtype_policy.name for layer in (body, block, attention)} == {"mixed_bfloat16"}


def test_the_window_of_transformer_c_is_that_of_the_first_block():
    body = hybrid_transformer(attention_window=5, **SIZES)
    assert [block.attention.window for block in body.blocks] == [5, None]


@pytest.mark.parametrize("keep_attention", [True, False])
def test_transformer_n_concatenates_before_the_first_block(keep_attention):
    averages = {"num_local": 5, "num_global": 1, "global_window": 6}
    body = hybrid_transformer(keep_attention=keep_attention, dropout=0.1, **averages, **SIZES)
    first, *blocks = body.blocks
    assert isinstance(first, ContextConcatenation)
    config = first.get_config()
    assert {name: config[name] for name in averages} == averages and config["dropout"] == 0.1
    assert [block.attention is not None for block in blocks] == [keep_attention, True]


@pytest.fixture(scope="module")
def model():
    context = {"attention_window": 3, "num_local": 2, "num_global": 1, "global_window": 2}
    make_body = partial(hybrid_transformer, **context, **SIZES)
    make_output = partial(AdaptiveSoftmax, VOCABULARY, (5,), use_bias=True)
    model = assemble(partial(WordEmbedding, VOCABULARY, 8), make_body, make_output, tied=True)
    randomize(model)
    return model


def test_segments_continue_from_the_state(model):
    tokens, targets, _ = batch(2)
    np.testing.assert_allclose(model.nll(tokens, targets, segment=2), model.nll(tokens, targets), atol=1e-5)


def test_generation_with_a_cache_takes_the_most_probable_words(model):
    prompt = batch(2)[0]
    words = model.generate(prompt, 4, temperature=0)
    text = np.concatenate([prompt, words], axis=1)
    best = model.log_probs(text).argmax(axis=-1)
    np.testing.assert_array_equal(best[:, prompt.shape[1] - 1 : -1], words)
