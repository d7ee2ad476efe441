import concurrent.futures
import math
import random

import keras


def unallocated(make_model):
    """Returns `make_model()`, made without memory for its variables, to look at their shapes.

    It is made in a thread of its own. Keras keeps for each thread a list of the variables that it has yet to allocate,
    which it would otherwise allocate when the next model is made. The seeds of later models do not change.
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
    """Returns the number of values in some variables."""
    return sum(math.prod(variable.shape) for variable in variables)
