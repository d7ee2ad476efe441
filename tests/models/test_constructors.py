"""`assemble` puts together any parts: here with the toy body, which knows nothing but `initial_state` and `step`."""

from functools import partial

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, TransformerDecoder, WordEmbedding
from keras_adaptive.models import Dropout, LanguageModel, assemble, transformer, transformer_lm
from keras_adaptive.optimizers import NAG
from tests.support.backends import BACKEND
from tests.support.tiny import VOCABULARY, batch
from tests.support.toy_body import ToyBody

pytestmark = pytest.mark.usefixtures("eager_predictions")


def toy_model(tied, dtype=None):
    make_input, make_output = partial(WordEmbedding, VOCABULARY, 4), partial(AdaptiveSoftmax, VOCABULARY, cutoffs=())
    return assemble(make_input, partial(ToyBody, 4, dropout=0.1), make_output, tied=tied, dtype=dtype)


@pytest.mark.parametrize("tied, dtype, policy", [(True, None, "float32"), (False, "mixed_bfloat16", "mixed_bfloat16")])
@pytest.mark.once
def test_parts_get_names_dtypes_and_the_tie(tied, dtype, policy):
    model = toy_model(tied, dtype)
    parts = [model.word_input, model.body, model.word_output]
    assert isinstance(model, LanguageModel)
    assert [part.name for part in parts] == ["word_input", "body", "word_output"]
    assert {part.dtype_policy.name for part in parts} == {policy}
    assert model.word_output.tied_to is (model.word_input if tied else None)


def test_a_toy_body_makes_a_language_model(tmp_path):
    model, (tokens, targets, weights) = toy_model(tied=True), batch(4)
    model.compile(NAG(1.0, momentum=0.9, global_clipnorm=1.0), run_eagerly=BACKEND == "tensorflow")
    losses = model.fit(tokens, targets, sample_weight=weights, batch_size=4, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    nll, log_probs = model.nll(tokens, targets), model.log_probs(tokens)
    scored, _ = model.score(tokens, targets, segment=3)
    np.testing.assert_allclose(scored, -nll, atol=1e-5)
    words = model.generate(tokens, 1, temperature=0)
    np.testing.assert_array_equal(words[:, 0], log_probs[:, -1].argmax(axis=-1))
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras").nll(tokens, targets), nll)


@pytest.mark.once
def test_the_transformer_has_the_dtype_throughout():
    body = transformer(num_blocks=2, dim=8, ffn_dim=12, num_heads=2, dtype="mixed_bfloat16", name="other")
    layers = [body, body.positions, *body.blocks, *(block.attention for block in body.blocks)]
    assert body.name == "other" and {layer.dtype_policy.name for layer in layers} == {"mixed_bfloat16"}


@pytest.mark.once
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
