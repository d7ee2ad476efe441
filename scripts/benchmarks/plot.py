"""Draws the results of the benchmarks as PNG files in the same folder.

    python -m scripts.benchmarks.plot scripts/results/benchmarks

The program reads the JSON files of the folder, where BACKEND is tensorflow, jax or torch:

- loss.png from loss_BACKEND.json and loss_BACKEND_bfloat16.json: the time of the word loss and of the matrix products
  alone, relative to PyTorch's adaptive softmax in float32 in the same run.
- loss_rows.png from loss_BACKEND_rows.json: time and memory by the number of hidden states.
- loss_tails.png from loss_BACKEND_tails.json: time by the share of targets in the tails.
- step.png from step_BACKEND.json: tokens per second of a training step, and of the PyTorch program in the same run.

Bars and points are medians. Thin lines extend from the fastest to the slowest turn. The program names missing files and
omits them.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import PercentFormatter

from trainers import command_line, plots

BACKENDS = {"tensorflow": ("TensorFlow", "o-"), "jax": ("JAX", "s--"), "torch": ("PyTorch", "^:")}
CANDIDATES = {
    "ours": ("ours", plots.TRAIN),
    "torch adaptive": ("PyTorch's adaptive softmax", plots.VALID),
    "torch_lm": ("PyTorch program", plots.VALID),
    "floor": ("matrix products alone", plots.MUTED),
}


def define_flags():
    """Defines no flags: the program takes folders."""


def label(settings):
    """Returns the backend and the dtype on two lines, such as "JAX" and "bfloat16"."""
    return f"{BACKENDS[settings['backend']][0]}\n{settings['dtype'].removeprefix('mixed_')}"


def conditions(results):
    """Returns the measured model and the machine. If files differ, all variants are listed."""
    machines = [f"{result['machine']['device']}, {result['machine']['cores']} cores" for result in results]
    return "\n".join(" / ".join(dict.fromkeys(line)) for line in (map(describe, results), machines))


def describe(result):
    settings = result["settings"]
    if "cases" in result:
        rows = [case["rows"] for case in result["cases"]]
        rows = " – ".join(dict.fromkeys(f"{number:,}" for number in (min(rows), max(rows))))
        return f"{rows} hidden states of dimension {settings['dim']:,}, {settings['vocabulary_size']:,} words"
    sizes = [
        f"{CANDIDATES[name][0]} {figures['parameters'] / 1e6:.0f}" for name, figures in result["candidates"].items()
    ]
    return f"{settings['batch_size']} × {settings['length']} tokens; million parameters: {', '.join(sizes)}"


def draw_bars(axes, groups, number_format):
    """Draws bars of the candidates side by side; a group is `(label, {candidate: (median, low, high)})`."""
    names = [name for name in CANDIDATES if any(name in group for _, group in groups)]
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        shift = (number - (len(names) - 1) / 2) * width
        bars = [(place + shift, *group[name]) for place, (_, group) in enumerate(groups) if name in group]
        places, medians, lows, highs = np.array(bars).T
        text, color = CANDIDATES[name]
        errors = dict(yerr=[medians - lows, highs - medians], error_kw={"linewidth": 1})
        bars = axes.bar(places, medians, width, color=color, label=text, **errors)
        axes.bar_label(bars, fmt=number_format, padding=1, fontsize=8)
    axes.set_xticks(range(len(groups)), [text for text, _ in groups])
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=len(names))


def draw_lines(axes, results, names, point):
    """Draws a line for each candidate of each file through the points `point(case, figures)`."""
    for result in results:
        backend, style = BACKENDS[result["settings"]["backend"]]
        for name in names:
            points = sorted(point(case, case["candidates"][name]) for case in result["cases"])
            text, color = CANDIDATES[name]
            axes.plot(*zip(*points, strict=True), style, color=color, linewidth=1.3, label=f"{text}, {backend} run")


def plot_loss(results):
    """Plots the time of each candidate over the median of `torch adaptive` in the same file."""
    groups = []
    for result in results:
        for case in result["cases"]:
            seconds = {name: figures["seconds"] for name, figures in case["candidates"].items()}
            peer = seconds["torch adaptive"]["median"]
            ratios = {name: [times[key] / peer for key in ("median", "low", "high")] for name, times in seconds.items()}
            groups.append((label(result["settings"]), ratios))
    figure, axes = plt.subplots(figsize=(10, 5))
    draw_bars(axes, groups, "{:.2f}")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(ylabel="time, relative to PyTorch's float32 in the same run")
    return figure


def plot_rows(results):
    """Plots time and memory by the number of hidden states."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 5))
    names = ("ours", "torch adaptive")
    draw_lines(left, results, names, lambda case, figures: (case["rows"], figures["seconds"]["median"]))
    draw_lines(right, results, names, lambda case, figures: (case["rows"], figures.get("mebibytes", np.nan)))
    rows = sorted({case["rows"] for result in results for case in result["cases"]})
    for axes, ylabel in (left, "seconds"), (right, "MiB without the gradients"):
        yscale = "log" if np.isfinite(axes.dataLim.minposy) else "linear"  # of no memory there is no logarithm
        axes.set(xscale="log", yscale=yscale, xlabel="hidden states", ylabel=ylabel)
        axes.set_xticks(rows, [f"{number:,}" for number in rows])
        axes.set_xticks([], minor=True)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(results), fontsize=8)
    return figure


