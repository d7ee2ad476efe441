"""Scores as tables with a row per word."""

import json

import numpy as np
import pytest

from keras_adaptive.data import Vocabulary
from tests.support.programs import call
from tests.support.served import write_run
from tests.support.tiny import WORDS, language_model
from trainers import score

pytestmark = pytest.mark.once


@pytest.mark.parametrize("format, mark", [("csv", ","), ("tsv", "\t")])
def test_scores_are_tables_of_words(format, mark, tmp_path, capsys):
    run = write_run(tmp_path / "run", language_model(), Vocabulary(WORDS, range(20, 0, -1))).path
    (tmp_path / "lines.txt").write_text("word1 word2\nword3\n")
    options = [f"--run_dir={run}", f"--input={tmp_path}/lines.txt"]
    call(score, *options, f"--format={format}", "--noline_end", "--preceding=cat")
    header, *rows = (line.split(mark) for line in capsys.readouterr().out.splitlines() if mark in line)
    assert header == ["sentence", "position", "word", "surprisal", "rank", "log_frequency"]
    assert [row[:3] for row in rows] == [["1", "1", "word1"], ["1", "2", "word2"], ["2", "1", "word3"]]
    call(score, f"--run_dir={run}", f"--input={tmp_path}/lines.txt", "--format=json", "--preceding=cat")
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    bits = [-value / np.log(2) for record in records for value in record["log_probs"][:-1]]
    np.testing.assert_allclose([float(row[3]) for row in rows], bits, atol=1e-5)
