import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keras_adaptive.data import prepare

ROOT = Path(__file__).parents[2]
CONFIG = """# A comment
--dim=32
--num_blocks=1
--num_heads=2
--ffn_dim=16
--cutoffs=8,16
--length=8
--batch_size=4
--updates=4
--evaluate_every=2
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    lines = [" ".join(f"w{(i * j) % 23}" for j in range(8)) for i in range(40)]
    for split, count in (("train", 40), ("valid", 9), ("test", 11)):
        (folder / f"{split}.txt").write_text("\n".join(lines[:count]) + "\n")
    prepare(folder, folder / "words", min_count=1)
    prepare(folder, folder / "pieces", min_count=1, subwords=8)
    (folder / "tiny.flags").write_text(CONFIG)
    return folder


def compare(text, *arguments):
    script = [sys.executable, str(ROOT / "scripts/compare_factorisations.py"), f"--data_dir={text}/words"]
    command = [*script, f"--config={text}/tiny.flags", f"--output_dir={text}/runs", *arguments]
    return subprocess.run(command, cwd=text, capture_output=True, text=True, timeout=500, env=os.environ)


def test_models_are_trained_and_compared_per_word(text):
    names = ["--names=ADP-T,BPE-T", "--seeds=1,ADP-T:2", f"--subword_dir={text}/pieces"]
    first = compare(text, *names)
    assert first.returncode == 0, first.stderr
    table = json.loads((text / "runs/comparison.json").read_text())
    assert {name: row["seeds"] for name, row in table.items()} == {"ADP-T": 2, "BPE-T": 1}
    runs = {run["name"]: run for run in json.loads((text / "runs/analysis.json").read_text())["runs"]}
    two = [runs[f"adp-t_{seed}"]["perplexity"]["valid"] for seed in (1, 2)]
    assert table["ADP-T"]["valid"] == pytest.approx(sum(two) / 2) and two[0] != two[1]
    assert runs["bpe-t_1"]["words"] == runs["adp-t_1"]["words"]
    again = compare(text, *names)
    assert again.returncode == 0 and "update 4 of 4" in again.stdout and "Training" not in again.stdout


def test_bad_names_and_a_missing_corpus_of_subwords_are_told_of(text):
    assert "Received: LSTM" in compare(text, "--names=LSTM").stderr
    assert "--subword_dir" in compare(text, "--names=BPE").stderr
