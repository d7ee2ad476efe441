"""The programs end to end on characters and on bytes: figures in bits, texts without spaces that are not theirs."""

import io
import json
import math

import numpy as np
import pytest

from keras_adaptive.data import UNK, load_corpus
from keras_adaptive.evaluation import lengths
from tests.support.programs import call
from tests.support.quickstart import SHRUNK
from trainers import evaluate, generate, prepare, score, train
from trainers.experiments.run_folder import RunFolder

pytestmark = pytest.mark.once

LINE = "the naïve  cat, "


@pytest.fixture(scope="module", params=["characters", "bytes"])
def run_dir(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("characters")
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(f"{LINE}\n\n{LINE[::-1]}" * 9, encoding="utf-8")
    call(prepare, f"--source={folder}", f"--unit={request.param}", f"--data_dir={folder}/data", "--processes=1")
    call(train, *SHRUNK, f"--data_dir={folder}/data", f"--run_dir={folder}/run", "--cutoffs=8")
    return folder / "run"


def test_evaluation_is_in_bits_of_every_unit(run_dir, capsys):
    call(evaluate, f"--run_dir={run_dir}", "--block=8")
    result = json.loads((run_dir / "evaluation_valid.json").read_text())
    corpus = load_corpus(run_dir.parent / "data")
    unit, numbers = corpus.metadata["unit"], lengths(corpus, "valid")
    assert set(numbers) == {"byte", "character", "word"} and result["unit"] == unit
    total = result["loss"] * len(corpus.tokens("valid")) / math.log(2)
    for name, number in numbers.items():
        assert result[f"bits_per_{name}"] == pytest.approx(total / number, rel=1e-9)
    if unit == "character":
        assert result["bits_per_character"] == pytest.approx(result["loss"] / math.log(2), rel=1e-9)
    assert f"{result['bits_per_character']:.4f} per character" in capsys.readouterr().out


def test_every_character_is_scored(run_dir, monkeypatch, capsys):
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(f"{LINE}\n".encode()))
    call(score, f"--run_dir={run_dir}", "--format=json")
    scored = json.loads(capsys.readouterr().out)
    assert "".join(RunFolder(run_dir).codec.detokenize(scored["tokens"])) == f"{LINE}\n"
    assert scored["unknown"] == [] and scored["words"] == len(scored["tokens"])


def test_the_mark_of_editors_is_text_in_bytes_only(run_dir, monkeypatch, capsys):
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO("\ufeffthe\n\ufeff\n".encode()))
    call(score, f"--run_dir={run_dir}", "--format=json")
    codec = RunFolder(run_dir).codec
    texts = ["".join(codec.detokenize(json.loads(line)["tokens"])) for line in capsys.readouterr().out.splitlines()]
    assert texts == ["\ufeffthe\n" if codec.keeps_mark else "the\n", "\ufeff\n"]  # no mark amid a text
    assert codec.keeps_mark == (codec.tokenizer == "bytes")


def test_generated_characters_are_joined_as_they_are(run_dir, capsys):
    call(generate, f"--run_dir={run_dir}", f"--prompt={LINE}", "--length=20", "--seed=1")
    run, out = RunFolder(run_dir), capsys.readouterr().out
    assert out.startswith(LINE)
    prompt = np.append(2, run.codec.encode(run.codec.tokenize(LINE)))[None]
    tokens = run.codec.decode([int(ids[0]) for ids in run.model().stream(prompt, 20, 1.0, None, 1, forbid=[UNK])])
    assert out == LINE + "".join(run.codec.detokenize(tokens)) + "\n"


def test_unknown_letters_and_spaces_are_printed_in_quotes(run_dir, monkeypatch, capsys):
    call(generate, f"--run_dir={run_dir}", "--prompt=cz\t", "--length=1")
    unit = load_corpus(run_dir.parent / "data").metadata["unit"]
    first, second = ("b'z'", r"b'\t'") if unit == "byte" else ("'z'", r"'\t'")
    assert capsys.readouterr().err == f"Not in the vocabulary, read as <unk>: {first} {second}\n"
    monkeypatch.setattr(score, "standard_input", lambda: io.BytesIO(b"cz\t\n"))
    call(score, f"--run_dir={run_dir}")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=3)[3] for line in lines[1:4]] == [
        *(f"{token}  (scored as <unk>)" for token in (first, second)),
        "</s>",
    ]


@pytest.mark.parametrize("flag", ["--subwords=5", "--tokenizer=words"])
def test_flags_of_words_are_refused(tmp_path, flag):
    with pytest.raises(ValueError, match="belongs to --unit=words. Received: --unit=bytes"):
        call(prepare, f"--source={tmp_path}", "--unit=bytes", f"--data_dir={tmp_path}/data", flag)
