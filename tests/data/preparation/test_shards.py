"""Corpora of several shards: made in processes, after a kill, and read back whole or not at all."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import filelock
import numpy as np
import pytest

import keras_adaptive.data
from keras_adaptive.data import SPECIAL_WORDS, SPLITS, Vocabulary, load_corpus, prepare
from keras_adaptive.data.preparation import workers
from tests.support.refusals import refused
from tests.support.shards import DAMAGES, damage
from tests.support.text import write_splits

PACKAGE = Path(keras_adaptive.data.__file__).parents[1]
pytestmark = [pytest.mark.once, pytest.mark.processes]

TEXTS = {
    "train": "the cat sat\r\non  the mat , and\n\nthe dog sat on the cat\n" * 3 + "naïve cats don't sit" + " on" * 20,
    "valid": "the zebra sat\n",
    "test": "a cat without an end , 日本語",
}
UNITS = {
    "words": {},
    "sub-words": {"subwords": 6},
    "dictionary": {"vocabulary": Vocabulary([*SPECIAL_WORDS, "cat", "bird", "the"], [0, 0, 0, 0, 9, 5, 1])},
}


@pytest.fixture
def folder(tmp_path):
    return write_splits(tmp_path / "text", "", **TEXTS)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr("keras_adaptive.data.preparation.prepare._PART", 50)


def snapshot(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("units", list(UNITS))
def test_shards_hold_what_one_file_holds(folder, tmp_path, monkeypatch, units):
    one = prepare(folder, tmp_path / "one", min_count=2, **UNITS[units])
    monkeypatch.setattr("keras_adaptive.data.preparation.prepare._PART", 50)
    many = prepare(folder, tmp_path / "many", min_count=2, **UNITS[units])
    assert len(list(many.data_dir.glob("train-*-of-00005.tokens"))) == 5
    assert not (many.data_dir / "train.tokens").exists() and (many.data_dir / "valid.tokens").exists()
    for split in SPLITS:
        np.testing.assert_array_equal(np.asarray(many.tokens(split)), one.tokens(split))
        np.testing.assert_array_equal(np.asarray(many.words(split)), one.words(split))
        np.testing.assert_array_equal(many.word_starts(split), one.word_starts(split))
        theirs, ours = one.metadata["splits"][split], many.metadata["splits"][split]
        assert {**theirs, "shards": None} == {**ours, "shards": None}
    assert many.vocabulary.sha256 == one.vocabulary.sha256


def test_the_number_of_processes_makes_no_difference(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_adaptive.data.preparation.prepare._PART", 120)
    monkeypatch.setenv("KERAS_BACKEND", "none")  # the processes do not import Keras
    one = prepare(folder, tmp_path / "one", tokenizer="words", min_count=1)
    two = prepare(folder, tmp_path / "two", tokenizer="words", min_count=1, processes=2)
    assert snapshot(one.data_dir) == snapshot(two.data_dir)
    pieces = prepare(folder, tmp_path / "pieces", tokenizer="words", min_count=1, subwords=6, processes=3)
    assert np.asarray(pieces.words("train")).tolist() == np.asarray(one.tokens("train")).tolist()


@pytest.mark.usefixtures("small_parts")
def test_bad_text_is_found_by_any_process(folder, tmp_path):
    (folder / "train.txt").write_bytes(b"the cat\n" * 20 + b"the \xff\n" + b"\xff" * 40)
    for processes in (1, 2):
        bad = "train.txt:21, byte 5 of the line: not valid UTF-8"
        refused(prepare, folder, tmp_path / "data", processes=processes, match=bad)
        assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_process_that_ends_by_itself_is_told_of():
    with pytest.raises(
        ChildProcessError, match="A process for _exit ended with status 3. Run the same again, which resumes"
    ):
        workers.call(os._exit, 3)


# Calls `run_path` in a process, as `prepare` calls `index_words`. The process holds a lock for two minutes.
CALLS = """
import runpy, sys, types
package = sys.modules["keras_adaptive"] = types.ModuleType("keras_adaptive")
package.__path__ = [sys.argv[1]]
from keras_adaptive.data.preparation import workers
workers.call(runpy.run_path, sys.argv[2])
"""
HOLDS = """
import pathlib, time
import filelock
lock = filelock.FileLock({lock!r})
lock.acquire()
pathlib.Path({ready!r}).touch()
time.sleep(120)
"""


def test_a_process_ends_with_its_caller(tmp_path):
    """Else it would go on writing beside the call that resumes."""
    lock, ready, script = (tmp_path / name for name in ("lock", "ready", "script.py"))
    script.write_text(HOLDS.format(lock=str(lock), ready=str(ready)), encoding="utf-8")
    with subprocess.Popen([sys.executable, "-c", CALLS, str(PACKAGE), str(script)]) as caller:
        while caller.poll() is None and not ready.exists():
            time.sleep(0.02)
        caller.kill()
    assert ready.exists()
    with filelock.FileLock(lock, timeout=60):
        pass


# Prepares a corpus without importing Keras, and kills itself after some lines of its report, or before its end.
KILLED = """
import os, signal, sys, types
package = sys.modules["keras_adaptive"] = types.ModuleType("keras_adaptive")
package.__path__ = [sys.argv[1]]
from keras_adaptive.data.preparation import prepare as preparation
preparation._PART = 50
lines = []
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def report(line):
    lines.append(line)
    len(lines) == int(sys.argv[4]) and kill()
