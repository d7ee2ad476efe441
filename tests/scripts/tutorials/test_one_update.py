"""The update from first principles, against `fit`, and docs/one_update.md, which shows the whole file."""

import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.models import transformer_lm
from keras_adaptive.optimizers import NAG
from scripts.tutorials import one_update
from tests.support.backends import numpy
from tests.support.pages import examples
from tests.support.tiny import batch
from tests.support.weights import block_variables, randomize

WORDS, CUTOFFS, HEADS = 20, (5, 12), 2
NAMES = ("query", "key", "value", "out", "ffn_in", "ffn_out", "attention_norm", "ffn_norm")
STEP = {"rate": 0.5, "momentum": 0.9, "bound": 0.1}


def variables_of(model):
    """Returns the variables of a model in the structure of the weights of the file."""
    embedding, blocks = model.word_input, map(block_variables, model.body.blocks)
    pairs = [{name: [] for name in NAMES} for _ in model.body.blocks]
    for pair, variables in zip(pairs, blocks):
        for name, variable in variables.items():
            pair[name.split("/")[0]].append(variable)
    tables, projections = list(embedding.tables), list(embedding.projections)
    return {"tables": tables, "projections": projections, "blocks": pairs, "classes": model.word_output.class_table}


def read(variables):
    return keras.tree.map_structure(lambda variable: ops.copy(ops.convert_to_tensor(variable.value)), variables)


@pytest.mark.parametrize("tied", [True, False])
def test_two_updates_are_those_of_fit(tied):
    """The second one has a momentum. Padding has weight 0. A model with tables of its own makes other updates."""
    model = transformer_lm(
        WORDS, dim=8, num_blocks=1, num_heads=HEADS, ffn_dim=12, cutoffs=CUTOFFS, factor=2, tie_words=tied
    )
    randomize(model)
    if not tied:
        for own, table in zip(model.word_output.tables, model.word_input.tables, strict=True):
            own.assign(table.numpy())
    variables = variables_of(model)
    weights = read(variables)
    momentums = keras.tree.map_structure(ops.zeros_like, weights)
    model.compile(NAG(STEP["rate"], STEP["momentum"], global_clipnorm=STEP["bound"]))
    assert (len(keras.tree.flatten(variables)) == len(model.trainable_variables)) == tied
    for seed in range(2):
        tokens, targets, counts = batch(4, seed)
        logs = model.fit(tokens, targets, sample_weight=counts, batch_size=4, shuffle=False, verbose=0).history
        given = [ops.convert_to_tensor(array) for array in (tokens, targets, counts)]
        weights, momentums, loss, norm = one_update.update(weights, momentums, given, HEADS, **STEP)
        assert float(numpy(norm)) > STEP["bound"]
        if tied:
            assert float(numpy(loss)) == pytest.approx(logs["loss"][0], rel=1e-6)
            assert float(numpy(norm)) == pytest.approx(logs["gradient_norm"][0], rel=1e-5)
    pairs = zip(*map(keras.tree.flatten, (weights, read(variables))), strict=True)
    differences = [float(numpy(ops.max(ops.abs(one - other)))) for one, other in pairs]
    assert (max(differences) < 1e-6) == tied, differences


@pytest.mark.once
def test_the_loss_falls(capsys):
    losses = one_update.main(words=60, cutoffs=(10, 30), dim=16, updates=4)
    assert np.all(np.diff(losses) < 0)
    assert capsys.readouterr().out.count("update ") == 4


@pytest.mark.once
def test_the_page_shows_the_file():
    docstring, code = inspect.getsource(one_update).removeprefix('"""').split('"""', 1)
    assert "docs/one_update.md" in docstring
    lines = [line for line in code.splitlines() if line]
    assert [line for block in examples("docs/one_update.md") for line in block.splitlines() if line] == lines
