"""Importances of hyper-parameters for the perplexity, by a random forest."""

import numpy as np
from sklearn.ensemble import RandomForestRegressor

TREES = 500
RESAMPLED_TREES = 100  # number of trees in the forest of a resample


def importances(points, values, resamples=20, seed=1):
    """Computes the importances of coordinates for a value by a random forest.

    The trees of the forest divide the points so that the squared error decreases. The importance of a coordinate is its
    share of the decrease, so that all importances add up to 1. Their spread is measured over forests of bootstrap
    samples of the points. See Breiman, Random Forests, 2001.

    Returns `(shares, lows, highs, r2)`: arrays (coordinates,) of the importances and of their 10th and 90th percentiles
    over the samples, and the out-of-bag R² of the forest. R² is 1 if the forest predicts unseen points exactly, and 0
    or less if the mean of all values predicts them as well.
    """
    points, values = np.asarray(points, float), np.asarray(values, float)
    forest = RandomForestRegressor(TREES, oob_score=True, random_state=seed).fit(points, values)
    random, samples = np.random.default_rng(seed), []
    for _ in range(resamples):
        rows = random.integers(len(points), size=len(points))
        resampled = RandomForestRegressor(RESAMPLED_TREES, random_state=seed).fit(points[rows], values[rows])
        samples.append(resampled.feature_importances_)
    lows, highs = np.percentile(samples, [10, 90], axis=0)
    return forest.feature_importances_, lows, highs, forest.oob_score_
