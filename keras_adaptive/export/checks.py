"""Checks of the arguments that all exports have, before anything is written."""

import os
from collections.abc import Iterable
from typing import Any

from keras_adaptive.backend.checks import non_finite


def check_folder(folder: str | os.PathLike) -> None:
    """Raises a ValueError unless `folder` is new or empty."""
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise ValueError(f"{folder} exists and is not empty: remove it, or export to another folder.")


def check_dtype(dtype: str) -> None:
    """Raises a ValueError unless exports can store weights in `dtype`."""
    if dtype not in ("float32", "bfloat16"):
        raise ValueError(f"`dtype` must be float32 or bfloat16. Received: dtype={dtype!r}.")


def check_finite_weights(weights: Iterable[Any]) -> None:
    """Raises a ValueError, which names a weight, unless all weights of the model are finite."""
    if weight := non_finite(weights):
        raise ValueError(f"`model` must have finite weights. Received: infinity or NaN in {weight}.")
