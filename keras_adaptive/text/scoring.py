"""Scores of lines of any length, from ids to records."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keras_adaptive.backend.checks import check_finite
from keras_adaptive.data import EOS, PAD, TextCodec
from keras_adaptive.metrics import perplexity
from keras_adaptive.models import LanguageModel, Reading
from keras_adaptive.models.prediction import padded_length
from keras_adaptive.models.reading import reading_of

# Numbers of tokens to read at a time, since compilers compile for each: rows of at most SHORT tokens as a whole, rows
# of at most SEGMENT in parts of PART, and longer ones in parts of SEGMENT.
SHORT, PART, SEGMENT = 32, 64, 512
TOKENS = 1 << 13  # number of tokens of a long line to compute at a time


def score_lines(
    model: LanguageModel,
    targets: Sequence[np.ndarray],
    inputs: Sequence[np.ndarray],
    alternatives: int = 0,
    reporter: Callable | None = None,
    reading: Reading | None = None,
) -> Iterator[list[np.ndarray]]:
    """Yields the scores of every line, which starts after a `</s>`, as a list of arrays (tokens, …).

    The arrays are those of `LanguageModel.score` or, with alternatives, of `LanguageModel.alternatives`. Lines of up to
    512 tokens are scored together. A long line is scored alone, since the others would be padded to its length.

    Args:
        model: A `LanguageModel`.
        targets: Ids (tokens,) of each line, with the `</s>` at its end.
        inputs: The same ids, except for extra words outside the vocabulary.
        alternatives: Number of the most probable words to return at each place.
        reporter: Function that is called for each long line and returns a function `(scored, total)` of the numbers of
            tokens. Optional.
        reading: The `Reading` that defines the windows of each line, by default of `trained_length` tokens. Optional.
    """
    rows = [(np.append(EOS, own[:-1]), ids) for own, ids in zip(inputs, targets)]
    reading = reading or reading_of(model)
    short = [row for row in rows if len(row[1]) <= SEGMENT]
    pieces = [piece for row in short for piece in _pieces(row, reading.windows(len(row[1])))]
    together = iter(score_rows(model, pieces, alternatives) if pieces else [])
    for row in rows:
        windows, report = reading.windows(len(row[1])), None
        parts = itertools.islice(together, len(windows))
        if len(row[1]) > SEGMENT:
            report = reporter() if reporter else None
            parts = _score_long(model, row, windows, alternatives, report)
        scored = [_new(arrays, window) for arrays, window in zip(parts, windows)]
        yield list(map(np.concatenate, zip(*scored)))


def score_rows(model: LanguageModel, rows: Sequence[tuple], alternatives: int = 0) -> list[list[np.ndarray]]:
    """Returns a list of arrays (tokens, …) for each row, a pair of inputs and targets, computed in one batch."""
    longest, count = max(len(ids) for _, ids in rows), 2 ** (len(rows) - 1).bit_length()
    segment = SHORT if longest <= SHORT else PART if longest <= SEGMENT else SEGMENT
    length = padded_length(longest, segment, model.body.max_length)
    padded = np.full((2, count, length), PAD, "int32")
    padded[0, :, 0] = EOS
    for row, pair in enumerate(rows):
        padded[:, row, : len(pair[0])] = pair
    if alternatives:
        arrays = model.alternatives(*padded, alternatives, segment=segment)
    else:
        arrays = model.score(*padded, segment=segment)
    return [[array[row, : len(ids)] for array in arrays] for row, (_, ids) in enumerate(rows)]


def _score_long(model, row, windows, alternatives, report):
    """Yields the scores of the windows of a long line, several at a time."""
    at_once = max(1, TOKENS // max(stop - begin for begin, _, stop in windows))
    for first in range(0, len(windows), at_once):
        group = windows[first : first + at_once]
        yield from score_rows(model, _pieces(row, group), alternatives)
        if report:
            report(group[-1][-1], len(row[1]))


def _pieces(row, windows):
    """Returns the pairs of inputs and targets of the windows of a line."""
    return [tuple(ids[begin:stop] for ids in row) for begin, _, stop in windows]


def _new(arrays, window):
    """Returns the scores of a window without its context."""
    begin, start, _ = window
    return [array[start - begin :] for array in arrays]


def as_record(
    tokens: list[str], ids: np.ndarray, scores: list[np.ndarray], boundaries: Sequence[int], codec: TextCodec
) -> dict:
    """Returns the scores of a line, which `score_lines` yields, by name and in the types of JSON.

    The `boundaries` are the first id of every band of the output and, last, the number of ids.
    """
    log_probs, ranks, *others = scores
    log_probs, words = log_probs.astype("float64"), codec.count_words(tokens)
    check_finite(perplexity(-log_probs.mean()))  # per word of many tokens it may overflow
    record = {
        "tokens": tokens,
        "words": words,
        "log_probs": [round(value, 6) for value in log_probs.tolist()],
        "ranks": ranks.tolist(),
        "bands": np.searchsorted(boundaries[1:-1], ids, side="right").tolist(),
        "log_prob": float(log_probs.sum()),
        "perplexity": perplexity(-log_probs.sum() / words),
        "unknown": codec.vocabulary.unknown(tokens),
    }
    if others:
        entropies, best_log_probs, best_ids = others
        record["entropies"] = [round(value, 6) for value in entropies.tolist()]
        best = [zip(codec.decode(ids), np.exp(row).tolist()) for ids, row in zip(best_ids, best_log_probs)]
        record["alternatives"] = [[[word, round(value, 6)] for word, value in pairs] for pairs in best]
    return record


def perplexity_of(records: Sequence[dict]) -> float:
    """Returns the perplexity per word of the texts of several records together."""
    if not records:
        raise ValueError("`texts` must hold a text. Received: an empty list.")
    return perplexity(-math.fsum(one["log_prob"] for one in records) / sum(one["words"] for one in records))
