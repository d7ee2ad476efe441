"""Pictures of one run: its learning curve, its loss by frequency and the surprisal of a text."""

import json
import math
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.ticker import PercentFormatter

from keras_adaptive.files import read_json_lines, read_text, reading, writing
from keras_adaptive.metrics import perplexity
from trainers.plots import MUTED, TRAIN, VALID, bin_label, draw

MAX_WORDS = 160  # largest number of words in a passage
MAX_BITS = 20  # end of the scale of shades, log2 of a million
MAX_LOSS = 50  # largest loss on the axis in nats, so that a diverged run can be drawn
SHADES = ["#fffbe6", "#fbd87f", "#f08a4b", "#e0524d"]  # black text is readable on each of them


def curve(records, key):
    """Returns the updates and values of the records with this key. A repeated update has its last value."""
    values = {record["update"]: record[key] for record in records if record.get(key) is not None}
    updates = sorted(values)
    return updates, [values[update] for update in updates]


def plot_learning_curve(records, title):
    """Plots the loss in nats (left axis) and the perplexity (right axis) by update, above the learning rate."""
    figure, (top, bottom) = plt.subplots(2, figsize=(8, 6), sharex=True, height_ratios=[3, 1])
    top.plot(*curve(records, "loss"), color=TRAIN, linewidth=1.3, label="training")
    updates, losses = curve(records, "val_loss")
    if losses:
        best = min(losses)
        label = f"validation, best perplexity {perplexity(best):,.1f}"
        top.plot(updates, losses, "o-", color=VALID, linewidth=1.3, markersize=5, label=label)
    top.set(title=title, ylabel="loss (nats per token)")
    top.legend()
    right = top.secondary_yaxis("right")
    right.set_ylabel("perplexity")
    perplexities = round_numbers(*(perplexity(min(loss, MAX_LOSS)) for loss in top.get_ylim()))
    right.set_yticks([math.log(value) for value in perplexities], [f"{value:,}" for value in perplexities])
    bottom.plot(*curve(records, "learning_rate"), color=MUTED, linewidth=1.3)
    bottom.set(xlabel="update", ylabel="learning rate")
    bottom.set_ylim(bottom=0)
    bottom.ticklabel_format(axis="y", style="sci", scilimits=(-2, 2))
    return figure


def round_numbers(low, high):
    """Returns 1, 2 and 5 times the powers of ten from `low` to `high`."""
    powers = range(len(str(int(high))))
    return [digit * 10**power for power in powers for digit in (1, 2, 5) if low <= digit * 10**power <= high]


def plot_loss_by_frequency(bins, title):
    """Plots the mean loss of words by frequency, and their share of the text."""
    total = sum(part["tokens"] for part in bins)
    mean = sum(part["nll"] * part["tokens"] for part in bins) / total
    figure, (top, bottom) = plt.subplots(2, figsize=(8, 5.5), sharex=True, height_ratios=[3, 1])
    places = range(len(bins))
    bars = top.bar(places, [part["nll"] for part in bins], color=TRAIN)
    top.bar_label(bars, fmt="{:.2f}", padding=2, bbox=dict(color="white", pad=1))
    top.axhline(mean, color=VALID, linewidth=1.3, zorder=0.8, label=f"all words: {mean:.2f}")
    top.set(title=title, ylabel="loss (nats per token)")
    top.margins(y=0.1)
    top.legend(loc="upper right")
    bars = bottom.bar(places, [part["tokens"] / total for part in bins], color=MUTED)
    bottom.bar_label(bars, fmt="{:.1%}", padding=2)
    bottom.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    bottom.margins(y=0.3)
    bottom.set(xlabel="occurrences of the word in the training text", ylabel="share of tokens")
    bottom.set_xticks(places, [bin_label(part) for part in bins])
    for axes in (top, bottom):
        axes.grid(axis="x", visible=False)
    return figure


