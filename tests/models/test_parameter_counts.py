"""The sizes of the paper's models (Baevski and Auli 2019, tables 2 and 3), counted without memory for the weights."""

import math

import keras
import pytest

from keras_adaptive.models import transformer_lm

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "tied, parameters, of_the_softmax", [(True, 246_933_504, 44_015_616 + 2 * 1024), (False, 291_276_800, 44_345_344)]
)
def test_wikitext103(tied, parameters, of_the_softmax):
    with keras.StatelessScope(initialize_variables=False):
        model = transformer_lm(267_744, num_heads=16, tie_words=tied)
    assert model.count_params() == parameters
    assert sum(math.prod(table.shape) for table in model.word_input.tables) == 44_015_616
    softmax = model.word_output
    own = [*softmax.tables, softmax.class_table, *(p for p in softmax.projections if p is not None)]
    assert sum(math.prod(variable.shape) for variable in own) == of_the_softmax
    assert sum(block.count_params() for block in model.body.blocks) == 201_539_584
