"""Gradients and updates of the rows of a table that a function reads, against dense ones."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.backend.gradients import value_and_gradients
from keras_adaptive.backend.optimizer_step import apply_gradients, updates_rows
from keras_adaptive.backend.sparse.gradients import RowGradient, added, summed_by_row, take_rows
from keras_adaptive.ops.global_norm import global_norm, scaled
from keras_adaptive.optimizers import NAG, LazyAdam
from tests.support.backends import BACKEND, graph_operations, numpy, torch_operations
from tests.support.closeness import all_close, all_equal
from tests.support.refusals import refused

ROWS, DIM = 9, 3
RANDOM = np.random.default_rng(0)
TABLE = RANDOM.normal(size=(ROWS, DIM)).astype("float32")
MATRIX = RANDOM.normal(size=(DIM, 2)).astype("float32")
READS = (np.array([[4, 1], [4, 8]]), np.array([1, 7, 7]))


def variables():
    return keras.Variable(TABLE, name="table"), keras.Variable(MATRIX, name="matrix")


def gradients(function, trainable, tables):
    with keras.StatelessScope(state_mapping=[]):
        (value, _), found = value_and_gradients(lambda: (function(), ()), (), trainable, [], tables)
    return value, found


def two_reads(table, matrix, take):
    """Returns a value of two reads: both contain one row, and one of them contains a row twice."""
    first, second = (take(table, ops.convert_to_tensor(ids)) for ids in READS)
    return ops.sum(ops.square(ops.matmul(first, matrix))) + ops.sum(ops.sin(second))


@functools.cache
def of_rows(by_rows=True):
    table, matrix = trainable = variables()
    take = take_rows if by_rows else lambda variable, ids: ops.take(variable, ids, axis=0)
    _, found = gradients(lambda: two_reads(table, matrix, take), list(trainable), [table] if by_rows else [])
    return found


def dense(gradient):
    whole = np.zeros((ROWS, DIM), "float32")
    np.add.at(whole, numpy(gradient.ids), numpy(gradient.values))
    return whole


def test_rows_have_the_gradient_of_the_table():
    table, matrix = of_rows()
    expected, of_matrix = map(numpy, of_rows(by_rows=False))
    np.testing.assert_allclose(dense(table), expected, atol=1e-6)
    np.testing.assert_allclose(numpy(matrix), of_matrix, atol=1e-6)


def test_rows_of_a_table_with_another_gradient():
    """Rows that are read twice add up with the gradient of the whole table."""
    table = keras.Variable(TABLE)
    read = ops.convert_to_tensor([[4, 1], [4, 8]], "int32")

    def function():
        return 2 * ops.sum(take_rows(table, read)) + ops.sum(table.value), ()

    with keras.StatelessScope(state_mapping=[]):
        _, (found,) = value_and_gradients(function, (), [table], [])
    counts = np.array([1, 3, 1, 1, 5, 1, 1, 1, 3], "float32")
    np.testing.assert_array_equal(numpy(found), np.repeat(counts[:, None], DIM, axis=1))


def test_sums_have_distinct_rows_and_the_norm_of_the_table():
    table, matrix = of_rows()
    twice = summed_by_row(added(table, table))
    values = numpy(twice.values)
    rows = numpy(twice.ids)[np.any(values != 0, axis=1)]
    assert sorted(rows) == [1, 4, 7, 8]
    expected, of_matrix = map(numpy, of_rows(by_rows=False))
    np.testing.assert_allclose(dense(twice), 2 * expected, atol=1e-6)
    norm = np.sqrt(4 * np.sum(expected**2) + np.sum(of_matrix**2))
    np.testing.assert_allclose(float(global_norm([twice, matrix])), norm, rtol=1e-6)
    np.testing.assert_allclose(dense(scaled([twice], ops.convert_to_tensor(0.5))[0]), expected, atol=1e-6)


def test_a_table_that_is_not_read_has_no_gradient():
    table, matrix = variables()
    _, (of_table, _) = gradients(lambda: ops.sum(ops.convert_to_tensor(matrix.value)), [table, matrix], [table])
    np.testing.assert_array_equal(dense(of_table), 0)


def test_a_table_that_is_read_as_a_whole_too_is_refused():
    table, _ = variables()
    both = lambda: ops.sum(take_rows(table, READS[1])) + ops.sum(ops.square(table.value))  # noqa: E731
    refused(gradients, both, [table], [table], match="must be read by `take_rows` only")


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "adagrad": lambda: keras.optimizers.Adagrad(0.5, initial_accumulator_value=0.3),
    "lazy adam": lambda: LazyAdam(0.01),
}


def updated(make, by_rows, finite=True, steps=2):
    """Returns the table, the matrix and the variables of the optimizer after some steps with the same gradients."""
    trainable, optimizer = list(variables()), make()
    optimizer.build(trainable)
    rows, matrix = of_rows()
    for _ in range(steps):
        table = summed_by_row(rows) if by_rows else ops.convert_to_tensor(dense(rows))
        apply_gradients(optimizer, [table, ops.copy(matrix)], trainable, ops.convert_to_tensor(finite))
    return [numpy(variable.value).copy() for variable in (*trainable, *optimizer.variables)]


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_update_of_rows_is_the_dense_update(make):
    """All rows that were read are updated. Adam's moments of the other rows stay 0, and so do their steps."""
    all_close(updated(make, True), updated(make, False), atol=1e-6)


EPSILONS = {  # (optimizer with a large epsilon, the change of a weight by a first gradient of 1e-3)
    "adagrad": (lambda: keras.optimizers.Adagrad(0.5, 1e-6, epsilon=1e-5), -0.5e-3 / np.sqrt(1e-6 + 1e-6 + 1e-5)),
    "lazy adam": (lambda: LazyAdam(0.5, epsilon=1e-3), -0.5 * 1e-3 / (1e-3 + 1e-3 / np.sqrt(1 - 0.999))),
}


