import contextlib
import re

import pytest

from keras_adaptive.data import PUBLIC_CORPORA
from tests.support.archives import zipped
from tests.support.local_server import LocalServer
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.text import write_splits
from trainers import prepare

pytestmark = pytest.mark.once


@pytest.fixture
def run(capsys):
    """`run(*flags)` returns what the program prints."""

    def run(*flags):
        call(prepare, *flags)
        return capsys.readouterr().out

    return run


@pytest.fixture
def folder(tmp_path):
    return write_splits(tmp_path / "text", "the cat\nthe dog\n")


def test_makes_a_corpus_and_then_keeps_it(run, folder, tmp_path):
    flags = [f"--source={folder}", f"--data_dir={tmp_path / 'data'}", "--min_count=2"]
    made, kept = run(*flags), run(*flags)
    assert f"Wrote {tmp_path / 'data'} from {folder}" in made
    assert f"Kept {tmp_path / 'data'} from {folder}" in kept
    assert "8 words in the vocabulary" in made
    assert [line.split() for line in made.splitlines() if line.startswith("train")] == [["train", "6", "2", "33.33%"]]


def test_makes_a_corpus_of_sub_words(run, folder, tmp_path):
    printed = run(f"--source={folder}", f"--data_dir={tmp_path / 'data'}", "--subwords=2")
    assert "pieces of words in the vocabulary, from 2 merges" in printed
    assert [line.split() for line in printed.splitlines() if line.startswith("train")] == [
        ["train", "14", "6", "2", "0.00%"]
    ]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--source=/no/such/folder"], "/no/such/folder must be a file of text or a folder with train.txt"),
        (["--source=FOLDER", "--valid_fraction=0.1"], "--valid_fraction divides a text, but --source="),
        (["--split_by=lines"], "--split_by divides a text, but --source=docstrings is divided"),
        (["--source=FOLDER", "--packages=numpy"], "--packages belongs to --source=docstrings"),
        (["--source=FOLDER", "--unit=bytes", "--subwords=5"], "belongs to --unit=words. Received: --unit=bytes"),
        (["--source=FOLDER", "--unit=bytes", "--tokenizer=words"], "belongs to --unit=words. Received: --unit=bytes"),
        (["--source=wikitext-2", "--tokenizer=words"], "--source=wikitext-2 is tokenized already"),
        (["--source=wikitext-2", "--mirrors=nowhere,noway"], "No mirror has wikitext-2: nowhere: unknown url type"),
    ],
)
def test_bad_input_is_refused(folder, tmp_path, flags, message):
    flags = [flag.replace("FOLDER", str(folder)) for flag in flags]
    places = [f"--data_dir={tmp_path / 'data'}", f"--download_dir={tmp_path / 'downloads'}"]
    refused(prepare, *places, *flags, match=re.escape(message))
    assert not (tmp_path / "data").exists()


def test_one_file_of_text_is_divided(run, tmp_path):
    source = tmp_path / "my_novel.txt"
    source.write_text("".join(f"The cat, of chapter {i}.\n\n" for i in range(100)), encoding="utf-8")
    flags = [f"--source={source}", f"--data_dir={tmp_path / 'data'}"]
    printed = run(*flags)
    assert f"Wrote {tmp_path / 'data'} from {source}" in printed
    assert "Divided by documents: 5.00% for valid, 5.00% for test" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(("train", "valid", "test "))]
    assert [row[:3] for row in rows] == [["train", "810", "180"], ["valid", "45", "10"], ["test", "45", "10"]]
    assert f"Kept {tmp_path / 'data'}" in run(*flags, "--processes=2")
    refused(prepare, *flags, "--seed=2", match="exists and is not this corpus")


def test_a_column_of_a_table_is_divided(run, tmp_path):
    source = tmp_path / "reviews.csv"
    source.write_text("id,text\n" + "".join(f'{i},"Not bad,\nnot good"\n{i},film {i}\n' for i in range(60)))
    flags = [f"--source={source}", "--column=text", "--test_fraction=0.1", "--min_count=1", "--tokenizer=whitespace"]
    printed = run(*flags, f"--data_dir={tmp_path / 'data'}")
    rows = [line.split() for line in printed.splitlines() if line.startswith(("train", "valid", "test "))]
    lines = sorted(int(row[2]) for row in rows)
    assert sum(lines) == 120 and "Divided by documents" in printed  # 61 different documents, one of them 60 times
    assert lines in ([3, 6, 111], [3, 52, 65], [6, 52, 62])


@pytest.mark.parametrize("test_tokens", [6, 7])
def test_a_public_corpus_is_downloaded_and_held_to_its_counts(folder, tmp_path, monkeypatch, capsys, test_tokens):
    """A small entry in the table of corpora, as its reader would find it for WikiText-2."""
    monkeypatch.setenv("no_proxy", "*")
    published = {"train": {"tokens": 6}, "valid": {"tokens": 6}, "test": {"tokens": test_tokens}}
    archive = zipped({f"tiny/wiki.{path.stem}.tokens": path.read_bytes() for path in folder.iterdir()})
    with LocalServer() as site:
        address = site.add("tiny.zip", archive)
        fields = {"mirrors": (address,), "published": published, "types": 4, "text_sums": {}}
        monkeypatch.setitem(PUBLIC_CORPORA, "tiny", PUBLIC_CORPORA["wikitext-2"]._replace(**fields))
        flags = [f"--data_dir={tmp_path / 'data'}", f"--download_dir={tmp_path / 'downloads'}", "--source=tiny"]
        bad = pytest.raises(ValueError, match=r"test tokens 6 \(published: 7\)")
        with bad if test_tokens == 7 else contextlib.nullcontext():
            call(prepare, *flags)
    printed = capsys.readouterr().out
    assert f"Downloading {address}" in printed
    assert sorted(path.name for path in (tmp_path / "downloads").iterdir()) == ["tiny", "tiny.zip"]
    if test_tokens == 6:
        assert f"Wrote {tmp_path / 'data'} from tiny" in printed and "at least 1 occurrences" in printed
    assert (tmp_path / "data").exists() == (test_tokens == 6)
