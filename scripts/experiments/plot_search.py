"""Pictures of a search: importances of hyper-parameters, and heat maps of pairs of them.

The pictures correspond to figures 3 and 4 of Merity et al. 2018, whose heat maps are triangulated surfaces.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np

from trainers import plots

CELLS = 5  # number of cells along each axis of a heat map
MOST_IMPORTANT = 3  # number of hyper-parameters whose pairs are drawn


def draw_search(result, folder):
    """Draws both pictures of a result of `search.analyze`: all importances, and pairs of the largest ones."""
    pairs = list(itertools.combinations(list(result["importances"])[:MOST_IMPORTANT], 2))
    plots.draw(plot_importances, folder / "importances.png", result)
    if pairs:
        plots.draw(plot_heat_maps, folder / "heat_maps.png", result, pairs)


def plot_importances(result):
    """Plots the importances as bars, with their range over the forests of resampled trials."""
    rows = result["importances"]
    shares, lows, highs = ([row[key] for row in rows.values()] for key in ("importance", "low", "high"))
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.4 * len(rows)))
    axes.barh(range(len(rows)), shares, color=plots.TRAIN)
    axes.hlines(range(len(rows)), lows, highs, color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(
        title=f"Importance for the valid perplexity: {len(result['trials'])} trials, out-of-bag R² {result['r2']:.2f}",
        xlabel="importance in a random forest; lines: 80 % of forests of resampled trials",
        xlim=(0, None),
    )
    return figure


def plot_heat_maps(result, pairs):
    """Plots the mean perplexity and the number of trials in the cells of each pair of hyper-parameters."""
    columns = min(len(pairs), 3)
    rows = -(-len(pairs) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4.5 * columns, 0.8 + 3.6 * rows), squeeze=False)
    maps = [cell_means(result, *pair) for pair in pairs]
    low, high = (bound([bound(means) for means, _ in maps]) for bound in (np.nanmin, np.nanmax))
    for axis, pair, (means, counts) in zip(axes.flat, pairs, maps):
        (left, right), (bottom, top) = (result["space"][name] for name in pair)
        extent = (left, right, bottom, top)
        image = axis.imshow(
            means.T, origin="lower", extent=extent, aspect="auto", cmap="viridis_r", vmin=low, vmax=high
        )
        for (i, j), count in np.ndenumerate(counts):
            place = left + (i + 0.5) * (right - left) / CELLS, bottom + (j + 0.5) * (top - bottom) / CELLS
            text = f"{means[i, j]:,.0f}\n({count:.0f})" if count else "–"
            dark = count and means[i, j] > (low + high) / 2
            axis.text(*place, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
        axis.grid(visible=False)
        axis.set(xlabel=pair[0], ylabel=pair[1])
    for axis in axes.flat[len(pairs) :]:
        axis.set_axis_off()
    figure.colorbar(image, ax=axes, label="mean validation perplexity")
    figure.suptitle("Mean validation perplexity (and number of trials) by pairs of hyper-parameters", fontsize=10)
    return figure


def cell_means(result, first, second, cells=CELLS):
    """Returns the mean perplexity, NaN without trials, and the number of trials in cells of two hyper-parameters."""
    trials, bounds = result["trials"], [result["space"][name] for name in (first, second)]
    places = [[trial["hyper_parameters"][name] for trial in trials] for name in (first, second)]
    counts, *_ = np.histogram2d(*places, cells, bounds)
    sums, *_ = np.histogram2d(*places, cells, bounds, weights=[trial["bounded"] for trial in trials])
    return np.where(counts, sums / np.maximum(counts, 1), np.nan), counts
