import concurrent.futures
import math
import os
import random

import keras
import numpy as np


def unallocated(make_model):
    """Builds a model by `make_model()` without allocating its variables, whose shapes can then be read.

    The model is built in a separate thread. Keras keeps a list of variables to allocate per thread, and would allocate
    them when the next model is built. The seeds of later models do not change.
    """
    state = random.getstate()
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(_make, make_model).result()
    finally:
        random.setstate(state)


def _make(make_model):
    with keras.StatelessScope(initialize_variables=False):
        return make_model()


def allocate(model):
    """Allocates the variables of the result of `unallocated`. All weights are 0, to be loaded next.

    Random initial values would take longer than loading. Metrics and the seeds of dropout get their initial values.
    """
    weights = set(map(id, model.weights))
    for variable in (*model.variables, *model.metrics_variables):
        if id(variable) in weights:
            variable._initializer = _zeros
        variable._deferred_initialize()


def _zeros(shape, dtype=None):
    """Returns zeros of NumPy as a tensor, since JAX would compile a program for each shape."""
    return keras.ops.convert_to_tensor(np.zeros(shape, "float32"), dtype)


def number_of_values(variables):
    """Returns the total number of values in variables."""
    return sum(math.prod(variable.shape) for variable in variables)


def check_memory(model, mend):
    """Raises a ValueError, whose end is `mend`, if the weights of a model alone exceed the memory of the machine."""
    needed = 4 * number_of_values(model.variables)
    if hasattr(os, "sysconf") and needed > (memory := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
        raise ValueError(
            f"The weights alone take {needed / 2**30:,.0f} GiB, but this machine has {memory / 2**30:,.0f}: {mend}"
        )
