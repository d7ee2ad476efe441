import functools

import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops import context_product
from keras_adaptive.ops.context import averages
from tests.support import oracle
from tests.support.backends import BACKEND, MODES, largest_array, runner, value_and_gradients
from tests.support.chunks import set_chunk_sizes
from tests.support.closeness import close, close_to_formula, normal, weighted
from tests.support.steps import changed_at_each_token

BATCH, DIM, UNITS = 2, 3, 4


def windows(num_local, number, size):
    """Means of adjacent windows: constants."""
    filters = np.zeros((number, num_local + number * size), "float32")
    for block in range(number):
        filters[block, num_local + block * size :][:size] = 1 / size
    return filters


class Case:
    """`before` + `length` tokens, and `learned` filters over `reach` distances or `means` of a number of tokens."""

    def __init__(self, length, num_local, learned=0, reach=0, means=0, before=0):
        self.options = {"num_local": num_local, "before": before}
        self.constant = windows(num_local, 2, means) if means else None
        self.blocks = num_local + learned + 2 * bool(means)
        tokens = before + length
        self.arguments = [normal(BATCH, tokens, DIM), normal(self.blocks * DIM, UNITS), normal(UNITS)]
        self.arguments += [normal(learned, reach)] if learned else []

    def filters(self, rest):
        return rest[0] if rest else self.constant

    def values(self, x, kernel, bias, *rest):
        return context_product(x, kernel, bias, self.filters(rest), **self.options)

    def exact(self, x, kernel, bias, *rest):
        filters = () if self.filters(rest) is None else self.filters(rest)
        return oracle.context_product(x, kernel, bias, filters, **self.options)


CASES = {
    "local": Case(7, 3),
    "the current token alone": Case(5, 1),
    "kernels": Case(7, 2, learned=2, reach=6),
    "kernels that see the current token": Case(6, 1, learned=1, reach=3),
    "means": Case(7, 2, means=2),
    "one token": Case(1, 3, learned=1, reach=5),
    "fewer tokens than the window": Case(3, 5, learned=1, reach=9),
    "one token after others": Case(1, 3, learned=1, reach=5, before=4),
    "tokens after a few": Case(4, 4, learned=1, reach=3, before=1),
    "tokens after many": Case(3, 2, means=2, before=6),
    "several blocks": Case(11, 3, learned=2, reach=6),
    "several blocks after others": Case(9, 3, learned=1, reach=7, before=5),
    "several blocks of means": Case(10, 2, means=1),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """A short text has as many blocks as a long one."""
    monkeypatch.setattr(averages, "BLOCK_TOKENS", 4)
    set_chunk_sizes(monkeypatch, context_rows=3 * BATCH)


MODES_OF_CASES = [(name, MODES[0]) for name in CASES] + [("several blocks after others", mode) for mode in MODES[1:]]


@pytest.mark.parametrize("name, mode", MODES_OF_CASES)
def test_values_and_gradients_of_all_arguments_are_those_of_the_oracle(name, mode):
    case = CASES[name]
    values, exact = functools.partial(weighted, case.values, ops), functools.partial(weighted, case.exact, np)
    close_to_formula(values, exact, case.arguments, mode)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only its graphs have batches of unknown size")
@pytest.mark.parametrize("name", ["fewer tokens than the window", "several blocks after others", "means"])
def test_a_graph_that_knows_neither_batch_nor_length(name):
    import tensorflow as tf

    case = CASES[name]
    shapes = [tf.TensorSpec((None, None, DIM)), *(tf.TensorSpec(array.shape) for array in case.arguments[1:])]

    @tf.function(input_signature=shapes, autograph=False)
    def gradients(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            values = case.values(*tensors)
            total = sum(tf.reduce_sum(value**2) for value in values)
        return values, tape.gradient(total, tensors)

    values, found = gradients(*map(tf.constant, case.arguments))
    formula = lambda *arguments: sum((value**2).sum() for value in case.exact(*arguments))  # noqa: E731
    close(values, case.exact(*case.arguments), 2e-6, least=0.0)
    close(found, oracle.gradients(formula, case.arguments), 2e-6, least=0.0)


@pytest.mark.parametrize("name", ["kernels", "several blocks"])
def test_a_changed_token_changes_nothing_before_it(name):
    case = CASES[name]
    x, *weights = case.arguments
    run = runner(lambda x: case.values(x, *weights))
    before = run(x)
    for token, after in changed_at_each_token(run, x):
        for value, old in zip(after, before, strict=True):
            np.testing.assert_array_equal(value[:, :token], old[:, :token])
            assert np.abs(value - old)[:, token:].max() > 1e-3


def test_no_array_has_the_size_of_the_concatenation(monkeypatch):
    case = Case(40, 8, learned=2, reach=30)
    sizes = largest_array(functools.partial(weighted, case.values, ops), *case.arguments)
    assert sizes < case.blocks * DIM * BATCH * 40 / 2


def test_a_long_text_has_no_matrix_of_its_length():
    """24 tokens have two blocks, as many as 12."""
    cases = [Case(length, 2, learned=1, reach=4) for length in (30, 60)]
    short, long = (largest_array(functools.partial(weighted, case.values, ops), *case.arguments) for case in cases)
    assert long <= 2.2 * short


def test_bfloat16_is_near_float32():
    case = CASES["several blocks"]

    def narrow(*arguments):
        values = case.values(*[ops.cast(one, "bfloat16") for one in arguments[:3]], *arguments[3:])
        return [ops.cast(value, "float32") for value in values]

    both = [functools.partial(weighted, values, ops) for values in (narrow, case.values)]
    close(*(value_and_gradients(function, case.arguments) for function in both), 0.05, least=0.0)
