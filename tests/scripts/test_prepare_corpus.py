import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.local_server import LocalServer

ROOT = Path(__file__).parents[2]


def run(*flags):
    return execute(ROOT / "scripts" / "prepare_corpus.py", *flags)


def execute(*arguments):
    command = [sys.executable, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("the cat\nthe dog\n", encoding="utf-8")
    return folder


def test_makes_a_corpus_and_then_keeps_it(folder, tmp_path):
    flags = [f"--source={folder}", f"--data_dir={tmp_path / 'data'}", "--min_count=2"]
    made, kept = run(*flags), run(*flags)
    assert made.returncode == kept.returncode == 0, made.stderr + kept.stderr
    assert f"Made {tmp_path / 'data'} from {folder}" in made.stdout
    assert f"Kept {tmp_path / 'data'} from {folder}" in kept.stdout
    assert "8 words in the vocabulary" in made.stdout
    assert [line.split() for line in made.stdout.splitlines() if line.startswith("train")] == [
        ["train", "6", "2", "33.33%"]
    ]


def test_makes_a_corpus_of_sub_words(folder, tmp_path):
    done = run(f"--source={folder}", f"--data_dir={tmp_path / 'data'}", "--subwords=2")
    assert done.returncode == 0, done.stderr
    assert "pieces of words in the vocabulary, from 2 merges" in done.stdout
    assert [line.split() for line in done.stdout.splitlines() if line.startswith("train")] == [
        ["train", "14", "6", "2", "0.00%"]
    ]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--source=/no/such/folder"], "prepare_corpus: /no/such/folder/train.txt is missing"),
        (["--source=FOLDER", "--packages=numpy"], "--packages belongs to --source=docstrings"),
        (["--source=wikitext-2", "--tokenizer=words"], "--source=wikitext-2 is tokenised already"),
        (["--source=wikitext-2", "--mirrors=nowhere,noway"], "No mirror gave wikitext-2: nowhere: unknown url type"),
    ],
)
def test_bad_input_ends_with_one_line(folder, tmp_path, flags, message):
    flags = [flag.replace("FOLDER", str(folder)) for flag in flags]
    done = run(f"--data_dir={tmp_path / 'data'}", f"--download_dir={tmp_path / 'downloads'}", *flags)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


# The program with a small entry in the table of corpora, as its reader would find it for WikiText-2.
PROGRAM = """
import runpy, sys
from keras_adaptive.data import PUBLIC_CORPORA
published = {"train": {"tokens": 6}, "valid": {"tokens": 6}, "test": {"tokens": TEST}}
PUBLIC_CORPORA["tiny"] = PUBLIC_CORPORA["wikitext-2"]._replace(
    mirrors=("ADDRESS",), published=published, types=4, vocabulary=8
)
sys.argv[0] = "SCRIPT"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("test_tokens, returncode", [(6, 0), (7, 1)])
def test_a_public_corpus_is_downloaded_and_held_to_its_counts(folder, tmp_path, monkeypatch, test_tokens, returncode):
    monkeypatch.setenv("no_proxy", "*")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for path in folder.iterdir():
            file.write(path, f"tiny/wiki.{path.stem}.tokens")
    with LocalServer() as site:
        address = site.add("tiny.zip", archive.getvalue())
        program = PROGRAM.replace("ADDRESS", address).replace("TEST", str(test_tokens))
        program = program.replace("SCRIPT", str(ROOT / "scripts" / "prepare_corpus.py"))
        flags = [f"--data_dir={tmp_path / 'data'}", f"--download_dir={tmp_path / 'downloads'}", "--source=tiny"]
        done = execute("-c", program, *flags)
    assert done.returncode == returncode, done.stderr
    assert f"Downloading {address}" in done.stdout
    assert sorted(path.name for path in (tmp_path / "downloads").iterdir()) == ["tiny", "tiny.zip"]
    if returncode:
        assert "test tokens 6 (published: 7)" in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
    else:
        assert f"Made {tmp_path / 'data'} from tiny" in done.stdout and "at least 1 occurrences" in done.stdout
    assert (tmp_path / "data").exists() == (returncode == 0)
