"""Scores and continuations of lines, by the programs, for the run of `test_programs.py`; and runs that are refused."""

import csv
import json
import math
import queue
import shutil
import subprocess
import sys

import numpy as np
import pytest

from keras_adaptive.data import Vocabulary, load_corpus
from keras_adaptive.evaluation import word_losses
from keras_adaptive.text.surprisals import COLUMNS
from tests.support.programs import call
from tests.support.quickstart import SHRUNK
from tests.support.refusals import refused
from tests.support.runs import evaluated, printed_scores, scored
from tests.support.served import write_run
from tests.support.text import prepared
from tests.support.tiny import WORDS, language_model
from trainers import evaluate, generate, score, train
from trainers.experiments.run_folder import RunFolder

pytestmark = [pytest.mark.usefixtures("models_read_once"), pytest.mark.once]


@pytest.mark.parametrize("blocks_of, name", [("lines", "tokens in whole lines"), ("tokens", "tokens")])
def test_context_windows_score_the_same_tokens(trained, corpus, blocks_of, name):
    losses = {}
    for context in (0, 6):
        flags = [f"--blocks_of={blocks_of}", "--block=10", f"--context={context}"]
        result = evaluated(trained, *flags, split="test")
        assert (result["tokens"], result["context"], result["blocks_of"]) == (12 * 8, context, name)
        losses[context] = result["loss"]
    assert losses[0] != losses[6]
    model, data = RunFolder(trained).model(), load_corpus(corpus)
    nll, _ = word_losses(model, data, "test", 10, 6, 5, by_lines=blocks_of == "lines")
    assert losses[6] == pytest.approx(nll.mean(), rel=1e-5)


def test_score_table_names_the_unknown_word(trained):
    printed = "\n".join(printed_scores(trained, "w1 qqq\n"))
    assert "qqq  (scored as <unk>)" in printed and "3 tokens, perplexity" in printed


