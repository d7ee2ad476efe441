import pickle
import sys

import keras
import numpy as np
import pytest

from keras_adaptive.callbacks import Backup
from keras_adaptive.data import BlockBatches, SentenceBatches, StagedBatches, StreamBatches, grain_dataset
from tests.support.pages import run
from tests.support.refusals import refused
from tests.support.text import prepared
from tests.support.tiny import language_model

TOKENS = np.where(np.arange(203) % 9 == 8, 2, np.arange(203) % 7 + 3)
SHORT = BlockBatches(TOKENS, 5, 6, seed=1)
KINDS = {
    "blocks": SHORT,
    "sentences": SentenceBatches(TOKENS, 50, max_length=20, seed=1),
    "streams": StreamBatches(TOKENS, 6, 5, seed=1),
    "staged": StagedBatches([(SHORT, 3), (BlockBatches(TOKENS, 10, 3, seed=1), None)]),
}
SIZES = {"length": 4, "batch_size": 4}
STEPS = 5  # updates in an epoch


def same(batch, other):
    ours, theirs = keras.tree.flatten(tuple(batch)), keras.tree.flatten(other)
    return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))


@pytest.mark.once
def test_elements_and_the_state_of_an_iterator(tmp_path):
    corpus = prepared(tmp_path, "the cat sat on the mat\n" * 20)
    batches = BlockBatches(corpus.tokens("train"), 4, 4, seed=3)
    dataset = grain_dataset(corpus, **SIZES, seed=3)
    iterator = iter(dataset)
    assert all(same(next(iterator), batches.batch(t)) for t in range(2 * len(batches)))
    assert iterator.get_state() == {"next_index": 2 * len(batches)}
    iterator.set_state({"next_index": 3})
    assert same(next(iterator), batches.batch(3))
    assert same(next(iter(grain_dataset(corpus.data_dir, **SIZES, seed=3, start=7))), batches.batch(7))
    assert same(next(iter(grain_dataset(batches, start=8))), batches.batch(8))
    valid = BlockBatches(corpus.tokens("valid"), 4, 4, seed=1)
    assert same(next(iter(grain_dataset(corpus, **SIZES, split="valid"))), valid.batch(0))


@pytest.mark.once
def test_another_process_opens_the_corpus_again(tmp_path):
    corpus = prepared(tmp_path, "the cat sat on the mat\n" * 2000)
    dataset = grain_dataset(corpus, **SIZES, start=2)
    source = dataset._parent._source
    sent = pickle.dumps(source)
    assert len(sent) < 1000 and same(pickle.loads(sent)[1], source[1])


@pytest.mark.once
@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_processes_read_the_rows_of_one_batch(kind, processes):
    for t in range(5):
        whole = keras.tree.flatten(KINDS[kind].batch(t))
        parts = [
            next(iter(grain_dataset(KINDS[kind], start=t, process=i, processes=processes))) for i in range(processes)
        ]
        parts = [keras.tree.flatten(tuple(part)) for part in parts]
        assert len({part[-1].shape for part in parts}) == 1
        joined, rows = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)], len(whole[-1])
        assert all(np.array_equal(ours[:rows], theirs) for ours, theirs in zip(joined, whole, strict=True))
        assert not joined[-1][rows:].any() and len(joined[-1]) == -(-rows // processes) * processes


def start():
    model = language_model()
    model.compile(keras.optimizers.Adam(0.01))
    return model


class Killed(Exception):
    pass


def train(model, folder, kill=None):
    """Trains two epochs, from the newest checkpoint if there is one; an exception ends update `kill`."""

    def end(batch, logs):
        if batch + 1 == kill:
            raise Killed

    backup = Backup(folder, every=2)
    backup.restore(model)
    callbacks = [backup, keras.callbacks.LambdaCallback(on_train_batch_end=end)]
    for epoch in range(backup.epoch, 2):
        dataset, steps = grain_dataset(SHORT, start=backup.update), STEPS - backup.step
        how = {"initial_epoch": epoch, "epochs": epoch + 1, "shuffle": False, "verbose": 0}
        try:
            model.fit(dataset, steps_per_epoch=steps, callbacks=callbacks, **how)
        except Killed:
            backup.wait()
            return


@pytest.mark.each_backend
def test_training_resumes_bit_identically(tmp_path):
    straight, resumed = start(), start()
    straight.fit(grain_dataset(SHORT), steps_per_epoch=STEPS, epochs=2, shuffle=False, verbose=0)
    train(start(), tmp_path, kill=3)  # after the checkpoint of update 2
    train(resumed, tmp_path)
    assert resumed.optimizer.iterations == 2 * STEPS
    for ours, theirs in zip(straight.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.once
def test_the_example_of_the_documentation(tmp_path, monkeypatch):
    prepared(tmp_path, "the cat sat on the mat\n" * 20)
    (tmp_path / "data").mkdir()
    (tmp_path / "corpus").rename(tmp_path / "data" / "books")
    names = {"model": start(), "backup": Backup(tmp_path / "checkpoints")}
    run("docs/data.md", 3, tmp_path, monkeypatch, names)
    assert names["backup"].update == 80


@pytest.mark.once
def test_what_is_refused(monkeypatch):
    for how in ({}, {"length": 4}, {"batch_size": 4}):
        refused(grain_dataset, "data/books", **how, match="`length` and `batch_size` must be given for a corpus")
    refused(
        grain_dataset, SHORT, **SIZES, match="and omitted for `Batches`, which have them. .* length=4, batch_size=4"
    )
    for how in ({"start": -1}, {"process": 2, "processes": 2}, {"process": -1}):
        refused(grain_dataset, SHORT, **how, match="`start` must not be negative, and `process` must be from 0")
    refused(grain_dataset, "nowhere", **SIZES, match="nowhere holds no corpus")
    monkeypatch.setitem(sys.modules, "grain", None)
    refused(grain_dataset, SHORT, error=ModuleNotFoundError, match="keras_adaptive.grain")
