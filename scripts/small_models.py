"""Makes the small models of docs/models: python -m scripts.small_models --books=FOLDER [--work_dir=FOLDER] [NAME...]

FOLDER holds the train.txt, valid.txt and test.txt of the 48 books (docs/data.md). The other text is the documentation
of the Python in use. A model is a run of its flagfile in configs/small; a training that was stopped resumes. The folder
in docs/models holds what `keras_adaptive.load` reads, with weights in float16, and card.json, with figures that were
measured on these very files.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from absl import app, flags

from keras_adaptive.files import write_json

FLAGS = flags.FLAGS
ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "models"


class SmallModel(NamedTuple):
    """A small model: what it is, the name and the origin of its text, flags of `prepare`, and a prompt."""

    kind: str
    text: str
    origin: str
    preparation: tuple[str, ...]
    prompt: str


BOOKS = ("books", "48 books of Project Gutenberg, which are in the public domain")
DOCSTRINGS = ("docstrings", "the documentation of Python's standard library, under the license of Python")
OF_BOOKS, OF_DOCSTRINGS = "It was the best of times , it was the", "Return a list of all the"
WORDS = "--tokenizer=words"
MODELS = {
    "books-small": SmallModel("Transformer, tied adaptive words", *BOOKS, (WORDS,), OF_BOOKS),
    "books-subwords": SmallModel("Transformer of sub-words", *BOOKS, (WORDS, "--subwords=8000"), OF_BOOKS),
    "books-characters": SmallModel("LSTM of characters", *BOOKS, ("--unit=characters",), OF_BOOKS),
    "docstrings-small": SmallModel("Transformer, tied adaptive words", *DOCSTRINGS, (), OF_DOCSTRINGS),
    "docstrings-lstm": SmallModel("AWD-LSTM, tied adaptive words", *DOCSTRINGS, (), OF_DOCSTRINGS),
}
EVALUATED = ("perplexity", "unit", "bits_per_byte", "bits_per_word", "tokens", "reading")


def define_flags():
    flags.DEFINE_string("books", None, "Folder with train.txt, valid.txt and test.txt of the books.")
    flags.DEFINE_string("work_dir", "small_models", "Folder for corpora and runs.")


def make(name):
    """Trains a model, unless that was done before, and writes its folder."""
    model, work = MODELS[name], Path(FLAGS.work_dir).resolve()
    source = FLAGS.books if model.text == "books" else model.text
    if source is None:
        raise ValueError(f"{name} needs the text of the books: pass --books. Received: --books=None.")
    corpus, run = work / "".join([model.text, *model.preparation]).replace("=", "-"), work / "runs" / name
    program("prepare", f"--source={source}", f"--data_dir={corpus}", *model.preparation)
    program("train", f"--flagfile=small/{name}", f"--data_dir={corpus}", f"--run_dir={run}")
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    pack(run, folder)
    write_json(folder / "card.json", {"name": name, **model._asdict(), **measured(run, folder, corpus, model.prompt)})


def program(name, *arguments):
    subprocess.run([sys.executable, "-m", f"trainers.{name}", *arguments], check=True, cwd=ROOT)


def pack(run, folder):
    """Writes the files of a run that `keras_adaptive.load` reads, with weights in float16 and without an optimizer."""
    from keras_adaptive.models import read_language_model

    folder.mkdir(parents=True)
    shutil.copy(run / "vocabulary.txt", folder)
    if (run / "merges.txt").exists():
        shutil.copy(run / "merges.txt", folder)
    lines = (run / "flags.txt").read_text().splitlines(keepends=True)
    (folder / "flags.txt").write_text("".join(line for line in lines if not line.startswith("--data_dir=")))
    metadata = json.loads((run / "corpus.json").read_text())
    write_json(folder / "corpus.json", metadata | {"source": os.path.basename(metadata["source"])})
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "best.keras")
        read_language_model(run / "best.keras").save(path)
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(folder / "best.keras", "w") as target:
            halve(source.extract("model.weights.h5", temporary), Path(temporary, "half.h5"))
            target.write(Path(temporary, "half.h5"), "model.weights.h5")
            for name in ("config.json", "metadata.json"):
                target.writestr(name, source.read(name))


def halve(path, half):
    """Copies a file of weights with float16 in place of float32, which Keras converts back as it reads."""
    with h5py.File(path) as source, h5py.File(half, "w") as target:

        def copy(name, item):
            if isinstance(item, h5py.Group):
                copied = target.require_group(name)
            else:
                values = np.asarray(item)
                copied = target.create_dataset(
                    name, data=values.astype("float16") if values.dtype == "float32" else values
                )
            copied.attrs.update(item.attrs)

        source.visititems(copy)


def measured(run, folder, corpus, prompt):
    """Returns the figures of a card: what `keras-adaptive evaluate` finds in the packed files, and two for a prompt."""
    import keras_adaptive

    settings = dict(line[2:].split("=", 1) for line in (run / "flags.txt").read_text().splitlines())
    lm = keras_adaptive.load(folder)
    with tempfile.TemporaryDirectory() as temporary:
        evaluations = {}
        for split in ("valid", "test"):
            output = Path(temporary, f"{split}.json")
            places = (f"--run_dir={folder}", f"--data_dir={corpus}", f"--output={output}")
            program("evaluate", f"--split={split}", *places)
            evaluation = json.loads(output.read_text())
            evaluations[split] = {name: evaluation[name] for name in EVALUATED}
    return {
        "seed": int(settings["seed"]),
        "updates": int(settings["updates"]),
        "machine": f"{platform.machine()}, one core, torch",
        "parameters": lm.model.count_params(),
        "bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "evaluations": evaluations,
        "perplexity_of_prompt": lm.perplexity(prompt),
        "next": [word for word, _ in lm.next_words(prompt, k=5)],
    }


def main(arguments):
    for name in arguments[1:] or MODELS:
        make(name)


if __name__ == "__main__":
    define_flags()
    app.run(main)
