import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*flags):
    command = [sys.executable, str(ROOT / "scripts" / "prepare_corpus.py"), *map(str, flags)]
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
    ],
)
def test_bad_input_ends_with_one_line(folder, tmp_path, flags, message):
    flags = [flag.replace("FOLDER", str(folder)) for flag in flags]
    done = run(f"--data_dir={tmp_path / 'data'}", *flags)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()
