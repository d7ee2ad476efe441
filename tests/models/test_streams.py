"""Batches whose rows continue those of the batch before: the state is carried, in variables of the model."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_adaptive import evaluation
from keras_adaptive.callbacks import backup
from keras_adaptive.models import shortformer, transformer_xl
from tests.support.backends import BACKEND, numpy
from tests.support.streams import BATCHES, ROWS, STEPS, batches, stream_model, text
from tests.support.tiny import VOCABULARY, largest_difference
from tests.support.toy_body import ToyBody

ROOT = Path(__file__).parents[2]
EAGERLY = BACKEND == "tensorflow"  # the quickest way to compute few updates


SIZES = {"num_blocks": 2, "dim": 8, "ffn_dim": 8, "num_heads": 2, "memory_length": 2}
BODIES = {
    "toy": lambda: ToyBody(8),
    "transformer_xl": lambda: transformer_xl(**SIZES),
    "shortformer": lambda: shortformer(**SIZES, segment_length=STEPS),
}


def compiled(optimizer, rows=ROWS, body=None, **kwargs):
    model = stream_model(body)
    model.compile(optimizer, stream_rows=rows, **kwargs)
    return model


@pytest.fixture(scope="module", params=BODIES)
def still(request):
    """A model that training does not change; its first batch begins all rows."""
    return compiled(keras.optimizers.SGD(0.0), body=BODIES[request.param]())


def per_batch(means):
    """The losses of single batches from those of all so far, for batches of one size."""
    totals = np.asarray(means) * np.arange(1, len(means) + 1)
    return np.diff(totals, prepend=0)


def fitted(model, data):
    seen = []
    keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: seen.append(logs["loss"]))
    model.fit((one for one in data), steps_per_epoch=len(data), shuffle=False, verbose=0, callbacks=[keep])
    return per_batch(seen)


def test_rows_continue_where_the_batch_before_ended(still):
    tokens, targets = text()
    whole = still.nll(tokens, targets).reshape(ROWS, BATCHES, STEPS).mean(axis=(0, 2))
    alone = [still.nll(tokens, targets).mean() for (tokens, _), targets, _ in batches()]
    found = fitted(still, batches())
    np.testing.assert_allclose(found, whole, rtol=2e-5)
    assert np.abs(np.array(alone) - whole)[1:].min() > 1e-4


@pytest.mark.parametrize("rows, block", [(1, 3), (3, 3), (1, 10**9)])
def test_a_text_is_read_a_segment_at_a_time(monkeypatch, rows, block):
    """Memory does not grow with the text, however large the block. Streams differ in length by a token."""
    tokens = np.random.default_rng(2).integers(4, VOCABULARY, 17).astype("int32")
    read = lambda split: tokens  # noqa: E731
    corpus = SimpleNamespace(verify=read, tokens=read, words=read, word_starts=lambda split: np.arange(17))
    cut, lengths, reports, model = evaluation.cut, [], [], stream_model()
    monkeypatch.setattr(evaluation, "SEGMENT", 4)
    monkeypatch.setattr(evaluation, "cut", lambda *given: lengths.append(given[-1]) or cut(*given))
    report = lambda *numbers: reports.append(numbers)  # noqa: E731
    nll, words = evaluation.word_losses_of_streams(model, corpus, "test", block, rows, report)
    inputs, bounds = np.append(2, tokens), np.arange(rows + 1) * 17 // rows
    whole = [model.nll(inputs[None, a:b], tokens[None, a:b])[0] for a, b in zip(bounds, bounds[1:])]
    np.testing.assert_allclose(nll, np.concatenate(whole), rtol=2e-5)
    np.testing.assert_array_equal(words, tokens)
    assert max(lengths) == min(block, 4) and sum(lengths) == -(-17 // rows)
    assert reports == [(number + 1, len(lengths)) for number in range(len(lengths))]
    seen = []
    mix = lambda *given: seen.extend(given) or -given[-1]  # noqa: E731
    mixed, _ = evaluation.word_losses_of_streams(model, corpus, "test", block, rows, mix=mix)
    hidden = [numpy(model(inputs[None, a:b]))[0] for a, b in zip(bounds, bounds[1:])]
    for found, expected in zip(seen, (np.concatenate(hidden), tokens, nll), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(mixed, -nll, rtol=2e-5)


def test_rows_that_begin_anew_start_from_nothing(still):
    fresh = [((tokens, np.ones(ROWS, bool)), targets, weights) for (tokens, _), targets, weights in batches()]
    alone = [still.nll(tokens, targets).mean() for (tokens, _), targets, _ in fresh]
    np.testing.assert_allclose(fitted(still, fresh), alone, rtol=2e-5)


def test_validation_has_a_state_of_its_own(still):
    tokens, targets = text(seed=5)
    expected = still.nll(tokens, targets).mean()
    whole = fitted(still, batches())
    first, second = fitted(still, batches()[:2]), None
    for _ in range(2):  # its first batch begins all rows each time
        found = still.evaluate((one for one in batches(seed=5)), steps=BATCHES, verbose=0, return_dict=True)
        assert found["loss"] == pytest.approx(expected, rel=2e-5)
    second = fitted(still, batches()[2:])
    np.testing.assert_allclose([*first, *second], whole, rtol=2e-5)


def test_micro_batches_make_the_same_updates():
    whole = compiled(keras.optimizers.SGD(0.5, global_clipnorm=0.5), run_eagerly=EAGERLY)
    parts = compiled(keras.optimizers.SGD(0.5, global_clipnorm=0.5), micro_batches=2)
    np.testing.assert_allclose(fitted(whole, batches()), fitted(parts, batches()), rtol=1e-5)
    assert largest_difference(whole, stream_model()) > 1e-2
    assert largest_difference(whole, parts) < 1e-6


def test_an_update_that_is_skipped_reads_its_text_too(still):
    """Weights that are not finite say nothing about the state: the next batch continues after this one."""
    data = batches()
    bad = (*data[1][:2], np.full(data[1][2].shape, np.nan, "float32"))
    states = []
    for second in (bad, data[1]):
        fitted(still, [data[0], second])
        states.append([np.array(variable.numpy()) for variable in still.train_streams.variables])
    for skipped, state in zip(*states, strict=True):
        np.testing.assert_array_equal(skipped, state)
    assert any(np.abs(part).max() > 0 for part in states[0])


def test_a_row_that_is_not_finite_is_reset(still):
    """All of its state: what is left of a memory would count vectors that are gone."""
    streams, empty = still.train_streams, still.body.initial_state(ROWS)
    state = [np.ones(part.shape, keras.backend.standardize_dtype(part.dtype)) for part in keras.tree.flatten(empty)]
    real = next(part for part in state if part.dtype == "float32")
    real[1, ..., 3], real[2, ..., 0] = np.nan, np.inf
    streams.write(keras.tree.pack_sequence_as(empty, list(map(keras.ops.convert_to_tensor, state))), empty)
    for variable in streams.variables:
        expected = np.ones(variable.shape)
        expected[1:3] = 0
        np.testing.assert_array_equal(numpy(variable.value), expected)


def test_the_state_is_no_parameter_but_in_checkpoints_and_files(tmp_path):
    model = compiled("sgd", run_eagerly=EAGERLY)
    assert model.count_params() == stream_model().count_params()
    fitted(model, batches()[:2])
    held = {id(variable) for variable in backup.variables(model)["model"]}
    assert all(id(variable) in held for variable in model.train_streams.variables + model.test_streams.variables)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.train_streams.rows == ROWS
    np.testing.assert_allclose(fitted(loaded, batches()[2:]), fitted(model, batches()[2:]), rtol=1e-6)


@pytest.mark.parametrize("rows, data", [(None, batches()), (ROWS, [(one[0][0], *one[1:]) for one in batches()])])
@pytest.mark.once
def test_streams_and_batches_belong_together(rows, data):
    with pytest.raises(ValueError, match=r"`compile\(stream_rows=…\)` and batches of .* belong together"):
        fitted(compiled("sgd", rows), data)


@pytest.mark.once
def test_a_batch_of_other_rows_is_refused():
    data = [((tokens[:2], begins[:2]), targets[:2], weights[:2]) for (tokens, begins), targets, weights in batches()]
    with pytest.raises(Exception, match=f"must be the number of rows of a batch over all.* stream_rows={ROWS}"):
        fitted(compiled("sgd"), data)  # whose variables JAX leaves without values


def test_segments_of_any_length_give_the_losses_of_the_whole_text(still):
    tokens, targets = text()
    whole = still.nll(tokens, targets)
    for segment in (1, 7, 70):
        found = still.nll(tokens, targets, segment=segment)
        assert np.exp(found.mean()) == pytest.approx(np.exp(whole.mean()), rel=1e-6)
        np.testing.assert_allclose(found, whole, rtol=1e-5)


@pytest.mark.processes
def test_a_killed_training_resumes_bit_identically(tmp_path, forks):
    """Killed with SIGKILL in mid-stream, the state of the streams comes back with the weights."""

    def process(kill_after, *folders):
        command = [sys.executable, "-m", "tests.support.streams", str(kill_after), *map(str, folders)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)

    killed = process(3, tmp_path / "killed")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = process(0, tmp_path / "killed", tmp_path / "whole")
    assert done.returncode == 0, done.stderr
    resumed, whole = map(json.loads, done.stdout.splitlines()[-2:])
    assert resumed["from"] == 2 and whole["from"] == 0
    assert resumed["variables"] == whole["variables"]
