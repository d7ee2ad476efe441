"""Kaldi's text files of n-best lists: `UTTERANCE-N WORDS…`, `UTTERANCE-N COSTS…` and `UTTERANCE WORDS…`."""

import math
import os
import re
from collections.abc import Iterable

from keras_adaptive.files import read_text_lines

KEY = re.compile(r"(?P<utterance>.+)-[0-9]+")


def read_nbest(path: str | os.PathLike) -> dict[str, str]:
    """Reads the n-best lists of a recognizer, one hypothesis per line: `UTTERANCE-N WORDS…`.

    A hypothesis may be empty: the recognizer has heard nothing.

    Args:
        path: UTF-8 file.

    Returns:
        A dict from the id of each hypothesis, `UTTERANCE-N`, to its words, in the order of the file.

    Raises:
        ValueError: If a line has no such id, an id occurs twice, or the file is empty.

    Reference:
        Povey et al., The Kaldi Speech Recognition Toolkit, ASRU 2011. The format is that of its program
        `nbest-to-linear` and of `steps/pytorchnn/lmrescore_nbest_pytorchnn.sh`.

    Example:

    ```python
    read_nbest("words_text")  # {"utt1-1": "well i'm going", "utt1-2": "well i am going", …}
    ```
    """
    return _read(path, "UTTERANCE-N WORDS", lambda key: KEY.fullmatch(key))


def read_references(path: str | os.PathLike) -> dict[str, str]:
    """Reads the words that were spoken, one utterance per line: `UTTERANCE WORDS…`.

    Args:
        path: UTF-8 file, such as the file `text` of Kaldi's data folders.

    Returns:
        A dict from the id of each utterance to its words.

    Raises:
        ValueError: If a line has no id, an id occurs twice, or the file is empty.

    Example:

    ```python
    read_references("text")  # {"utt1": "well i'm going", …}
    ```
    """
    return _read(path, "UTTERANCE WORDS", lambda key: True)


def read_costs(path: str | os.PathLike, keys: Iterable[str]) -> list[float]:
    """Reads the costs of hypotheses, `UTTERANCE-N COSTS…`. Several numbers of a line are added up.

    Args:
        path: UTF-8 file, such as `lmwt.nolm` and `acwt` of Kaldi's archives, or the output of `rescore`.
        keys: Ids of the hypotheses. The result has their order.

    Returns:
        A list with the cost of each hypothesis.

    Raises:
        ValueError: If a line is no id and finite numbers, or the file lacks an id.

    Example:

    ```python
    read_costs("acwt", read_nbest("words_text"))  # [5123.25, 5124.5, …]
    ```
    """
    costs = {}
    for number, (key, values) in enumerate(_read(path, "UTTERANCE-N COSTS", lambda key: True).items(), 1):
        try:
            costs[key] = math.fsum(map(float, values.split()))
        except (ValueError, OverflowError):
            costs[key] = math.nan
        if not values or not math.isfinite(costs[key]):
            raise ValueError(f"{path}: line {number} must be an id and finite numbers. Received: {values[:80]!r}.")
    if missing := next((key for key in keys if key not in costs), None):
        raise ValueError(f"{path} must have the cost of every hypothesis. Received: a file without {missing!r}.")
    return [costs[key] for key in keys]


def utterance_of(key: str) -> str:
    """Returns the utterance of the id of a hypothesis, without its number."""
    return key.rpartition("-")[0]


def _read(path, form, is_key):
    """Returns the dict from the first field of every line to its other fields, which one space separates."""
    found = {}
    with open(path, "rb") as file:
        for number, line in enumerate(read_text_lines(file, str(path)), 1):
            key, *fields = line.split() or [""]
            if not key or not is_key(key):
                raise ValueError(f"Line {number} of {path} must be {form}…, an id first. Received: {line[:80]!r}.")
            if key in found:
                raise ValueError(f"Line {number} of {path} must have a new id. Received: {key[:80]!r} again.")
            found[key] = " ".join(fields)
    if not found:
        raise ValueError(f"{path} must have lines of {form}…. Received: an empty file.")
    return found
