"""Pictures of a comparison with several seeds: means of the systems, in bands from the lowest seed to the highest."""

import matplotlib.pyplot as plt

from trainers import plots
from trainers.plots.analysis import legend_below, line


def draw_comparison(table, folder):
    """Draws both pictures of the table of a comparison: learning curves, and losses by the frequency of the word."""
    plots.draw(plot_learning_curves, folder / "learning_curves.png", table)
    plots.draw(plot_losses_by_frequency, folder / "losses_of_seeds.png", table)


def plot_learning_curves(table):
    """Plots the perplexity of each validation by update, on a logarithmic axis."""
    figure, axes = plt.subplots(figsize=(8, 5))
    for number, (name, system) in enumerate(table.items()):
        updates = [int(update) for update in system["validations"]]
        _band(axes, number, name, updates, list(system["validations"].values()))
    axes.set(title="Learning curves", xlabel="updates", ylabel="valid perplexity per token", yscale="log")
    for set_formatter in (
        axes.xaxis.set_major_formatter,
        axes.yaxis.set_major_formatter,
        axes.yaxis.set_minor_formatter,
    ):
        set_formatter("{x:,.0f}")
    legend_below(figure, axes)
    return figure


def plot_losses_by_frequency(table):
    """Plots by how much a loss exceeds the loss of the first system, the best one, for each bin of frequencies."""
    figure, axes = plt.subplots(figsize=(8, 5))
    best = next(iter(table.values()))["by_frequency"]
    for number, (name, system) in enumerate(table.items()):
        bins = {part["low"]: part["nll"] for part in system["by_frequency"]}
        shared = [
            (place, bins[part["low"]], part["nll"]["mean"]) for place, part in enumerate(best) if part["low"] in bins
        ]
        above = [{"mean": nll["mean"] - base, "runs": [run - base for run in nll["runs"]]} for _, nll, base in shared]
        _band(axes, number, name, [place for place, _, _ in shared], above)
    axes.set_xticks(range(len(best)), [plots.bin_label(part) for part in best])
    axes.set(title=f"Loss above {next(iter(table))}", xlabel="occurrences of the word in the training text")
    axes.set_ylabel("nats per word")
    legend_below(figure, axes)
    return figure


def _band(axes, number, name, places, figures):
    """Draws the means of a system as a line, and its seeds as a band around it."""
    seeds = len(figures[0]["runs"])
    style = line(number)
    label = f"{name}, {seeds} seeds" if seeds > 1 else f"{name}, one seed"
    (drawn,) = axes.plot(places, [figure["mean"] for figure in figures], label=label, **style)
    low, high = ([ends(figure["runs"]) for figure in figures] for ends in (min, max))
    axes.fill_between(places, low, high, color=drawn.get_color(), alpha=0.25, linewidth=0)
