"""The tutorials, as a reader runs them but for their sizes."""

import numpy as np
import pytest

from scripts.tutorials import fine_tuning, language_model, own_model, recommender
from tests.support.backends import BACKEND
from tests.support.text import write_splits


@pytest.mark.once
def test_an_adaptive_softmax_in_a_model_of_your_own(capsys):
    made = own_model.main(words=240, lines=128, length=8, dim=16, epochs=8)
    before, after = made["perplexity"]
    assert after < 0.9 * before and made["best"].shape == (3, 5)
    assert made["model"].count_params() < made["plain"].count_params()
    assert f"parameters: {made['plain'].count_params():,} plain" in capsys.readouterr().out


@pytest.mark.once
def test_fine_tuning_without_logits():
    made = fine_tuning.main(lines=16, length=16, epochs=2)
    plain, ours = made["memory"]
    assert ours < plain / 2
    before, after = made["perplexity"]
    assert after < before and not made["task"].backbone.token_embedding.trainable_variables


@pytest.mark.once
@pytest.mark.parametrize("body", ["sasrec", "gru4rec"])
def test_a_recommender(body):
    """Users stay in one of few groups, which both bodies learn."""
    made = recommender.main(body=body, items=500, users=600, clicks=8, length=7, dim=16, epochs=6, batch_size=16)
    assert made["results"]["hit_rate_at_10"] > made["popular"] + 0.05
    assert len(set(made["recommended"])) == 10 and not set(made["recommended"]) & set(made["clicked"])


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
