"""Functions that put together models and bodies; the toy body knows nothing but `initial_state` and `step`."""

import math
from functools import partial

import keras
import numpy as np
import pytest

from keras_adaptive.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    ContextConcatenation,
    TransformerDecoder,
    WordEmbedding,
)
from keras_adaptive.models import Dropout, LanguageModel, assemble, hybrid_transformer, transformer, transformer_lm
from keras_adaptive.optimizers import NAG
from tests.support.tiny import VOCABULARY, batch, compiled
from tests.support.toy_body import ToyBody

pytestmark = [pytest.mark.usefixtures("eager_predictions"), pytest.mark.once]
SIZES = {"num_blocks": 2, "dim": 8, "ffn_dim": 12, "num_heads": 2}


def toy_model(tied, dtype=None):
    make_input, make_output = partial(WordEmbedding, VOCABULARY, 4), partial(AdaptiveSoftmax, VOCABULARY, cutoffs=())
    return assemble(make_input, partial(ToyBody, 4, dropout=0.1), make_output, tied=tied, dtype=dtype)


@pytest.mark.parametrize("tied, dtype, policy", [(True, None, "float32"), (False, "mixed_bfloat16", "mixed_bfloat16")])
def test_parts_get_names_dtypes_and_the_tie(tied, dtype, policy):
    model = toy_model(tied, dtype)
    parts = [model.word_input, model.body, model.word_output]
    assert isinstance(model, LanguageModel)
    assert [part.name for part in parts] == ["word_input", "body", "word_output"]
    assert {part.dtype_policy.name for part in parts} == {policy}
    assert model.word_output.tied_to is (model.word_input if tied else None)


@pytest.mark.each_backend
def test_a_toy_body_makes_a_language_model(tmp_path):
    model, (tokens, targets, weights) = toy_model(tied=True), batch(4)
    compiled(model, NAG(1.0, momentum=0.9, global_clipnorm=1.0))
    losses = model.fit(tokens, targets, sample_weight=weights, batch_size=4, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    nll, log_probs = model.nll(tokens, targets), model.log_probs(tokens)
    scored, _ = model.score(tokens, targets, segment=3)
    np.testing.assert_allclose(scored, -nll, atol=1e-5)
    words = model.generate(tokens, 1, temperature=0)
    np.testing.assert_array_equal(words[:, 0], log_probs[:, -1].argmax(axis=-1))
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras").nll(tokens, targets), nll)


def test_the_transformer_has_the_dtype_throughout():
    body = transformer(dtype="mixed_bfloat16", name="other", **SIZES)
    layers = [body, body.positions, *body.blocks, *(block.attention for block in body.blocks)]
    assert body.name == "other" and {layer.dtype_policy.name for layer in layers} == {"mixed_bfloat16"}


def test_hyper_parameters_of_the_language_model_reach_their_parts():
    rates = Dropout(0.1, 0.2, 0.3, 0.4, 0.5)
    model = transformer_lm(20, dim=8, num_blocks=2, num_heads=4, ffn_dim=12, cutoffs=(5,), factor=2, dropout=rates)
    body, block, softmax = model.body, model.body.blocks[1], model.word_output
    assert isinstance(model.word_input, AdaptiveEmbedding) and isinstance(body, TransformerDecoder)
    assert (model.word_input.dimensions, model.word_input.boundaries) == ((8, 4), softmax.boundaries)
    assert (body.dim, len(body.blocks), body.positions.first_position, block.ffn_dim) == (8, 2, 2, 12)
    found = body.dropout, block.attention.dropout, block.activation_dropout, softmax.tail_dropout, softmax.input_dropout
    assert found == rates and block.dropout == 0.1 and block.attention.num_heads == 4
    plain = transformer_lm(20, dim=8, num_blocks=1, num_heads=2, ffn_dim=12, cutoffs=(5,), factor=2, dropout=0.1)
    assert (plain.body.dropout, plain.body.blocks[0].dropout, plain.word_output.tail_dropout) == (0.1, 0.1, 0.0)


def test_by_default_a_hybrid_is_the_plain_transformer_of_the_paper():
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


@pytest.mark.parametrize("attention_window", [None, 0])
def test_transformer_n_concatenates_before_the_first_block(attention_window):
    averages = {"num_local": 5, "num_global": 1, "global_window": 6}
    body = hybrid_transformer(attention_window=attention_window, dropout=0.1, **averages, **SIZES)
    first, *blocks = body.blocks
    assert isinstance(first, ContextConcatenation)
    config = first.get_config()
    assert {name: config[name] for name in averages} == averages and config["dropout"] == 0.1
    assert [block.attention is not None for block in blocks] == [attention_window is None, True]


@pytest.mark.parametrize(
    "tied, parameters, of_the_softmax", [(True, 246_933_504, 44_015_616 + 2 * 1024), (False, 291_276_800, 44_345_344)]
)
def test_parameters_of_the_paper(tied, parameters, of_the_softmax):
    """The models for WikiText-103 (Baevski and Auli 2019, tables 2 and 3), counted without memory for the weights."""
    with keras.StatelessScope(initialize_variables=False):
        model = transformer_lm(267_744, num_heads=16, tie_words=tied)
    assert model.count_params() == parameters
    assert sum(math.prod(table.shape) for table in model.word_input.tables) == 44_015_616
    softmax = model.word_output
    own = [*softmax.tables, softmax.class_table, *(p for p in softmax.projections if p is not None)]
    assert sum(math.prod(variable.shape) for variable in own) == of_the_softmax
    assert sum(block.count_params() for block in model.body.blocks) == 201_539_584