def test_score_shows_alternatives_and_entropies(trained):
    line = "w1 w2 qqq\n"
    (plain,), (record,) = scored(trained, line), scored(trained, line, "--alternatives=80")
    assert record["log_probs"] == pytest.approx(plain["log_probs"], abs=2e-5) and record["ranks"] == plain["ranks"]
    for entropy, best, rank, log_prob in zip(*(record[k] for k in ("entropies", "alternatives", "ranks", "log_probs"))):
        values = np.array([value for _, value in best])
        assert len(best) == 80 and (np.diff(values) <= 0).all()
        assert values[rank - 1] == pytest.approx(math.exp(log_prob), abs=1e-5) and 0 < entropy < math.log(96)
    word, value = record["alternatives"][0][0]
    shown = f"(entropy {record['entropies'][0]:.4f}; {word} {value:.4f}, "
    assert shown in "\n".join(printed_scores(trained, line, "--alternatives=2"))
    match = "--alternatives must be at most .* Received: --alternatives=999"
    refused(score, f"--run_dir={trained}", "--alternatives=999", match=match)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Returns a function `(text, *flags)` that scores by a run, and returns the rows of the table as dicts."""
    run = write_run(tmp_path_factory.mktemp("runs") / "run", language_model(), Vocabulary(WORDS, range(20, 0, -1))).path

    def rows(text, *flags, runs=1):
        lines = printed_scores(",".join([str(run)] * runs), text, *flags)
        dialect = "excel" if "--format=csv" in flags else "excel-tab"
        return list(csv.DictReader(lines, dialect=dialect))

    rows.run = run
    return rows


def test_a_table_for_regressions_and_one_of_lm_zoo(table):
    text, flags = "word1 word2\nword3\n", ["--noline_end", "--preceding=cat"]
    rows = table(text, "--format=csv", *flags)
    assert list(rows[0]) == list(COLUMNS)
    assert [(row["sentence"], row["position"], row["word"]) for row in rows] == [
        *(("1", "1", "word1"), ("1", "2", "word2"), ("2", "1", "word3"))
    ]
    records = scored(table.run, text, "--preceding=cat", "--alternatives=1")
    for name, field, sign in (("surprisal", "log_probs", -1), ("entropy", "entropies", 1)):
        expected = sign * np.array([value for record in records for value in record[field][:-1]]) / np.log(2)
        np.testing.assert_allclose([float(row[name]) for row in rows], expected, atol=1e-5)
    for name in ("surprisal", "entropy", "log_frequency", "length"):
        assert rows[0][f"previous_{name}"] == rows[2][f"previous_{name}"] == ""
        assert rows[1][f"previous_{name}"] == rows[0][name] != ""
    of_lm_zoo = table(text, "--format=tsv", *flags)
    assert list(of_lm_zoo[0]) == ["sentence_id", "token_id", "token", "surprisal"]
    values = [[float(row["surprisal"]) for row in each] for each in (rows, of_lm_zoo)]
    np.testing.assert_allclose(*values, atol=1e-5)


def test_the_context_begins_again_where_it_is_told_to(table):
    text = "word1 word2\nword3\n\nword4\n"
    by_paragraph, whole = (table(text, "--format=csv", f"--resets={where}") for where in ("paragraph", "input"))
    places = [(row["sentence"], row["position"], row["word"]) for row in by_paragraph]
    assert places == [
        *(("1", "1", "word1"), ("1", "2", "word2"), ("1", "3", "</s>"), ("2", "1", "word3"), ("2", "2", "</s>")),
        *(("4", "1", "word4"), ("4", "2", "</s>")),
    ]
    (record,) = scored(table.run, "word3\n", "--preceding=word1 word2 </s>")
    expected = -np.array(record["log_probs"]) / np.log(2)
    np.testing.assert_allclose([float(row["surprisal"]) for row in by_paragraph[3:5]], expected, atol=1e-5)
    assert by_paragraph[3]["previous_surprisal"] == by_paragraph[1]["surprisal"]
    assert by_paragraph[5]["previous_surprisal"] == "" != whole[6]["previous_surprisal"]
    words = [row["token"] for row in table(text, "--format=tsv", "--resets=input", "--noline_end")]
    assert words == ["word1", "word2", "word3", "word4"]
    refused(score, f"--run_dir={table.run}", "--resets=input", match="--resets=input numbers the lines")


def test_several_runs_are_one_table(table):
    rows = table("word1\n", "--format=csv", runs=2)
    assert len(rows) == 4 and [list(row)[0] for row in rows] == ["run"] * 4
    assert rows[0] == rows[2] and rows[0]["run"] == str(table.run)
    refused(score, f"--run_dir={table.run},{table.run}", match="Several runs are a table of words: pass --format=csv")


def test_pairs_of_sentences_are_compared(table, capsys):
    text = "word1 word2\tword3\nword4\tword5 dog\n"
    rows = table(text, "--pairs", "--format=tsv")
    bits = [-record["log_prob"] / math.log(2) for record in scored(table.run, text.replace("\t", "\n"))]
    assert [float(row["surprisal"]) for row in rows] == pytest.approx(bits[::2], abs=1e-4)
    assert [float(row["surprisal_of_other"]) for row in rows] == pytest.approx(bits[1::2], abs=1e-4)
    right = [one < other for one, other in zip(bits[::2], bits[1::2])]
    assert [row["is_right"] for row in rows] == [str(int(value)) for value in right]
    assert [row["unknown"] for row in rows] == ["0", "1"]
    assert f"{50 * sum(right):.2f} % of 2 pairs are right" in capsys.readouterr().err
    with pytest.raises(
        ValueError, match="Line 2 must be two sentences with a tab between them. Received: 1 parts, 'x'"
    ):
        table("a\tb\nx\n", "--pairs")


def test_score_works_on_lines_together_as_alone(trained, tmp_path, capsys):
    lines = ["w1 w2", "", " ".join(["w3 w1"] * 20), "w2"]
    for name, some in (("a.txt", lines[:3]), ("b.txt", lines[3:])):
        (tmp_path / name).write_text("\n".join(some) + "\n")
    files = [f"--input={tmp_path}/a.txt", f"--input={tmp_path}/b.txt"]
    results = []
    for size in (1, 3):
        call(score, f"--run_dir={trained}", "--format=json", *files, f"--batch_size={size}")
        results.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    for line, alone, together in zip(lines, *results, strict=True):
        assert alone["tokens"] == together["tokens"] == [*line.split(), "</s>"]
        assert alone["log_probs"] == pytest.approx(together["log_probs"], abs=2e-5)
        assert alone["ranks"] == together["ranks"] and min(alone["ranks"]) >= 1
        assert alone["bands"] == [int(id >= 30) for id in RunFolder(trained).codec.vocabulary.encode(alone["tokens"])]


def test_score_answers_each_line_before_the_next_one_comes():
    asked = queue.Queue()
    answers = score.as_they_come(iter(asked.get, None), 16)
    for line in (["a"], ["b"]):
        asked.put(line)
        assert next(answers) == [line]
    asked.put(None)
    assert list(answers) == []


def test_generate_continues_the_prompts_of_a_file(trained, tmp_path, capsys):
    (tmp_path / "prompts.txt").write_text("\ufeffw1\n\nw2 w3 w1\n")  # with the mark of some editors
    options = [f"--run_dir={trained}", "--length=4", "--temperature=0"]
    call(generate, *options, f"--input={tmp_path}/prompts.txt", "--batch_size=2")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["prompt"].strip() for one in found] == ["w1", "", "w2 w3 w1"]
    for one in found:
        call(generate, *options, f"--prompt={one['prompt']}")
        assert capsys.readouterr().out.strip() == (one["prompt"] + one["text"]).strip()


def test_generate_ends_with_the_stop_word(trained, tmp_path, capsys):
    (tmp_path / "prompts.txt").write_text("w1\nw2 w3\n")
    options = [f"--run_dir={trained}", "--length=6", "--seed=3", "--top_p=0.9"]
    call(generate, *options, "--prompt=w1")
    text = capsys.readouterr().out.split()
    assert len(text) > 3
    call(generate, *options, "--prompt=w1", f"--stop={text[2]}")
    assert capsys.readouterr().out.split() == text[: text.index(text[2], 1) + 1]
    texts, stop = [], []
    for _ in range(2):
        call(generate, *options, f"--input={tmp_path}/prompts.txt", *stop)
        texts.append([json.loads(line)["text"].split() for line in capsys.readouterr().out.splitlines()])
        word = texts[0][0][2]  # amid the first text
        stop = [f"--stop={word}"]
    for whole, one in zip(*texts, strict=True):
        assert one == whole[: whole.index(word) + 1 if word in whole else None]
    assert len(texts[1][0]) <= 3
    refused(generate, *options, "--stop=w1 w2", match="--stop must be a word of the vocabulary, .* --stop=w1 w2")


def test_the_same_command_continues_and_other_flags_are_refused(trained, corpus, capsys):
    before = (trained / "last.keras").read_bytes()
    command = [*SHRUNK, f"--data_dir={corpus}", f"--run_dir={trained}"]
    call(train, *command)
    assert f"Continuing {trained} from {trained}/checkpoints/update_0000000006.npz" in capsys.readouterr().out
    refused(train, *command, "--dim=32", match=r"other flags: --dim=32 \(was 16\)")
    assert (trained / "last.keras").read_bytes() == before


@pytest.mark.processes
def test_two_trainings_in_one_folder(trained, corpus):
    before = {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    code = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(1, flush=True); input()"
    holder = [sys.executable, "-c", code, str(trained / "lock")]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        refused(train, *SHRUNK, f"--data_dir={corpus}", f"--run_dir={trained}", match="Another training uses")
        other.kill()  # with the process its lock is gone
    call(train, *SHRUNK, f"--data_dir={corpus}", f"--run_dir={trained}")
    assert {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()} == before


def test_a_run_without_checkpoints_is_refused(trained, corpus, tmp_path):
    run_dir = shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(run_dir / "checkpoints")
    command = [*SHRUNK, f"--data_dir={corpus}", f"--run_dir={run_dir}"]
    refused(train, *command, match="has no checkpoints to resume from")


def test_a_corpus_of_another_vocabulary_is_refused(trained, tmp_path):
    other = prepared(tmp_path, " ".join(f"other{n}" for n in range(80)))
    flags = [f"--data_dir={other.data_dir}", f"--run_dir={trained}"]
    refused(train, *SHRUNK, *flags, match=r"another vocabulary than .* has 88 words .* as id 4 'other.* \(was 'w")
    refused(evaluate, *flags, match="another vocabulary")


def test_an_open_vocabulary_needs_bytes(trained):
    refused(generate, f"--run_dir={trained}", "--prompt=w1 dog", "--length=3", "--open_vocabulary", match="CharCNN")


def test_summary_counts_without_training(corpus, capsys):
    call(train, *SHRUNK, "--summary", f"--data_dir={corpus}")
    printed = capsys.readouterr().out
    size, dim = len(load_corpus(corpus).vocabulary), 16
    tables = 30 * dim + (size - 30) * 4 + (16 + 4) * dim
    block = 4 * (dim * dim + dim) + (dim * 32 + 32) + (32 * dim + dim) + 4 * dim
    assert f"{tables:,}" in printed and f"{tables + block + dim:,}" in printed
