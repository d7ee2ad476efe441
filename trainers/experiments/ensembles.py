"""Evaluation of several runs whose probabilities are averaged."""

import math

import numpy as np

from keras_adaptive.metrics import mixture_nll, mixture_weights, perplexity
from trainers.support.tables import aligned

DECIDES = "valid"  # split on which the weights are optimized


def check_one_vocabulary(runs):
    """Raises a ValueError unless the runs have the same vocabulary and the same unit."""
    first = runs[0]
    for run in runs[1:]:
        units = [member.corpus.unit for member in (first, run)]
        if units[0] != units[1]:
            raise ValueError(
                f"{run.folder.path} is a run of {units[1]}s and {first.folder.path} is a run of {units[0]}s: the "
                "probabilities of different units cannot be averaged. Evaluate them separately."
            )
        if run.corpus.vocabulary.sha256 != first.corpus.vocabulary.sha256:
            raise ValueError(
                f"{run.folder.path} has another vocabulary ({len(run.corpus.vocabulary):,} words) than "
                f"{first.folder.path} ({len(first.corpus.vocabulary):,}): the probabilities of different vocabularies "
                "cannot be averaged. Evaluate them separately."
            )


def evaluate(losses):
    """Returns the figures of each member, a list, and those of their "equal" and "optimal" means, with the weights.

    The optimal weights have the smallest loss on "valid". They are used for all splits. `losses` has the list of the
    `WordLosses` of the members, which must score the same words, for each split, "valid" included.
    """
    for split, members in losses.items():
        for member in members[1:]:
            if not np.array_equal(member.words, members[0].words):
                raise ValueError(
                    f"The runs must score the same words of {split}. Received: {len(members[0].words):,} and "
                    f"{len(member.words):,} words, which differ: prepare both corpora with the same --tokenizer and "
                    "--unit."
                )
    nll = {split: np.stack([member.nll for member in members]) for split, members in losses.items()}
    count = len(nll[DECIDES])
    weights = {"equal": np.full(count, 1 / count), "optimal": mixture_weights(nll[DECIDES])}
    means = {
        name: {"weights": shares.tolist(), **figures({split: mixture_nll(nll[split], shares) for split in nll})}
        for name, shares in weights.items()
    }
    return [figures({split: nll[split][number] for split in nll}) for number in range(count)], means


def figures(nll):
    """Returns the mean loss, the bits and the perplexity of the losses of each split."""
    loss = {split: float(values.mean()) for split, values in nll.items()}
    return {
        "loss": loss,
        "bits": {split: value / math.log(2) for split, value in loss.items()},
        "perplexity": {split: perplexity(value) for split, value in loss.items()},
    }


def table(names, members, means):
    """Returns the perplexities of members and means as lines of text."""
    splits = list(means["equal"]["perplexity"])
    weights = [f"{weight:.4f}" for weight in means["optimal"]["weights"]]
    columns = [*names, *(f"{name} weights" for name in means)], [*weights, "", ""], [*members, *means.values()]
    rows = [["", "weight", *splits]]
    for name, weight, result in zip(*columns):
        rows.append([name, weight, *(f"{result['perplexity'][split]:,.2f}" for split in splits)])
    return aligned(rows)
