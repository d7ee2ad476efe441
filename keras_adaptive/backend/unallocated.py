import concurrent.futures
import math
import random

import keras


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


def number_of_values(variables):
    """Returns the total number of values in variables."""
    return sum(math.prod(variable.shape) for variable in variables)
