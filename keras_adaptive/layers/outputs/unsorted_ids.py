"""Warns, before a model is trained, of ids that are not in descending order of their counts."""

import itertools
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.wide_ids import as_int32
from keras_adaptive.layers.inputs.input import Input

BATCHES, LEAST_TARGETS, MOST_TARGETS = 10, 1_000, 100_000  # what is looked at
RATIO, SHARE, SPECIAL = 1.5, 0.1, 4  # how much larger the mean id must be: a ratio, and a share of the vocabulary


def warn_if_unsorted(
    model: keras.Model, output: keras.layers.Layer, x: Any, y: Any = None, sample_weight: Any = None
) -> Any:
    """Warns if the first targets show that the ids of a model with bands are not sorted by count. Once per model.

    Args:
        model: The model.
        output: Its output layer.
        x, y, sample_weight: The arguments of `fit`.

    Returns:
        `x`, or a generator of the same batches in place of a generator.
    """
    if hasattr(model, "order_is_checked"):
        return x
    model.order_is_checked = True
    if not _needs_order(model, output):
        return x
    if y is not None:
        batches: Iterable[Any] = [_some_rows(y, sample_weight)]
    elif isinstance(x, types.GeneratorType):
        batches = list(itertools.islice(x, BATCHES))
        x = _joined(batches, x)
    elif isinstance(x, keras.utils.PyDataset):
        count = BATCHES if x.num_batches is None else min(x.num_batches, BATCHES)
        batches = (x[number] for number in range(count))
    elif hasattr(x, "element_spec") and hasattr(x, "take"):
        batches = x.take(BATCHES)
    else:
        batches = []
    size = output.vocabulary_size
    if means := means_if_unsorted(_first_targets(batches, size), size):
        warnings.warn(
            "The ids seem not to be in descending order of their counts, on which `cutoffs` or log-uniform noise rely: "
            f"the mean id of the first targets is {means[0]:,.0f}, and would be {means[1]:,.0f}. Map them by "
            "`vocabulary = keras_adaptive.data.Vocabulary.from_counts(counts)` and `vocabulary.encode(ids)`; for a "
            "table of clicks, `keras_adaptive.data.item_sequences(table)` does both.",
            stacklevel=3,
        )
    return x


def means_if_unsorted(ids: np.ndarray, vocabulary_size: int) -> tuple[float, float] | None:
    """Returns the mean of ids and the mean that ids sorted by count would have, or `None` if they may be sorted.

    The order by count is that of the first half of the ids. The means are those of the second half, since an order
    suits the ids that it was made of too well.

    Args:
        ids: (ids,) integers in the vocabulary.
        vocabulary_size: Number of ids.
    """
    if len(ids) < LEAST_TARGETS:
        return None
    first, second = np.array_split(ids, 2)
    seen, counts = np.unique(first, return_counts=True)
    ranks = np.full(vocabulary_size, (len(seen) + vocabulary_size - 1) / 2)  # of ids that are not seen: their mean
    ranks[seen[np.argsort(-counts, kind="stable")]] = np.arange(len(seen))
    difference = second - ranks[second]
    mean, sorted_mean = float(np.mean(second)), float(np.mean(ranks[second]))
    least = max(SHARE * vocabulary_size + SPECIAL, 5 * np.std(difference) / np.sqrt(len(second)))
    return (mean, sorted_mean) if mean > RATIO * sorted_mean and mean - sorted_mean > least else None


def _needs_order(model, output):
    """Returns whether the bands or the noise of a model rely on the order of the ids."""
    layers = [output, *(layer for layer in model._flatten_layers() if isinstance(layer, Input))]
    if any(layer.vocabulary_size == output.vocabulary_size and len(layer.boundaries) > 2 for layer in layers):
        return True
    return output.num_samples > 0 and getattr(output.loss, "noise", "log_uniform") == "log_uniform"


def _some_rows(y, sample_weight):
    """Returns a batch of rows from everywhere in arrays. Tensors are converted first, as within a step they must be."""
    y, sample_weight = (ops.convert_to_numpy(x) if ops.is_tensor(x) else x for x in (y, sample_weight))
    targets_per_row = max(1, int(np.prod(np.shape(y)[1:])))
    step = max(1, len(y) * targets_per_row // MOST_TARGETS)
    return None, y[::step], None if sample_weight is None else sample_weight[::step]


def _joined(batches: list[Any], rest: Iterator[Any]) -> Iterator[Any]:
    yield from batches
    yield from rest


def _first_targets(batches, vocabulary_size):
    """Returns the targets of batches that have a weight and are in the vocabulary, (ids,) integers."""
    parts, number = [np.zeros(0, "int32")], 0
    for batch in batches:
        _, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
        targets = as_int32(ops.convert_to_numpy(targets))  # also of infinity and NaN
        known = (targets >= 0) & (targets < vocabulary_size)
        if weights is not None:
            weights = np.asarray(ops.convert_to_numpy(weights))
            known &= weights.reshape(weights.shape + (1,) * (targets.ndim - weights.ndim)) != 0
        parts.append(targets[known])
        number += len(parts[-1])
        if number >= MOST_TARGETS:
            break
    return np.concatenate(parts)[:MOST_TARGETS]
