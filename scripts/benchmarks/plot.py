"""Draws the results of the benchmarks as PNG files in the same folder.

    python -m scripts.benchmarks.plot scripts/results/benchmarks

BACKEND is tensorflow, jax or torch. loss.png, from loss_BACKEND.json and loss_BACKEND_bfloat16.json, shows the time of
the word loss and of the matrix products alone, relative to PyTorch's adaptive softmax in float32 in the same run, and
loss_rows.png, from loss_BACKEND_rows.json, time and memory by the number of hidden states. Bars and points are medians.
Thin lines extend from the fastest to the slowest turn. The program names missing files and omits them.
"""

import itertools
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from trainers import plots
from trainers.support import command_line

BACKENDS = {"tensorflow": ("TensorFlow", "o-"), "jax": ("JAX", "s--"), "torch": ("PyTorch", "^:")}
CANDIDATES = {
    "ours": ("ours", plots.TRAIN),
    "torch adaptive": ("PyTorch's adaptive softmax", plots.VALID),
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
    settings, rows = result["settings"], [case["rows"] for case in result["cases"]]
    rows = " – ".join(dict.fromkeys(f"{number:,}" for number in (min(rows), max(rows))))
    return f"{rows} hidden states of dimension {settings['dim']:,}, {settings['vocabulary_size']:,} words"


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
    for result, name in itertools.product(results, ("ours", "torch adaptive")):
        backend, style = BACKENDS[result["settings"]["backend"]]
        points = ((case["rows"], case["candidates"][name]) for case in result["cases"])
        points = ((rows, of["seconds"]["median"], of.get("mebibytes", np.nan)) for rows, of in points)
        rows, seconds, memory = zip(*sorted(points), strict=True)
        text, color = CANDIDATES[name]
        line = {"color": color, "linewidth": 1.3, "label": f"{text}, {backend} run"}
        left.plot(rows, seconds, style, **line)
        right.plot(rows, memory, style, **line)
    rows = sorted({case["rows"] for result in results for case in result["cases"]})
    for axes, ylabel in (left, "seconds"), (right, "MiB without the gradients"):
        yscale = "log" if np.isfinite(axes.dataLim.minposy) else "linear"  # of no memory there is no logarithm
        axes.set(xscale="log", yscale=yscale, xlabel="hidden states", ylabel=ylabel)
        axes.set_xticks(rows, [f"{number:,}" for number in rows])
        axes.set_xticks([], minor=True)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(results), fontsize=8)
    return figure


PICTURES = [  # the picture, the files that it shows with their backend left open, how to make it
    ("loss.png", ("loss_{}.json", "loss_{}_bfloat16.json"), plot_loss),
    ("loss_rows.png", ("loss_{}_rows.json",), plot_rows),
]


def titled(plot, results):
    figure = plot(results)
    figure.suptitle(f"Word loss, forward and backward\n{conditions(results)}", fontsize=10)
    return figure


def draw(files, plot, path):
    try:
        results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        plots.draw(titled, path, plot, results)
    except (KeyError, json.JSONDecodeError) as error:
        names = ", ".join(file.name for file in files)
        raise ValueError(f"{path}: {names} must be as the benchmarks write them ({error!r}).") from None
    print(path)


def plot_benchmarks(folder):
    """Draws every picture for which the folder has results, and returns their paths."""
    folder, drawn = Path(folder), []
    for picture, patterns, plot in PICTURES:
        files = [folder / pattern.format(backend) for backend in BACKENDS for pattern in patterns]
        present = [file for file in files if file.is_file()]
        missing = ", ".join(file.name for file in files if file not in present)
        if missing:
            print(f"{folder / picture}: {'drawn without' if present else 'not drawn, there is no'} {missing}")
        if present:
            draw(present, plot, folder / picture)
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