def passage(records):
    """Returns the first words of a scored text with their surprisal in bits, line by line."""
    lines, left = [], MAX_WORDS
    for record in records:
        words = zip(record["tokens"], record["log_probs"], strict=True)
        line = [(word, -log_prob / math.log(2)) for word, log_prob in words][:left]
        left -= len(line)
        lines.append(line)
        if not left:
            break
    return [line for line in lines if line]


def wrap(lines, width):
    """Places words in rows of `width` characters: a list of (row, column, size, word, bits)."""
    row, placed = 0, []
    for line in lines:
        column = 0
        for word, bits in line:
            word = word if len(word) <= width else word[: width - 1] + "…"
            size = max(len(word), 3)  # the bits below the word need three characters
            if column + size > width:
                row, column = row + 1, 0
            placed.append((row, column, size, word, bits))
            column += size + 1
        row += 1
    return placed


def plot_surprisal(records, title, width=76):
    """Plots a passage in which each word is shaded by its surprisal, with the bits below it."""
    placed = wrap(passage(records), width)
    rows = placed[-1][0] + 1
    figure, axes = plt.subplots(figsize=(10, 1.3 + 0.42 * rows))
    axes.set(xlim=(-0.5, width + 0.5), ylim=(rows - 0.4, -0.6))
    axes.axis("off")
    shades = ScalarMappable(Normalize(0, MAX_BITS), LinearSegmentedColormap.from_list("bits", SHADES))
    for row, column, size, word, bits in placed:
        box = plt.Rectangle((column - 0.4, row - 0.46), size + 0.8, 0.92, color=shades.to_rgba(bits), linewidth=0)
        axes.add_patch(box)
        style = dict(ha="center", va="center", family="monospace", parse_math=False)
        axes.text(column + size / 2, row - 0.14, word, fontsize=10.5, **style)
        axes.text(column + size / 2, row + 0.26, f"{bits:.1f}", fontsize=6.5, **style)
    mean = sum(bits for *_, bits in placed) / len(placed)
    axes.set_title(f"{title}: {len(placed)} tokens, {mean:.2f} bits per token", fontsize=11)
    label = "surprisal (bits)"
    figure.colorbar(shades, ax=axes, location="bottom", extend="max", aspect=50, shrink=0.6, pad=0.01, label=label)
    return figure


def read_learning_curve(path):
    records = read_json_lines(path)
    return records if curve(records, "loss")[0] else None


def read_loss_by_frequency(path):
    return json.loads(read_text(path)).get("by_frequency")


def read_surprisal(path):
    records = read_json_lines(path)
    return records if passage(records) else None


PICTURES = [  # (file of the run, picture with the same *, function that reads the file, function that plots it)
    ("log.jsonl", "learning_curve.png", read_learning_curve, plot_learning_curve),
    ("evaluation_*.json", "loss_by_frequency_*.png", read_loss_by_frequency, plot_loss_by_frequency),
    ("score.jsonl", "surprisal.png", read_surprisal, plot_surprisal),
]

OTHER = "a result of these programs", "Remove it, or write it again."  # expected kind of file, and what to do


def draw_run(run_dir):
    """Draws every picture for which the folder of a run has results, and returns their paths."""
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise ValueError(f"`{run_dir}` is not a folder. Pass the --run_dir of a run.")
    drawn = []
    for pattern, picture, read, plot in PICTURES:
        sources = {}
        for source in sorted(run_dir.glob(pattern)):
            with reading(source, *OTHER):
                if content := read(source):
                    sources[source] = content
        if not sources:
            print(f"{run_dir / picture}: not drawn, since {pattern} is missing or empty")
        for source, content in sources.items():
            split = source.stem.partition("_")[2]
            title = f"{run_dir.resolve().name}, {split}" if split else run_dir.resolve().name
            path = run_dir / picture.replace("*", split)
            with reading(source, *OTHER), writing(path):
                draw(plot, path, content, title)
            print(path)
            drawn.append(path)
    if not drawn:
        raise ValueError(f"`{run_dir}` has no results to draw. Train, evaluate or score with this --run_dir first.")
    return drawn
