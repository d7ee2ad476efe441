"""The tutorials, as a reader runs them but for their sizes."""

import json

import numpy as np
import pytest

from scripts import notebooks
from scripts.tutorials import language_model
from tests.support.backends import BACKEND
from tests.support.text import write_splits
from tests.support.tutorials import run_tutorial


@pytest.mark.once
def test_an_adaptive_softmax_in_a_model_of_your_own(tmp_path, capsys):
    made = run_tutorial("own_model", tmp_path, words=240, lines=128, length=8, dim=16, epochs=8)
    assert made["after"] < 0.9 * made["before"] and made["best"].shape == (3, 5)
    assert made["model"].count_params() < made["plain"].count_params()
    assert f"perplexity after loading: {made['after']:.0f}" in capsys.readouterr().out


@pytest.mark.once
def test_fine_tuning_without_logits(tmp_path):
    made = run_tutorial("fine_tuning", tmp_path, words=20_000, lines=16, length=16, epochs=2)
    assert made["ours"] < made["plain"] / 2
    assert made["after"] < made["before"] and not made["task"].backbone.token_embedding.trainable_variables


@pytest.mark.once
@pytest.mark.parametrize("body", ["sasrec", "gru4rec"])
def test_a_recommender(body, tmp_path):
    """Users stay in one of few groups, which both bodies learn."""
    sizes = {"catalog": 500, "users": 600, "clicks": 8, "length": 7, "dim": 16, "epochs": 6, "batch_size": 16}
    made = run_tutorial("recommender", tmp_path, body=body, **sizes)
    assert made["results"]["hit_rate_at_10"] > made["popular"] + 0.05
    assert len(set(made["recommended"])) == 10 and not set(made["recommended"]) & set(made["clicked"])


@pytest.mark.once
def test_surprisal_falls_with_frequency(tmp_path):
    """Of made-up words, the frequent ones are short."""
    ranks = np.random.default_rng(0).zipf(1.5, (300, 12)) % 40
    lines = [" ".join("abcde"[rank % 5] * (1 + rank // 5) for rank in line) for line in ranks]
    (tmp_path / "novel.txt").write_text("\n".join(lines))
    made = run_tutorial("surprisal", tmp_path, dim=16, length=12, batch_size=8, epochs=6)
    assert made["per_power"] < 0 and len(made["rows"]) > 100
    assert (tmp_path / "sentence.png").exists() and (tmp_path / "length_and_frequency.png").exists()


@pytest.mark.once
@pytest.mark.parametrize("name", sorted(notebooks.EXTRAS))
def test_a_notebook_has_the_cells_of_its_tutorial_and_outputs(name):
    path = notebooks.FOLDER / f"{name}.ipynb"
    made = json.loads(path.read_text(encoding="utf-8"))["cells"]
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in made]
    assert found == notebooks.cells(name), f"Run `python -m scripts.notebooks {name}`."
    outputs = [output for cell in made for output in cell.get("outputs", ())]
    assert outputs and not any(output["output_type"] == "error" for output in outputs)
    assert path.stat().st_size < 300_000


def test_a_language_model(tmp_path, capsys):
    text = write_splits(tmp_path / "text", 40 * "Return the name of the file in the folder , or None .\n")
    sizes = {"dim": 16, "length": 8, "batch_size": 4, "every": 2, "epochs": 2}
    made = language_model.main(tmp_path, text, **sizes)
    assert made["updates"] == 4 and np.isfinite(made["perplexity"])
    printed = capsys.readouterr().out
    assert "training from update 0\n" in printed and "training from update 2\n" in printed
    if BACKEND == "tensorflow":
        expected = made["lm"].score("Return the name of the file .")["perplexity"]
        assert float(made["served"]["perplexity"][0]) == pytest.approx(expected, rel=1e-4)
