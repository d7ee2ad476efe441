"""Checks of the arguments that all exports have, before anything is written."""

import os
from collections.abc import Iterable
from typing import Any

from keras_adaptive.backend.checks import non_finite
from keras_adaptive.data import Vocabulary
from keras_adaptive.models import LanguageModel


def check_folder(folder: str | os.PathLike) -> None:
    """Raises a ValueError unless `folder` is new or empty."""
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise ValueError(f"{folder} exists and is not empty: remove it, or export to another folder.")


def check_dtype(dtype: str, known: tuple[str, str] = ("float32", "bfloat16")) -> None:
    """Raises a ValueError unless the export can store weights in `dtype`."""
    if dtype not in known:
        raise ValueError(f"`dtype` must be {' or '.join(known)}. Received: dtype={dtype!r}.")


def check_vocabulary(vocabulary: Vocabulary, model: LanguageModel, of: str = "vocabulary") -> None:
    """Raises a ValueError, which names the argument `of`, unless its vocabulary has the size of the model's."""
    if len(vocabulary) != model.vocabulary_size:
        raise ValueError(
            f"`{of}` must have the {model.vocabulary_size:,} words of the model. Received: size={len(vocabulary):,}."
        )


def check_finite_weights(weights: Iterable[Any]) -> None:
    """Raises a ValueError, which names a weight, unless all weights of the model are finite."""
    if weight := non_finite(weights):
        raise ValueError(f"`model` must have finite weights. Received: infinity or NaN in {weight}.")