how = {"check": kill, "processes": int(sys.argv[5]), "report": report}
preparation.write_corpus(sys.argv[2], sys.argv[3], preparation.Choices(min_count=1), **how)
"""


def prepare_and_kill(folder, data_dir, lines, processes):
    arguments = map(str, (PACKAGE, folder, data_dir, lines, processes))
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("lines, processes, before", [(3, 1, 3), (2, 2, None), (99, 1, 7)])
def test_a_killed_preparation_goes_on(folder, tmp_path, lines, processes, before):
    data = tmp_path / "data"
    prepare_and_kill(folder, data, lines, processes)
    assert not data.exists() and not (tmp_path / "data.partial" / "corpus.json").exists()
    refused(load_corpus, data, match="holds no corpus")
    report = []
    prepare(folder, data, min_count=1, report=report.append)
    kept = ["which were read before" in line for line in report]
    assert len(kept) == 7 and sum(kept) == before if before else any(kept)
    assert snapshot(data) == snapshot(prepare(folder, tmp_path / "straight", min_count=1).data_dir)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "straight", "text"]


@pytest.mark.usefixtures("small_parts")
def test_another_text_begins_anew(folder, tmp_path):
    prepare_and_kill(folder, tmp_path / "data", 99, 1)
    text = TEXTS["train"].encode().replace(b"dog", b"cow")  # of the same length
    (folder / "train.txt").write_bytes(text)
    report = []
    prepare(folder, tmp_path / "data", min_count=1, report=report.append)
    assert ["which were read before" in line for line in report] == [False] * 5 + [True] * 2
    straight = prepare(folder, tmp_path / "straight", min_count=1)
    assert snapshot(tmp_path / "data") == snapshot(straight.data_dir) and "cow" in straight.vocabulary


def test_two_preparations_of_one_corpus(folder, tmp_path):
    (tmp_path / "data.partial").mkdir()
    with filelock.FileLock(tmp_path / "data.partial" / "lock"):
        refused(prepare, folder, tmp_path / "data", match="Another process is making .*data: wait until it ends")
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", ["train-00001-of-00005.tokens", "train-00003-of-00005.words", "test.tokens"])
def test_a_damaged_shard_is_named(folder, tmp_path, how, name):
    corpus = prepare(folder, tmp_path / "data", min_count=1, subwords=6)
    corpus.verify(*SPLITS)
    damage(corpus.data_dir / name, how)
    for read in (lambda: corpus.verify(*SPLITS), lambda: prepare(folder, corpus.data_dir, min_count=1, subwords=6)):
        refused(read, match=f"{name} .*{DAMAGES[how]}")
    if how != "changed":
        split, kind = re.match(r"(\w+).*\.(\w+)", name).groups()
        refused(getattr(corpus, kind), split, match=f"{name} .*{DAMAGES[how]}")


def test_a_part_without_words_is_no_hindrance(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_adaptive.data.preparation.prepare._PART", 1)
    (folder / "train.txt").write_text("the  cat\n \n")
    corpus = prepare(folder, tmp_path / "data", min_count=1)
    sizes = [shard["tokens"] for shard in corpus.metadata["splits"]["train"]["shards"]["tokens"]]
    assert 0 in sizes and len(corpus.tokens("train")) == sum(sizes)
    corpus.verify(*SPLITS)