@pytest.mark.parametrize("make, change", EPSILONS.values(), ids=EPSILONS)
def test_rows_are_changed_with_the_epsilon_of_the_optimizer(make, change):
    trainable, optimizer = list(variables()), make()
    optimizer.build(trainable)
    gradient = RowGradient(ops.convert_to_tensor([2], "int32"), 1e-3 * ops.ones((1, DIM)))
    apply_gradients(optimizer, [gradient, ops.zeros((DIM, 2))], trainable, ops.convert_to_tensor(True))
    np.testing.assert_allclose(numpy(trainable[0].value)[2] - TABLE[2], change, rtol=1e-4)


def test_lazy_adam_leaves_the_moments_of_a_row_without_a_gradient_as_they_are():
    """A row that was read only by targets of weight 0 is in the gradient, with the value 0."""
    trainable, optimizer = list(variables()), LazyAdam(0.1)
    optimizer.build(trainable)
    zeros, state = ops.zeros((DIM, 2)), []
    for value in (1.0, 0.0):
        gradient = RowGradient(ops.convert_to_tensor([2], "int32"), value * ops.ones((1, DIM)))
        apply_gradients(optimizer, [gradient, zeros], trainable, ops.convert_to_tensor(True))
        moments = [slot for name in optimizer.row_slots for slot in getattr(optimizer, name)[:1]]
        state.append([numpy(variable.value).copy() for variable in (trainable[0], *moments)])
    all_equal(*state)


def test_lazy_adam_leaves_rows_as_they_are_that_are_not_read():
    trainable, optimizer = list(variables()), LazyAdam(0.1)
    optimizer.build(trainable)
    zeros = ops.zeros((DIM, 2))
    for row in (2, 5):
        gradient = RowGradient(ops.convert_to_tensor([row], "int32"), ops.ones((1, DIM)))
        apply_gradients(optimizer, [gradient, zeros], trainable, ops.convert_to_tensor(True))
    moved = np.any(numpy(trainable[0].value) != TABLE, axis=1)
    np.testing.assert_array_equal(np.flatnonzero(moved), [2, 5])
    np.testing.assert_allclose(numpy(trainable[0].value)[2], TABLE[2] - 0.1, atol=1e-5)  # moved once


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_skipped_update_of_rows_changes_nothing(make):
    all_equal(updated(make, True, finite=False), updated(make, True, steps=0))


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.SGD(0.1, momentum=0.9),
        keras.optimizers.Adagrad(0.1, weight_decay=0.1),
        keras.optimizers.Adagrad(0.1, use_ema=True),
        keras.optimizers.Adagrad(0.1, clipnorm=1.0),
        keras.optimizers.Adam(0.1),
        LazyAdam(0.1, amsgrad=True),
        NAG(0.1),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
    ],
    ids=["momentum", "decay", "average", "clipnorm", "adam", "amsgrad", "nag", "loss scale"],
)
def test_optimizers_that_change_every_row_get_dense_gradients(optimizer):
    assert not updates_rows(optimizer)


def step_by_rows():
    """A step of Adagrad on a table that is read by rows."""
    table, matrix = trainable = variables()
    optimizer = keras.optimizers.Adagrad(0.1)
    optimizer.build(trainable)

    def step():
        take = lambda: (two_reads(table, matrix, take_rows), ())  # noqa: E731
        _, found = value_and_gradients(take, (), list(trainable), [], [table])
        apply_gradients(optimizer, list(map(summed_by_row, found)), list(trainable), ops.convert_to_tensor(True))

    return step


@pytest.mark.skipif(BACKEND != "torch", reason="it records the tensors of torch")
def test_an_update_of_rows_makes_no_tensor_of_the_size_of_the_table():
    operations = [one for one in torch_operations(step_by_rows()) if not one[0].endswith("_")]  # in place
    made = [tuple(result.shape) for _, result in operations if hasattr(result, "shape")]
    assert len(made) > 20 and (ROWS, DIM) not in made


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only its graphs hold the value of a variable")
def test_an_update_of_rows_never_reads_a_whole_table():
    """TensorFlow would copy a table, or a slot, whose value is in use when its rows are updated."""
    outputs = [output for operation in graph_operations(step_by_rows()) for output in operation.outputs]
    assert len(outputs) > 50 and not any(output.shape == (ROWS, DIM) for output in outputs)


@pytest.mark.skipif(BACKEND != "jax", reason="it reads what XLA makes of a step")
def test_a_compiled_update_of_rows_copies_neither_table_nor_slot():
    import jax

    table = keras.Variable(np.zeros((1_000, DIM), "float32"))
    optimizer = keras.optimizers.Adagrad(0.1)
    optimizer.build([table])
    changed = [table, *optimizer.variables]

    def step(values, ids, rows):
        with keras.StatelessScope(state_mapping=list(zip(changed, values))) as scope:
            gradient = summed_by_row(RowGradient(ids, rows))
            apply_gradients(optimizer, [gradient], [table], ops.convert_to_tensor(True))
        return [scope.get_current_value(variable) for variable in changed]

    values = [variable.value for variable in changed]
    arguments = values, np.arange(4, dtype="int32"), np.ones((4, DIM), "float32")
    program = jax.jit(step, donate_argnums=0).lower(*arguments).compile().as_text()
    lines = [line for line in program.splitlines() if f"= f32[1000,{DIM}]" in line]
    assert any("scatter" in line for line in lines) and not any(" copy(" in line for line in lines)
