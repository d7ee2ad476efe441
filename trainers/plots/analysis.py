"""Pictures of trainers.analyze, for comparing runs."""

import itertools

import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator, PercentFormatter

from trainers.plots import MUTED, VALID, bin_label, draw

COLORS = plt.colormaps["tab10"].colors
MARKERS = "os^Dv<>P"
DASHES = ("-", "--", ":", "-.")
SPLITS = {"valid": ("validation", VALID), "test": ("test", MUTED)}
LEGEND_WIDTH = 100  # characters


def line(number):
    """Returns the style of a run's line; the first 40 differ."""
    style = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}
    return style | {"linewidth": 1.3, "markersize": 5}


def legend_below(figure, axes):
    """Puts the legend under the picture, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, LEGEND_WIDTH // (max(map(len, labels)) + 7))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9)


def label(run, split):
    return f"{run['name']} ({run['perplexity'][split]:,.2f})"


def plot_losses(analysis, key, words):
    """Plots the loss in each bin of `run[key]`, its difference to the best run, and the share of words in the bin."""
    runs, split = analysis["runs"], analysis["split"]
    bins = [{one["low"]: one for one in run[key]} for run in runs]
    lows = sorted(set().union(*bins))
    figure, axes = plt.subplots(3, figsize=(8, 8), sharex=True, height_ratios=[3, 2, 1])
    for number, (run, own) in enumerate(zip(runs, bins)):
        losses = [(place, own[low]["nll"]) for place, low in enumerate(lows) if low in own]
        above = [(place, loss - bins[0][lows[place]]["nll"]) for place, loss in losses if lows[place] in bins[0]]
        axes[0].plot(*zip(*losses), label=label(run, split), **line(number))
        axes[1].plot(*zip(*above), **line(number))
    shares = [bins[0][low]["tokens"] / runs[0]["words"][split] if low in bins[0] else 0 for low in lows]
    bars = axes[2].bar(range(len(lows)), shares, color=MUTED)
    axes[2].bar_label(bars, fmt="{:.1%}", padding=2)
    axes[2].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes[2].margins(y=0.3)
    axes[2].grid(axis="x", visible=False)
    every = {low: one for own in bins for low, one in own.items()}
    axes[2].set_xticks(range(len(lows)), [bin_label(every[low]).replace("– ", "–\n") for low in lows])
    axes[0].set(title=f"Loss by frequency of {words}, {split}", ylabel="loss (nats per word)")
    axes[1].set(ylabel="above the best run")
    axes[2].set(ylabel="share of words", xlabel=f"occurrences of {words} in the training text")
    legend_below(figure, axes[0])
    return figure


def plot_contexts(analysis):
    """Plots perplexity against context, a line for each run and each length of windows."""
    lengths = sorted({one["length"] for run in analysis["runs"] for one in run["contexts"]})
    dashes = dict(zip(lengths, itertools.cycle(DASHES)))
    figure, axes = plt.subplots(figsize=(8, 5.5))
    for number, run in enumerate(analysis["runs"]):
        name = run["name"]
        for length in sorted({one["length"] for one in run["contexts"]}):
            points = sorted((one["context"], one["perplexity"]) for one in run["contexts"] if one["length"] == length)
            axes.plot(*zip(*points), linestyle=dashes[length], label=name, **line(number))
            name = None  # in the legend once
    for length in lengths:
        axes.plot([], color="black", linestyle=dashes[length], label=f"{length:,} tokens at a time")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(title=f"Perplexity by context, {analysis['split']}", ylabel="perplexity per word")
    axes.set(xlabel="context: previous tokens, of those read at a time, that are not scored")
    legend_below(figure, axes)
    return figure


def plot_perplexity(analysis):
    """Plots the perplexities of the runs side by side, the best on top."""
    runs = analysis["runs"]
    figure, axes = plt.subplots(figsize=(8, 1.6 + 0.6 * len(runs)))
    for shift, (split, (text, color)) in zip((-0.2, 0.2), SPLITS.items()):
        places = [place + shift for place in range(len(runs))]
        bars = axes.barh(places, [run["perplexity"][split] for run in runs], 0.4, color=color, label=text)
        axes.bar_label(bars, fmt="{:,.2f}", padding=3, fontsize=9)
    axes.set_yticks(range(len(runs)), [described(run, analysis["differing"]) for run in runs])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    axes.set(title="Perplexity", xlabel="perplexity per word")
    legend_below(figure, axes)
    return figure


def described(run, differing):
    """Returns a run's name, above the settings that differ if they are few."""
    settings = ", ".join(f"{name}={run['settings'].get(name) or '–'}" for name in differing)
    return f"{run['name']}\n{settings}" if 0 < len(differing) <= 2 else run["name"]


def numbers(analysis):
    """Returns the values of the only setting that differs, or None unless there is one and it is a number."""
    try:
        (name,) = analysis["differing"]
        return [float(run["settings"][name]) for run in analysis["runs"]]
    except (KeyError, ValueError):
        return None


def plot_flag(analysis):
    """Plots perplexity against the only flag that differs."""
    (flag,), values = analysis["differing"], numbers(analysis)
    figure, axes = plt.subplots(figsize=(8, 5))
    for split, (text, color) in SPLITS.items():
        points = sorted(zip(values, (run["perplexity"][split] for run in analysis["runs"])))
        axes.plot(*zip(*points), "o-", color=color, linewidth=1.3, markersize=5, label=text)
    for value, run in zip(values, analysis["runs"]):
        for one, place in zip(sorted(run["perplexity"].values()), (-14, 6)):  # points, below and above the two lines
            axes.annotate(f"{one:,.2f}", (value, one), (0, place), textcoords="offset points", ha="center", fontsize=9)
    if 0 < 8 * min(values) <= max(values):
        axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values], minor=False)
        axes.set_xticks([], minor=True)
    axes.margins(y=0.15)
    axes.set(title=f"Perplexity by {flag}", xlabel=f"--{flag}", ylabel="perplexity per word")
    legend_below(figure, axes)
    return figure


def draw_analysis(analysis, folder):
    """Draws every picture into the folder, and returns their paths."""
    pictures = {
        "loss_by_frequency": lambda: plot_losses(analysis, "by_frequency", "the word"),
        "loss_by_previous": lambda: plot_losses(analysis, "by_previous", "the previous word"),
        "contexts": lambda: plot_contexts(analysis),
        "perplexity": lambda: plot_perplexity(analysis),
    }
    if numbers(analysis):
        pictures[f"perplexity_by_{analysis['differing'][0]}"] = lambda: plot_flag(analysis)
    paths = [folder / f"{name}.png" for name in pictures]
    for path, plot in zip(paths, pictures.values()):
        draw(plot, path)
    return paths
