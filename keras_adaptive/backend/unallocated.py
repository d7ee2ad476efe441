import concurrent.futures
import math
import random

import keras
import numpy as np


def unallocated(make_model):
    """Builds a model by `make_model()` without allocating its variables, whose shapes can then be read.

    The model is built in a separate thread. Keras keeps a list of variables to allocate per thread, and would allocate
    them when the next model is built. The seeds of later models do not change.

    Args:
        make_model: Function without arguments that returns a model.

    Returns:
        The model.
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
    """Allocates the variables of an unallocated model. All weights are 0, to be loaded next.

    Random initial values would take longer than loading. Metrics and the seeds of dropout get their initial values.

    Args:
        model: The result of `unallocated`.
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
