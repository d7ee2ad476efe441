"""Empty data, and steps that fail: refused in one line, and the model stays whole."""

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.models import WordModel
from tests.support.backends import BACKEND
from tests.support.tiny import VOCABULARY, batch, language_model, weights_of

TOKENS, TARGETS, WEIGHTS = batch(4)
NO_ROWS, NO_TOKENS = (slice(0), slice(None)), (slice(None), slice(0))


def word_model():
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Dense(8)(AdaptiveEmbedding(VOCABULARY, 8, (5,), factor=2)(ids))
    return WordModel(ids, hidden, word_output=AdaptiveSoftmax(VOCABULARY, (5,), factor=2))


@pytest.fixture(scope="module", params=[language_model, word_model], ids=["LanguageModel", "WordModel"])
def model(request):
    model = request.param()
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=BACKEND == "tensorflow")
    return model


def loops(model):
    """The methods that take generators, with their names."""
    return {
        "fit": lambda data: model.fit(data, shuffle=False, verbose=0),
        "evaluate": lambda data: model.evaluate(data, verbose=0),
    }


def assert_whole(model, before):
    assert all(map(np.array_equal, weights_of(model), before))
    assert np.isfinite(model.evaluate(TOKENS, TARGETS, verbose=0)[0])


@pytest.mark.parametrize("part", [NO_ROWS, NO_TOKENS], ids=["no rows", "no tokens"])
def test_empty_arrays_are_refused(model, part):
    before = weights_of(model)
    for method in (model.fit, model.evaluate, model.train_on_batch, model.test_on_batch):
        with pytest.raises(ValueError, match="at least one row and one token. Received: shape="):
            method(TOKENS[part], TARGETS[part])
    for method in (model.predict, model.predict_on_batch):
        with pytest.raises(ValueError, match="at least one row and one token. Received: shape="):
            method(TOKENS[part])
    assert_whole(model, before)


class Nothing(keras.utils.PyDataset):
    """A data set without batches."""

    def __len__(self):
        return 0


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_data_without_batches_are_refused(model):
    before = weights_of(model)
    for name, method in loops(model).items():
        with pytest.raises(ValueError, match=f"`{name}` needs at least one batch|has length 0"):
            method(Nothing())
    assert_whole(model, before)


def test_batches_without_tokens_are_refused(model):
    before = weights_of(model)
    for method in loops(model).values():
        with pytest.raises(Exception, match="at least one row and one token"):
            method(one for one in [(TOKENS[:, :0], TARGETS[:, :0])])
    assert_whole(model, before)


def test_missing_targets_are_refused(model):
    before = weights_of(model)
    for method in (model.fit, model.evaluate, model.train_on_batch, model.test_on_batch):
        with pytest.raises(ValueError, match="pass the ids of the next words as `y`.* Received: y=None"):
            method(TOKENS)
    for method in loops(model).values():
        with pytest.raises(ValueError, match="pass the ids of the next words as `y`.* Received: y=None"):
            method(one for one in [(TOKENS,)])
    assert_whole(model, before)


def test_a_step_that_fails_leaves_the_model_whole(model):
    before = weights_of(model)
    for method in loops(model).values():
        with pytest.raises(Exception):  # noqa: B017 (each backend has its own)
            method(one for one in [(TOKENS, TARGETS[:, :3])])
    with pytest.raises(Exception):  # noqa: B017
        model.predict((one for one in [np.zeros((2, 3, 4, 5), "float32")]), verbose=0)
    assert_whole(model, before)


def test_a_file_of_another_format_is_refused(model, tmp_path):
    for name in ("model.h5", "model.hdf5"):
        with pytest.raises(ValueError, match="is saved as a `.keras` file. Received: filepath=.*model.h"):
            model.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
