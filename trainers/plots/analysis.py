"""Pictures of trainers.analyze, which compare runs."""

import functools
import itertools
import math
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator, PercentFormatter

from trainers.plots import MUTED, VALID, bin_label, draw

COLORS = plt.colormaps["tab10"].colors
LENGTH_COLORS = plt.colormaps["viridis"]  # for words, from short to long
MARKERS = "os^Dv<>P"
DASHES = ("-", "--", ":", "-.")
SPLITS = {"valid": ("validation", VALID), "test": ("test", MUTED)}
LEGEND_WIDTH = 100  # characters


def line(number):
    """Returns the style of the line of a run. The first 40 styles differ."""
    style = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}
    return style | {"linewidth": 1.3, "markersize": 5}


def legend_below(figure, axes):
    """Puts the legend below the picture, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, LEGEND_WIDTH // (max(map(len, labels)) + 7))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9)


def measured(analysis):
    """Returns the measure by which runs are compared, such as "perplexity per word" or "bits per character"."""
    return "{name} per {unit}".format(**analysis["measure"])


def results(analysis):
    """Returns the dict {split: value} of each run."""
    return [run[analysis["measure"]["name"]] for run in analysis["runs"]]


def shown(analysis, value):
    return f"{value:,.{analysis['measure']['digits']}f}"


def labels(analysis):
    values = [shown(analysis, result[analysis["split"]]) for result in results(analysis)]
    return [f"{run['name']} ({value})" for run, value in zip(analysis["runs"], values)]


def plot_losses(analysis, key, words):
    """Plots the loss in each bin of `run[key]`, its difference from the best run, and the share of words in the bin."""
    runs, split, unit = analysis["runs"], analysis["split"], analysis["measure"]["unit"]
    bins = [{part["low"]: part for part in run[key]} for run in runs]
    lows = sorted(set().union(*bins))
    figure, axes = plt.subplots(3, figsize=(8, 8), sharex=True, height_ratios=[3, 2, 1])
    for number, (label, parts) in enumerate(zip(labels(analysis), bins)):
        losses = [(place, parts[low]["nll"]) for place, low in enumerate(lows) if low in parts]
        above = [(place, loss - bins[0][lows[place]]["nll"]) for place, loss in losses if lows[place] in bins[0]]
        axes[0].plot(*zip(*losses), label=label, **line(number))
        axes[1].plot(*zip(*above), **line(number))
    shares = [bins[0][low]["tokens"] / runs[0]["words"][split] if low in bins[0] else 0 for low in lows]
    bars = axes[2].bar(range(len(lows)), shares, color=MUTED)
    axes[2].bar_label(bars, fmt="{:.1%}", padding=2)
    axes[2].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes[2].margins(y=0.3)
    axes[2].grid(axis="x", visible=False)
    every = {low: part for parts in bins for low, part in parts.items()}
    axes[2].set_xticks(range(len(lows)), [bin_label(every[low]).replace("– ", "–\n") for low in lows])
    axes[0].set(title=f"Loss by frequency of {words}, {split}", ylabel=f"loss (nats per {unit})")
    axes[1].set(ylabel="above the best run")
    axes[2].set(ylabel=f"share of {unit}s", xlabel=f"occurrences of {words} in the training text")
    legend_below(figure, axes[0])
    return figure


def plot_windows(analysis):
    """Plots perplexity, or bits, by the length of windows, with a line for each run."""
    measure = analysis["measure"]["name"]
    figure, axes = plt.subplots(figsize=(8, 5))
    for number, run in enumerate(analysis["runs"]):
        points = sorted((window["length"], window[measure]) for window in run["contexts"])
        axes.plot(*zip(*points), label=run["name"], **line(number))
    lengths = sorted({window["length"] for run in analysis["runs"] for window in run["contexts"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.set(title=f"{measure.capitalize()} by length of windows, {analysis['split']}", ylabel=measured(analysis))
    axes.set(xlabel="tokens of a window")
    legend_below(figure, axes)
    return figure


def plot_contexts(analysis):
    """Plots perplexity, or bits, by context, with a line for each run and each length of windows."""
    windows = [window for run in analysis["runs"] for window in run["contexts"]]
    if len({window["context"] for window in windows}) == 1 < len({window["length"] for window in windows}):
        return plot_windows(analysis)
    measure = analysis["measure"]["name"]
    lengths = sorted({window["length"] for run in analysis["runs"] for window in run["contexts"]})
    dashes = dict(zip(lengths, itertools.cycle(DASHES)))
    figure, axes = plt.subplots(figsize=(8, 5.5))
    for number, run in enumerate(analysis["runs"]):
        name = run["name"]
        for length in sorted({window["length"] for window in run["contexts"]}):
            points = sorted(
                (window["context"], window[measure]) for window in run["contexts"] if window["length"] == length
            )
            axes.plot(*zip(*points), linestyle=dashes[length], label=name, **line(number))
            name = None  # the legend has each run once
    for length in lengths:
        axes.plot([], color="black", linestyle=dashes[length], label=f"{length:,} tokens at a time")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(title=f"{measure.capitalize()} by context, {analysis['split']}", ylabel=measured(analysis))
    axes.set(xlabel="context (first tokens of a window, which are not scored)")
    legend_below(figure, axes)
    return figure


def plot_validations(analysis):
    """Plots the loss of each validation by update, with a line for each run."""
    figure, axes = plt.subplots(figsize=(8, 5))
    for number, (run, label) in enumerate(zip(analysis["runs"], labels(analysis))):
        if run["validations"]:
            axes.plot(
                *zip(*((record["update"], record["loss"]) for record in run["validations"])),
                label=label,
                **line(number),
            )
    axes.set(title="Validation loss during training", xlabel="update", ylabel="validation loss (nats per token)")
    legend_below(figure, axes)
    return figure


def plot_perplexity(analysis):
    """Plots the perplexities, or bits, of the runs side by side, the best on top."""
    runs = analysis["runs"]
    figure, axes = plt.subplots(figsize=(8, 1.6 + 0.6 * len(runs)))
    for shift, (split, (text, color)) in zip((-0.2, 0.2), SPLITS.items()):
        places = [place + shift for place in range(len(runs))]
        bars = axes.barh(places, [result[split] for result in results(analysis)], 0.4, color=color, label=text)
        axes.bar_label(bars, fmt=functools.partial(shown, analysis), padding=3, fontsize=9)
    axes.set_yticks(range(len(runs)), [described(run, analysis["differing"]) for run in runs])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    axes.set(title=analysis["measure"]["name"].capitalize(), xlabel=measured(analysis))
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
    """Plots perplexity, or bits, by the only flag that differs."""
    (flag,), values = analysis["differing"], numbers(analysis)
    figure, axes = plt.subplots(figsize=(8, 5))
    for split, (text, color) in SPLITS.items():
        points = sorted(zip(values, (result[split] for result in results(analysis))))
        axes.plot(*zip(*points), "o-", color=color, linewidth=1.3, markersize=5, label=text)
    for value, result in zip(values, results(analysis)):
        for result_value, place in zip(sorted(result.values()), (-14, 6)):  # points, below and above the two lines
            text = shown(analysis, result_value)
            axes.annotate(text, (value, result_value), (0, place), textcoords="offset points", ha="center", fontsize=9)
    if 0 < 8 * min(values) <= max(values):
        axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values], minor=False)
        axes.set_xticks([], minor=True)
    axes.margins(y=0.15)
    name = analysis["measure"]["name"]
    axes.set(title=f"{name.capitalize()} by {flag}", xlabel=f"--{flag}", ylabel=measured(analysis))
    legend_below(figure, axes)
    return figure


def plot_gains(analysis):
    """Plots the gain in log-probability over the baseline in each bucket, with a line for each other run."""
    unit, split = analysis["measure"]["unit"], analysis["split"]
    base = next(run for run in analysis["runs"] if run["name"] == analysis["baseline"])
    figure, axes = plt.subplots(figsize=(8, 5))
    for number, (run, label) in enumerate(zip(analysis["runs"], labels(analysis))):
        if run is not base:
            gains = [before["nll"] - after["nll"] for before, after in zip(base["by_bucket"], run["by_bucket"])]
            axes.plot(range(1, len(gains) + 1), gains, label=label, **line(number))
    axes.axhline(0, color=MUTED, linewidth=1)
    ticks = base["by_bucket"][:: max(1, len(base["by_bucket"]) // 6)]
    places = range(1, len(base["by_bucket"]) + 1, max(1, len(base["by_bucket"]) // 6))
    axes.set_xticks(places, [f"{place}\n{bucket['least']:,}" for place, bucket in zip(places, ticks)])
    axes.set(title=f"Gain in log-probability over {base['name']}, {split}", ylabel=f"mean gain (nats per {unit})")
    axes.set(xlabel=f"bucket of equal size, and the occurrences of its rarest {unit} in the training text")
    legend_below(figure, axes)
    return figure


def plot_positions(analysis):
    """Plots the probability of the correct token by its position, with a line for each run."""
    unit = analysis["measure"]["unit"]
    place = "after The" if unit == "word" else "in the word"
    figure, axes = plt.subplots(figsize=(8, 5))
    for number, (run, label) in enumerate(zip(analysis["runs"], labels(analysis))):
        if run["by_position"]:
            points = [(point["position"], point["probability"]) for point in run["by_position"]]
            axes.plot(*zip(*points), label=label, **line(number))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    axes.set(title=f"Probability of the correct {unit} by position {place}, {analysis['split']}")
    axes.set(xlabel=f"position of the {unit} {place}", ylabel="mean probability")
    legend_below(figure, axes)
    return figure


def plot_lengths(analysis):
    """Plots the probability of the correct character by position, in a panel per run with a line for each length."""
    runs, unit = analysis["runs"], analysis["measure"]["unit"]
    columns = min(2, len(runs))
    rows = math.ceil(len(runs) / columns)
    figure, panels = plt.subplots(rows, columns, figsize=(8, 1.5 + 3.5 * rows), sharex=True, sharey=True, squeeze=False)
    longest = max(words["length"] for run in runs for words in run["by_length"])
    for axes, run, label in zip(panels.flat, runs, labels(analysis)):
        for words in run["by_length"]:
            style = {"color": LENGTH_COLORS(words["length"] / (longest + 1)), "linewidth": 1.3, "markersize": 4}
            places = range(1, words["length"] + 2)
            axes.plot(places, words["probability"], "o-", label=f"{words['length']} letters", **style)
        axes.set_title(label, fontsize=10)
        axes.set_xlabel("position in the word; the last is the white space", fontsize=9)
        axes.tick_params(labelbottom=True)
    for axes in panels.flat[len(runs) :]:
        axes.set_visible(False)
    panels[0, 0].set_ylim(bottom=0)
    panels[0, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(f"Probability of the correct {unit} in words of each length, {analysis['split']}")
    figure.supylabel("mean probability", fontsize=10)
    legend_below(figure, panels[0, 0])
    return figure


def draw_analysis(analysis, folder):
    """Draws all pictures into the folder, and returns their paths."""
    measure, unit = analysis["measure"]["name"], analysis["measure"]["unit"]
    pictures = {
        "loss_by_frequency": lambda: plot_losses(analysis, "by_frequency", f"the {unit}"),
        "loss_by_previous": lambda: plot_losses(analysis, "by_previous", f"the previous {unit}"),
    }
    if any(run["contexts"] for run in analysis["runs"]):
        pictures["contexts"] = lambda: plot_contexts(analysis)
    if any(run["validations"] for run in analysis["runs"]):
        pictures["validations"] = lambda: plot_validations(analysis)
    pictures[measure] = lambda: plot_perplexity(analysis)
    if analysis["baseline"] and len(analysis["runs"]) > 1:
        pictures[f"gain_over_{Path(analysis['baseline']).name}"] = lambda: plot_gains(analysis)
    if numbers(analysis):
        pictures[f"{measure}_by_{analysis['differing'][0]}"] = lambda: plot_flag(analysis)
    if any(run["by_position"] for run in analysis["runs"]):
        pictures["probability_by_position"] = lambda: plot_positions(analysis)
    if any(run["by_length"] for run in analysis["runs"]):
        pictures["probability_by_length"] = lambda: plot_lengths(analysis)
    paths = [folder / f"{name}.png" for name in pictures]
    for path, plot in zip(paths, pictures.values()):
        draw(plot, path)
    return paths