def plot_tails(results):
    """Plots time by the share of targets in the tails."""
    figure, axes = plt.subplots(figsize=(8, 5))
    tails = lambda case, figures: (sum(case["shares"][1:]), figures["seconds"]["median"])  # noqa: E731
    draw_lines(axes, results, ("ours", "floor"), tails)
    axes.set(xlabel="share of targets in the tails", ylabel="seconds", ylim=(0, None))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend()
    return figure


def plot_step(results):
    """Plots tokens per second of a training step."""
    groups = []
    for result in results:
        speeds = {}
        for name, figures in result["candidates"].items():
            seconds, speed = figures["seconds"], figures["tokens_per_second"]
            speeds[name] = [speed * seconds["median"] / seconds[key] for key in ("median", "high", "low")]
        groups.append((label(result["settings"]), speeds))
    figure, axes = plt.subplots(figsize=(8, 5))
    draw_bars(axes, groups, "{:,.0f}")
    axes.set(ylabel="tokens per second")
    return figure


LOSS = "Word loss, forward and backward"
PICTURES = [  # the picture, the files that it shows with their backend left open, its title, how to make it
    ("loss.png", ("loss_{}.json", "loss_{}_bfloat16.json"), LOSS, plot_loss),
    ("loss_rows.png", ("loss_{}_rows.json",), LOSS, plot_rows),
    ("loss_tails.png", ("loss_{}_tails.json",), LOSS, plot_tails),
    ("step.png", ("step_{}.json",), "Training step", plot_step),
]


def titled(plot, results, title):
    figure = plot(results)
    figure.suptitle(title, fontsize=10)
    return figure


def draw(files, title, plot, path):
    try:
        results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        plots.draw(titled, path, plot, results, f"{title}\n{conditions(results)}")
    except (KeyError, json.JSONDecodeError) as error:
        names = ", ".join(file.name for file in files)
        raise ValueError(f"{path}: {names} must be as the benchmarks write them ({error!r}).") from None
    print(path)


def plot_benchmarks(folder):
    """Draws every picture for which the folder has results, and returns their paths."""
    folder, drawn = Path(folder), []
    for picture, patterns, title, plot in PICTURES:
        files = [folder / pattern.format(backend) for backend in BACKENDS for pattern in patterns]
        present = [file for file in files if file.is_file()]
        missing = ", ".join(file.name for file in files if file not in present)
        if missing:
            print(f"{folder / picture}: {'drawn without' if present else 'not drawn, there is no'} {missing}")
        if present:
            draw(present, title, plot, folder / picture)
            drawn.append(folder / picture)
    if not drawn:
        how = f"python -m scripts.benchmarks.loss --backend=torch --results={folder / 'loss_torch.json'}"
        raise ValueError(f"`{folder}` holds no results such as loss_torch.json. Make them first: {how}")
    return drawn


def main(*folders):
    for folder in folders:
        plot_benchmarks(folder)


if __name__ == "__main__":
    command_line.run(main, define_flags, paths="FOLDER with JSON files of the benchmarks")
