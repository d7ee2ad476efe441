"""Draws how well losses rank a million items after the same time, against the memory of their training.

Of several runs with a loss it takes the best one.

python -m scripts.experiments.plot_recommenders docs/images/recommenders.png
"""

import json
from pathlib import Path

from trainers.support import command_line

RESULT = Path(__file__).parents[1] / "results" / "sampled" / "recommenders.json"
NAMES = {"unigram": "sampled, by popularity", "uniform": "sampled, uniform", "sampled_softmax": "sampled"}
BELOW = ("BCE", "gbce")  # losses whose names are written below their points


def plot(runs):
    import matplotlib.pyplot as plt

    from trainers import plots

    figure, axes = plt.subplots(figsize=(7, 4))
    for program, color in {"keras_adaptive": plots.TRAIN, "RecTools": plots.VALID}.items():
        of_program = [run for run in runs if run["program"].startswith(program)]
        places = [(run["bytes"] / 2**30, run["ndcg"]) for run in of_program]
        axes.scatter(*zip(*places), color=color, label=program)
        for run, place in zip(of_program, places):
            small = ", small vectors" if "stddev" in run else ""
            name = NAMES.get(run["loss"], run["loss"]) + small
            height = -11 if run["loss"] in BELOW else 4
            axes.annotate(name, place, xytext=(6, height), textcoords="offset points", fontsize=8)
    axes.set(xlim=(0, 2.4), ylim=(-0.01, None), title="A million items, after 3 minutes of a core", ylabel="NDCG@10")
    axes.set_xlabel("GiB of the training beyond the weights, with the state of the optimizer")
    axes.legend()
    return figure


def main(path):
    from trainers import plots

    runs = json.loads(RESULT.read_text(encoding="utf-8"))["runs"]
    measured = sorted((run for run in runs if "bytes" in run), key=lambda run: run["ndcg"])
    best = {(run["program"], run["loss"]): run for run in measured}
    plots.draw(plot, path, list(best.values()))
    print(f"Wrote {path}.")


if __name__ == "__main__":
    command_line.run(main, lambda: None, paths="PICTURE")
