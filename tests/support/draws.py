"""Checks whether words are drawn by their probabilities."""

import numpy as np


def check_draws(ids, probabilities):
    """Checks by a χ² test that the drawn `ids` (draws,) follow the `probabilities` (vocabulary,)."""
    counts = np.bincount(ids, minlength=len(probabilities))
    assert not counts[probabilities == 0].any()
    expected = probabilities[probabilities > 0] * len(ids)
    statistic = np.sum((counts[probabilities > 0] - expected) ** 2 / expected)
    freedom = len(expected) - 1
    assert expected.min() > 5 and statistic < freedom + 4 * np.sqrt(2 * freedom)  # far beyond the 99.9 % point
