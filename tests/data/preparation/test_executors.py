"""Preparation by any executor: the same corpus, and one line for what goes wrong, after which the next call resumes."""

import concurrent.futures
import multiprocessing
import os
import sys
import types

import pytest

from keras_adaptive.data import prepare
from tests.support.pages import run
from tests.support.refusals import refused
from tests.support.text import write_splits

pytestmark = [pytest.mark.once, pytest.mark.processes]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_adaptive.data.preparation.prepare._PART", 100)
    text = "the cat sat\non  the mat , and\n\nthe dog sat on the cat\n"
    return write_splits(tmp_path / "text", text, train=text * 5 + "naïve cats don't sit")


class Calls(concurrent.futures.Executor):
    """Executor that makes each call at once by `make(number, function, *arguments)`."""

    def __init__(self, make):
        self.make, self.calls = make, 0

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        self.calls += 1
        try:
            future.set_result(self.make(self.calls, function, *arguments))
        except Exception as error:
            future.set_exception(error)
        return future


def snapshot(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def completes(folder, tmp_path, kept):
    """Whether the same call, with processes instead, keeps a number of parts and makes the same corpus as without."""
    report = []
    data = prepare(folder, tmp_path / "data", min_count=1, processes=2, report=report.append).data_dir
    assert sum("which were read before" in line for line in report) == kept
    assert not (tmp_path / "data.partial").exists()
    return snapshot(data) == snapshot(prepare(folder, tmp_path / "straight", min_count=1).data_dir)


def test_any_executor_makes_the_same_corpus(folder, tmp_path, monkeypatch):
    straight = snapshot(prepare(folder, tmp_path / "straight", min_count=1, source="text").data_dir)
    monkeypatch.chdir(tmp_path)
    pools = {
        "threads": concurrent.futures.ThreadPoolExecutor(3),
        "processes": concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")),
    }
    for name, executor in pools.items():
        with executor:
            executor.submit(os.chdir, "/").result()  # workers may work elsewhere
            os.chdir(tmp_path)
            assert snapshot(prepare("text", name, min_count=1, source="text", executor=executor).data_dir) == straight


def test_the_examples_of_the_documentation(tmp_path, monkeypatch):
    """Threads stand in for Dask and Ray."""
    write_splits(tmp_path / "texts", "The cat sat.\n" * 9)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:

        class Client:
            def get_executor(self):
                return pool

        def remote(function):
            return types.SimpleNamespace(
                remote=lambda *arguments: types.SimpleNamespace(future=lambda: pool.submit(function, *arguments))
            )

        monkeypatch.setitem(sys.modules, "dask", types.ModuleType("dask"))
        monkeypatch.setitem(sys.modules, "dask.distributed", types.SimpleNamespace(Client=Client))
        monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(remote=remote))
        names = run("docs/data.md", 1, tmp_path, monkeypatch)
        (tmp_path / "data").rename(tmp_path / "by_dask")
        names = run("docs/data.md", 2, tmp_path, monkeypatch, names)
    assert snapshot(tmp_path / "by_dask" / "texts") == snapshot(names["corpus"].data_dir)


@pytest.mark.parametrize("lost", [1, 3])
def test_an_executor_that_fails(folder, tmp_path, lost):
    def make(number, function, *arguments):
        if number >= lost:
            raise RuntimeError("worker-1 has left\nthe cluster")
        return function(*arguments)

    message = r"The executor failed \(RuntimeError: worker-1 has left the cluster\).* the same again, which resumes"
    refused(prepare, folder, tmp_path / "data", min_count=1, executor=Calls(make), error=OSError, match=message)
    assert not (tmp_path / "data").exists() and completes(folder, tmp_path, kept=lost - 1)


def test_a_pool_whose_worker_is_killed(folder, tmp_path):
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        pool.submit(os._exit, 1).exception()
        message = r"The executor failed \(BrokenProcessPool: "
        refused(prepare, folder, tmp_path / "data", min_count=1, executor=pool, error=OSError, match=message)
    assert completes(folder, tmp_path, kept=0)


def test_a_worker_with_another_version(folder, tmp_path):
    def make(number, function, version, *arguments):
        return function("code 00000000" if number == 3 else version, *arguments)

    message = (
        "must have the same keras_adaptive and Python as this process: code 0{8}. Received: code .* Unicode .* on "
    )
    refused(prepare, folder, tmp_path / "data", min_count=1, executor=Calls(make), error=OSError, match=message)
    assert completes(folder, tmp_path, kept=4)


def test_a_text_that_changes_while_it_is_read(folder, tmp_path):
    text = (folder / "train.txt").read_text()

    def make(number, function, *arguments):
        if number == 2:
            (folder / "train.txt").write_text(text.replace("dog", "cow"))
        return function(*arguments)

    message = "train.txt must stay the same while it is read, .* Received: bytes .* with CRC-32"
    refused(prepare, folder, tmp_path / "data", min_count=1, executor=Calls(make), match=message)
    assert completes(folder, tmp_path, kept=0)


def test_what_is_no_executor(folder, tmp_path):
    for how in ({"executor": 2}, {"executor": Calls(None), "processes": 2}):
        refused(prepare, folder, tmp_path / "data", **how, match="`executor` must be a `concurrent.futures.Executor`")
