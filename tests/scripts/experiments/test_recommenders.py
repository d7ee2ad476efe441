"""The comparison of losses of recommenders: a log with known truth, and a model that is better than chance on it."""

import json

import numpy as np
import pytest

from scripts.experiments import plot_recommenders, recommenders
from tests.support.programs import call

pytestmark = pytest.mark.once


def test_a_log_is_made_read_and_ranked(tmp_path, monkeypatch):
    """The items of a user are those of few groups."""
    monkeypatch.setattr(recommenders, "GROUPS", 8)
    monkeypatch.setattr(recommenders, "SIZE", 30)
    monkeypatch.setattr(recommenders.generated, "__defaults__", (200, 6))
    call(recommenders, f"--log={tmp_path}/log.npy", "--make=generated")
    clicks = np.load(tmp_path / "log.npy")
    assert clicks.shape == (200, 6) and 100 < len(np.unique(clicks)) <= 240
    for loss in ("adaptive", "uniform"):
        flags = ["--minutes=0.01", "--rate=0.01", "--users=150", "--noise=20", "--batch_size=50"]
        call(recommenders, f"--log={tmp_path}/log.npy", f"--loss={loss}", *flags, f"--results={tmp_path}/result.json")
        result = json.loads((tmp_path / "result.json").read_text())
        assert result["ranked"] <= 150 and result["loss"] == loss and result["updates"] >= 1
        assert result["items"] == len(np.unique(clicks[:, :-2])) + 4 and 0 <= result["ndcg"] <= result["hit"] <= 1


def test_the_picture_is_drawn_from_the_results(tmp_path):
    plot_recommenders.main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
