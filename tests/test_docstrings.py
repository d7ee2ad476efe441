"""Every example of every docstring runs, as it stands there; only the sizes of ```python examples shrink.

A reader has `np`, `keras`, on TensorFlow `tf`, and the public names of the package. In ```python examples there may be
the names and files of `reader`, too: a small model, its data, a corpus, a run, a published checkpoint.
"""

import ast
import doctest
import importlib
import json
import re
import shutil
import types
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import pytest

import keras_adaptive
from keras_adaptive.callbacks import Backup
from keras_adaptive.data import prepare
from keras_adaptive.optimizers import NAG, CosineRestarts
from tests.support.backends import BACKEND
from tests.support.text import write_splits
from tests.support.tiny import batch, language_model

ROOT = Path(keras_adaptive.__file__).parent
PACKAGES = "callbacks data distribution export fairseq layers metrics models ops optimizers text transfo_xl".split()
SHAPE = re.compile(r"(?:torch\.Size|TensorShape)\(\[(.*?)\]\)")  # what `x.shape` prints where it is no tuple
SIZES = {"50_000": "300", "4_000": "40", "16_000": "100", "1000": "4", "every=500": "every=2"}
SIZES |= {"num_blocks=6": "num_blocks=1"}
# Modules whose examples need it.
TENSORFLOW = ("graph_subwords", "graph_text", "graph_words", "text_dataset", "saved_model", "distribution.strategy")
TENSORFLOW += ("export.recommender", "export.litert")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


class Docstring(NamedTuple):
    module: str
    name: str
    text: str


def docstrings():
    """Yields every docstring of the package that holds an example."""
    for path in sorted([*ROOT.rglob("*.py"), *ROOT.with_name("trainers").rglob("*.py")]):
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        for node, name in walk(ast.parse(path.read_text(encoding="utf-8")), ""):
            text = ast.get_docstring(node)
            if text and (">>>" in text or "```python" in text):
                yield Docstring(module, name, text)


def walk(node, name):
    """Yields every node that can have a docstring, with its name."""
    yield node, name
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
            yield from walk(child, f"{name}.{child.name}")


class ShapesAreTuples(doctest.OutputChecker):
    """Compares what is printed as if the shapes of every backend were tuples."""

    def check_output(self, want, got, flags):
        return super().check_output(want, SHAPE.sub(tuple_of, got), flags)


def tuple_of(match):
    sizes = [int(size) for size in match[1].split(",") if size.strip()]
    return repr(tuple(sizes))


def public_names(module):
    """Returns the names that a reader of a docstring of the module has imported."""
    names = {}
    for name in (*(f"keras_adaptive.{package}" for package in PACKAGES), module):
        names |= vars(importlib.import_module(name))
    public = {n: v for n, v in names.items() if n[0] != "_" and not isinstance(v, types.ModuleType)}
    if BACKEND == "tensorflow":
        public["tf"] = importlib.import_module("tensorflow")
    return {**public, "np": np, "keras": keras, "json": json, "Path": Path, "keras_adaptive": keras_adaptive}


class Updates(keras.utils.PyDataset):
    """Yields the same batch for every update, from any start."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def __len__(self):
        return 4

    def __getitem__(self, update):
        return self.parts

    def __call__(self, start):
        return self


@pytest.fixture(scope="session")
def files(tmp_path_factory, golden):
    """The files that examples speak of, under the names that they have there."""
    folder = tmp_path_factory.mktemp("reader")
    lines = np.random.default_rng(0).choice(["it", "was", "the", "best", "of", "times"], (60, 9))
    write_splits(folder, "\n".join(map(" ".join, lines)) + "\n")
    corpus = prepare(folder, folder / "data/books", min_count=1)
    prepare(folder, folder / "data/books_bpe", min_count=1, subwords=8)
    run, published = folder / "runs/books", folder / "adaptive_lm_wiki103"
    for made in (run, published, folder / "run"):
        made.mkdir(parents=True)
    language_model(vocabulary_size=len(corpus.vocabulary)).save(run / "best.keras")
    corpus.vocabulary.save(run / "vocabulary.txt")
    shutil.copy(folder / "data/books/corpus.json", run)
    shutil.copy(golden.folder / "transformer_lm_fairseq.pt", published / "model.pt")
    shutil.copy(golden.folder / "dict.txt", published)
    shutil.copytree(golden.folder / "transfo_xl", folder / "transfo-xl-wt103")
    for name, text in (("words_text", "utt1-1 it was\n"), ("acwt", "utt1-1 9.5\n"), ("text", "utt1 it was\n")):
        (folder / name).write_text(text)
    words = ["<eos>", "<unk>", *map(str, range(198))]
    (folder / "transfo-xl-wt103/vocab.txt").write_text("\n".join(words))
    return folder


@pytest.fixture
def reader(files, tmp_path, monkeypatch):
    """The names that ```python examples may use without saying where they come from, in a folder with `files`."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    model = language_model()
    model.compile(NAG(0.1, momentum=0.9))
    tokens, targets, weights = batch(8)
    names = {"model": model, "batches": Updates((tokens, targets, weights)), "backup": Backup("run/checkpoints")}
    names |= dict.fromkeys(("x", "tokens", "x_valid"), tokens) | dict.fromkeys(("y", "targets", "y_valid"), targets)
    return {**names, "schedule": CosineRestarts(0.1, period=100)}


ALL = list(docstrings())
ON_TENSORFLOW = [example for example in ALL if example.module.endswith(TENSORFLOW) and BACKEND == "tensorflow"]
EXAMPLES = [pytest.param(example, marks=pytest.mark.once) for example in ALL if not example.module.endswith(TENSORFLOW)]


@pytest.mark.parametrize("example", [*EXAMPLES, *ON_TENSORFLOW], ids=lambda example: f"{example.module}{example.name}")
def test_example(example, request):
    if ".fairseq." in example.module or ".transfo_xl." in example.module:
        pytest.importorskip("torch")
    names, where = public_names(example.module), example.module + example.name
    prompts, blocks = doctest.DocTestParser().get_doctest(example.text, dict(names), where, None, 0), blocks_of(example)
    assert prompts.examples or blocks
    runner, report = doctest.DocTestRunner(ShapesAreTuples(), verbose=False), []
    results = runner.run(prompts, out=report.append)
    assert results.attempted == len(prompts.examples) and not results.failed, "".join(report)
    for block in blocks:
        exec(compile(block, where, "exec"), {**names, **request.getfixturevalue("reader")})


def blocks_of(example):
    pattern = "|".join(re.escape(size) for size in sorted(SIZES, key=len, reverse=True))
    return [re.sub(rf"\b({pattern})\b", lambda match: SIZES[match[0]], block) for block in BLOCK.findall(example.text)]


@pytest.mark.once
def test_a_wrong_example_fails():
    wrong = Docstring("keras_adaptive.layers", "", ">>> WordEmbedding(9, 4)(np.array([1])).shape\n(1, 5)")
    with pytest.raises(AssertionError, match=r"Expected:\s+\(1, 5\)"):
        test_example(wrong, None)


def test_shapes_are_found_on_every_backend():
    for printed in ("(1, 3, 64)", "torch.Size([1, 3, 64])", "TensorShape([1, 3, 64])"):
        assert ShapesAreTuples().check_output("(1, 3, 64)\n", f"{printed}\n", 0)
        assert not ShapesAreTuples().check_output("(1, 3, 65)\n", f"{printed}\n", 0)


@pytest.mark.once
def test_examples_are_found():
    assert {example.module.split(".")[1] for example in ALL} >= set(PACKAGES)
