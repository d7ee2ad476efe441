"""Importances of hyper-parameters for the perplexity, by a random forest."""

import numpy as np
from sklearn.ensemble import RandomForestRegressor

TREES = 500
RESAMPLED_TREES = 100  # of the forest of a resample


def importances(points, values, resamples=20, seed=1):
    """Returns the importances of coordinates for a value, by a random forest, and how well the forest knows it.

    The forest's trees divide the points so that the squared error falls; an importance is the share of a coordinate in
    that fall, so that all of them sum to 1. Their spread is the one over forests of points that are drawn again, with
    replacement.

    Args:
        points: Array (points, coordinates).
        values: Array (points).
        resamples: Number of forests of points that are drawn again.
        seed: Seed of the forests and of the resamples.

    Returns:
        `(shares, lows, highs, r2)`: arrays (coordinates) of the importances and of the 10th and 90th percentiles of the
        resamples, and the out-of-bag R² of the forest: 1 if it predicts points that it has not seen, 0 or less if the
        mean of all values predicts them as well.

    Reference: Breiman 2001, "Random Forests".
    """
    points, values = np.asarray(points, float), np.asarray(values, float)
    forest = RandomForestRegressor(TREES, oob_score=True, random_state=seed).fit(points, values)
    random, found = np.random.default_rng(seed), []
    for _ in range(resamples):
        rows = random.integers(len(points), size=len(points))
        again = RandomForestRegressor(RESAMPLED_TREES, random_state=seed).fit(points[rows], values[rows])
        found.append(again.feature_importances_)
    lows, highs = np.percentile(found, [10, 90], axis=0)
    return forest.feature_importances_, lows, highs, forest.oob_score_
