"""Models that version 0.1 saved still load: their configs, weights, seeds and optimizers, and what they predict."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_adaptive  # noqa: F401 (registers the classes of the files)

FOLDER = Path(__file__).parent / "of_version_0_1"


def flat(variables):
    return np.concatenate([keras.ops.convert_to_numpy(variable.value).ravel() for variable in variables])


@pytest.fixture(scope="module", params=["transformer_lm", "learned_positions"])
def case(request):
    """A loaded model, and what version 0.1 says of it."""
    with np.load(FOLDER / "expected.npz") as arrays:
        expected = {name: arrays[f"{request.param}/{name}"] for name in ("log_probs", "weights", "optimizer", "seeds")}
        expected["tokens"] = arrays["tokens"]
    return keras.saving.load_model(FOLDER / f"{request.param}.keras"), expected


def test_predictions_are_the_same(case):
    model, expected = case
    np.testing.assert_allclose(model.log_probs(expected["tokens"]), expected["log_probs"], atol=1e-5)


def test_variables_are_in_the_same_order(case):
    """Checkpoints of training hold the variables by their order."""
    model, expected = case
    weights = [variable for variable in model.variables if variable.dtype == "float32"]
    np.testing.assert_array_equal(flat(weights), expected["weights"])
    np.testing.assert_array_equal(flat(model.optimizer.variables), expected["optimizer"])
    seeds = [variable for variable in model.variables if "seed_generator" in variable.path]
    np.testing.assert_array_equal(flat(seeds), expected["seeds"].ravel())


def test_hyper_parameters_are_the_same(case):
    model, _ = case
    block = model.body.blocks[1]
    found = [model.body.dropout, block.dropout, block.attention.dropout, block.activation_dropout, block.activation]
    if model.body.max_length is None:
        assert found == [0.1, 0.1, 0.2, 0.3, "relu"]
    else:
        assert (*found, model.body.max_length) == (0.1, 0.1, 0.0, 0.0, "gelu", 9)
        with pytest.raises(ValueError, match="has learned 9 positions"):
            model.body.initial_state(1, 10)


def test_saved_again_it_is_the_same(case, tmp_path):
    model, expected = case
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert json.dumps(again.body.get_config()) == json.dumps(model.body.get_config())
    np.testing.assert_allclose(again.log_probs(expected["tokens"]), expected["log_probs"], atol=1e-5)
