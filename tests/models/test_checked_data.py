"""Empty data, ids outside the vocabulary and steps that fail: refused in one line, and the model stays whole."""

import keras
import numpy as np
import pytest

from keras_adaptive.backend.wide_ids import as_int32
from keras_adaptive.models import WordModel
from tests.support.backends import BACKEND, numpy
from tests.support.refusals import refused
from tests.support.tiny import batch, compiled, language_model, weights_of, word_model

pytestmark = [
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),  # of a generator
    pytest.mark.usefixtures("eager_predictions"),
]

TOKENS, TARGETS, _ = batch(4)
BAD = {  # what a cast to int32 would make words of
    "int64": np.int64(2**32 + 5),
    "negative": np.int64(-(2**32) + 5),
    "NaN": np.float32(np.nan),
    "infinity": np.float32(np.inf),
}
if BACKEND != "torch":  # Keras refuses them there
    BAD["uint64"] = np.uint64(2**63 + 5)


class Batches(keras.utils.PyDataset):
    """A data set of one batch, or without any."""

    def __init__(self, *arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return min(len(self.arrays), 1)

    def __getitem__(self, index):
        return self.arrays


def generator(*arrays):
    yield arrays


def data_set(*arrays):
    import tensorflow

    return tensorflow.data.Dataset.from_tensor_slices(arrays).batch(4)


def data_loader(*arrays):
    import torch

    return torch.utils.data.DataLoader([tuple(map(torch.tensor, rows)) for rows in zip(*arrays)], batch_size=4)


FORMS = {"PyDataset": Batches, "generator": generator}
if BACKEND in ("jax", "tensorflow"):
    FORMS["tf.data"] = data_set
if BACKEND in ("jax", "torch"):
    FORMS["DataLoader"] = data_loader


@pytest.fixture(scope="module", params=[language_model, word_model], ids=["LanguageModel", "WordModel"])
def model(request):
    return compiled(request.param(), keras.optimizers.SGD(0.1))


@pytest.fixture
def whole(model):
    """The model, which a test must leave as it was."""
    before = weights_of(model)
    yield model
    assert all(map(np.array_equal, weights_of(model), before))
    assert np.isfinite(model.evaluate(TOKENS, TARGETS, verbose=0)[0])


def loops(model):
    """The methods that take generators, with their names."""
    return {
        "fit": lambda data: model.fit(data, shuffle=False, verbose=0),
        "evaluate": lambda data: model.evaluate(data, verbose=0),
    }


EMPTY = "at least one row and one token"
REFUSED = {
    "no rows": ((TOKENS[:0], TARGETS[:0]), EMPTY),
    "no tokens": ((TOKENS[:, :0], TARGETS[:, :0]), EMPTY),
    "no targets": ((TOKENS,), "pass the ids of the next words as `y`.* Received: y=None"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_empty_arrays_and_missing_targets_are_refused(whole, kind):
    data, message = REFUSED[kind]
    received = message.replace(EMPTY, f"{EMPTY}. Received: shape=")
    for method in (whole.fit, whole.evaluate, whole.train_on_batch, whole.test_on_batch):
        refused(method, *data, match=received)
    for method in loops(whole).values() if len(data[0]) else ():
        with pytest.raises(Exception if message == EMPTY else ValueError, match=message):
            method(generator(*data))
    for method in (whole.predict, whole.predict_on_batch) if message == EMPTY else ():
        refused(method, data[0], match=received)


def test_data_without_batches_are_refused(whole):
    for name, method in loops(whole).items():
        refused(method, Batches(), match=f"`{name}` needs at least one batch|has length 0")


def test_a_step_that_fails_leaves_the_model_whole(whole):
    for method in loops(whole).values():
        with pytest.raises(Exception):  # noqa: B017 (each backend has its own)
            method(generator(TOKENS, TARGETS[:, :3]))
    with pytest.raises(Exception):  # noqa: B017
        whole.predict(generator(np.zeros((2, 3, 4, 5), "float32")), verbose=0)


def test_a_file_of_another_format_is_refused(model, tmp_path):
    for name in ("model.h5", "model.hdf5"):
        refused(model.save, tmp_path / name, match="is saved as a `.keras` file. Received: filepath=.*model.h")
    assert not list(tmp_path.iterdir())


def with_bad(kind, ids):
    """Returns ids of the dtype of a bad id, the last of which is that id."""
    ids = ids.astype(BAD[kind].dtype)
    ids[-1, -1] = BAD[kind]
    return ids


def forms_of(kind):
    """All forms of data with an int64, and with each other kind one of them in turn: a kind is cast in one place."""
    number, names = list(BAD).index(kind), list(FORMS)
    return FORMS if number == 0 else {names[number % len(names)]: FORMS[names[number % len(names)]]}


def assert_refused(model, methods):
    before = weights_of(model)
    for name, method in methods.items():
        refused(method, match="ids from 0 to 19|must be integers")
        if name.startswith("one"):
            assert all(map(np.array_equal, weights_of(model), before))


@pytest.mark.parametrize("kind", BAD)
def test_targets_outside_are_errors(model, kind):
    targets = with_bad(kind, TARGETS)
    methods = {
        "one fit": lambda: model.fit(TOKENS, targets, batch_size=4, verbose=0),
        "one evaluate": lambda: model.evaluate(TOKENS, targets, batch_size=4, verbose=0),
        "one train_on_batch": lambda: model.train_on_batch(TOKENS, targets),
        "one test_on_batch": lambda: model.test_on_batch(TOKENS, y=targets),
    }
    if kind == "int64":
        validation = {"validation_data": Batches(TOKENS, targets)}
        methods["validation"] = lambda: model.fit(TOKENS, TARGETS, batch_size=4, verbose=0, **validation)
    for name, form in forms_of(kind).items():
        methods[f"fit {name}"] = lambda form=form: model.fit(form(TOKENS, targets), shuffle=False, verbose=0)
        methods[f"evaluate {name}"] = lambda form=form: model.evaluate(form(TOKENS, targets), verbose=0)
    assert_refused(model, methods)


@pytest.mark.parametrize("kind", BAD)
def test_inputs_outside_are_no_words(model, kind):
    bad, outside = with_bad(kind, TOKENS), TOKENS.astype("int32")
    outside[-1, -1] = -1
    expected = model.predict(Batches(outside), verbose=0)
    assert not np.array_equal(expected, model.predict(Batches(TOKENS), verbose=0))
    for form in forms_of(kind).values():
        np.testing.assert_array_equal(model.predict(form(bad), verbose=0), expected)
    np.testing.assert_allclose(numpy(model(bad)), numpy(model(outside)), rtol=1e-6, atol=1e-7)
    if isinstance(model, WordModel):
        for method in (model.predict, model.predict_on_batch):
            np.testing.assert_allclose(method(bad), expected, rtol=1e-6, atol=1e-7)
        losses = [model.evaluate(tokens, TARGETS, verbose=0) for tokens in (bad, outside)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    else:
        methods = {
            "one train_on_batch": lambda: model.train_on_batch(bad, TARGETS),
            "fit": lambda: model.fit(Batches(bad, TARGETS), verbose=0),
            "evaluate": lambda: model.evaluate(Batches(bad, TARGETS), verbose=0),
        }
        assert_refused(model, methods)


@pytest.mark.parametrize("kind", ["int64", "negative"])
def test_batches_are_whole_before_they_move_to_an_accelerator(model, kind, monkeypatch):
    if BACKEND == "jax":  # only there Keras narrows them ahead of the step
        from keras.src.backend.jax.trainer import JAXEpochIterator

        ahead = lambda self: self._one_batch_ahead_iterator(self.data_adapter.get_jax_iterator())  # noqa: E731
        monkeypatch.setattr(JAXEpochIterator, "_get_iterator", ahead)
    targets = with_bad(kind, TARGETS)
    fit = {"fit": lambda: model.fit(Batches(TOKENS, targets), verbose=0)}
    assert_refused(model, {**fit, "evaluate": lambda: model.evaluate(Batches(TOKENS, targets), verbose=0)})


@pytest.mark.parametrize("on_device", [False, True])
def test_the_nearest_int32(on_device):
    numbers = {
        "int32": [-(2**31), -1, 5, 2**31 - 1],
        "uint8": [0, 255],
        "float32": [-np.inf, -1.5, 2.0, 2.0**31, 2.0**40],
        "float16": [np.inf, -1.0, np.nan],
    }
    if not (on_device and BACKEND == "jax"):  # a tensor of JAX has 32 bits
        numbers |= {"int64": [-(2**32) + 5, -1, 5, 2**32 + 5], "float64": [2.0**32 + 5, -1.0, 2.0**31 - 1]}
    if not on_device:
        numbers["uint64"] = [5, 2**32 + 5, 2**64 - 1]
    for dtype, values in numbers.items():
        values = np.array(values, dtype)
        expected = np.clip(np.nan_to_num(values.astype("float64"), nan=-np.inf, posinf=2.0**40), -(2**31), 2**31 - 1)
        found = numpy(as_int32(keras.ops.convert_to_tensor(values) if on_device else values))
        assert found.dtype == "int32"
        np.testing.assert_allclose(found, np.trunc(expected), rtol=1e-7 if "float" in dtype else 0)
    assert as_int32(np.array(2**40)) == 2**31 - 1
