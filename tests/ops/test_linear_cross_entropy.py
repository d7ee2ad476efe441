import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops import linear_cross_entropy, linear_nll
from keras_adaptive.ops.chunks import CPU
from tests.support import oracle
from tests.support.backends import BACKEND, MODES, compiled, differentiated, largest_array, numpy, value_and_gradients
from tests.support.closeness import all_close, close

ROWS, DIM, CLASSES, EXTRAS, CHUNK = 11, 4, 7, 2, 4
ROWS_FIRST = CPU["jax"].rows_first
ORDINARY = np.array([0, 6, 8, 7, 3, 3, 5, 0, 1, 2, 6])
CASES = {  # targets, weights
    "all rows": (ORDINARY, np.linspace(0.5, 2.0, ROWS)),
    "rows of other bands": (np.array([-1, 6, 9, 8, -5, 3, 100, 0, -1, 2, 1]), np.ones(ROWS)),
    "padding": (ORDINARY, np.array([1, 0, 1, 0, 0, 2, 1, 1, 0, 0, 1.0])),
    "one row": (np.where(np.arange(ROWS) == 5, 3, -1), np.ones(ROWS)),
    "no rows": (np.full(ROWS, -1), np.ones(ROWS)),
    "only padding": (ORDINARY, np.zeros(ROWS)),
}
random = np.random.default_rng(3)
X, TABLE, EXTRA = ARRAYS = [
    random.normal(size=shape).astype("float32") for shape in ((ROWS, DIM), (CLASSES, DIM), (ROWS, EXTRAS))
]
BIAS = np.random.default_rng(4).normal(size=CLASSES).astype("float32")


def fused(targets, weights, chunk_rows=CHUNK):
    targets, weights = np.asarray(targets, "int32"), np.asarray(weights, "float32")
    return lambda x, table, *extra: linear_cross_entropy(x, table, targets, weights, *extra, chunk_rows=chunk_rows)


@functools.cache
def op(chunk_rows=CHUNK, mode=MODES[0]):
    """Value and gradients of any case, of `x, table[, extra_logits[, bias]]`: one function, to compile once."""

    def total(*arguments):
        *tensors, targets, weights = arguments
        x, table, extra, bias = [*tensors, None, None][:4]
        return linear_cross_entropy(x, table, targets, weights, extra, chunk_rows, bias)

    run = differentiated(total, mode)
    return lambda tensors, targets, weights: run(tensors, targets.astype("int32"), weights.astype("float32"))


def exact(tensors, targets, weights):
    """Value and gradients by the oracle."""
    x, table, *others = tensors
    return oracle.linear_cross_entropy(x, table, targets, weights, *others)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_value_and_gradients(case, mode):
    """Without a bias and with one."""
    for tensors in (ARRAYS, [*ARRAYS, BIAS]):
        close(op(mode=mode)(tensors, *CASES[case]), exact(tensors, *CASES[case]))


@pytest.mark.parametrize("chunk_rows", [1, CHUNK, ROWS_FIRST])
def test_a_bias_of_any_size_without_extra_logits(chunk_rows):
    targets, weights = CASES["rows of other bands"][0], CASES["padding"][1].astype("float32")
    total = lambda *tensors: linear_cross_entropy(*tensors[:2], targets, weights, None, chunk_rows, tensors[2])  # noqa: E731
    run = differentiated(total)
    for scale in (1, 1_000):
        scaled = np.float32(scale) * BIAS
        close(run([X, TABLE, scaled]), oracle.linear_cross_entropy(X, TABLE, targets, weights, bias=scaled))


@pytest.mark.parametrize("chunk_rows", [1, 11, 12, ROWS_FIRST, None])
def test_the_size_of_chunks_changes_nothing(chunk_rows):
    close(op(chunk_rows)(ARRAYS, *CASES["padding"]), exact(ARRAYS, *CASES["padding"]))


def test_without_extra_logits():
    case = CASES["rows of other bands"]
    close(op()(ARRAYS[:2], *case), exact(ARRAYS[:2], *case))


def test_gradients_are_the_differences_of_the_value():
    """The oracle has a formula for the gradients, which the other tests use."""
    value = lambda *tensors: exact(tensors, *CASES["padding"])[0]  # noqa: E731
    close(op()(ARRAYS, *CASES["padding"])[1], oracle.gradients(value, ARRAYS))


def test_the_scalar_from_above_scales_the_gradients():
    op = fused(*CASES["padding"])
    _, once = value_and_gradients(op, ARRAYS)
    _, scaled = value_and_gradients(lambda *tensors: -3.0 * op(*tensors), ARRAYS)
    all_close([-3.0 * gradient for gradient in once], scaled, rtol=1e-6)


def test_weights_are_constants():
    total = lambda table, weights: linear_cross_entropy(X, table, np.zeros(ROWS, "int32"), weights)  # noqa: E731
    _, gradients = value_and_gradients(total, [TABLE, np.ones(ROWS, "float32")])
    assert gradients[0].any() and not gradients[1].any()


@pytest.mark.parametrize("chunk_rows", [CHUNK, ROWS_FIRST])
@pytest.mark.parametrize("scales", [(100, 100, 1), (1, 1, 1_000), (1e-3, 1, 1_000)], ids=str)
def test_large_logits_do_not_overflow(scales, chunk_rows):
    scaled = [np.float32(scale) * array for scale, array in zip(scales, ARRAYS)]
    value, gradients = op(chunk_rows)(scaled, *CASES["all rows"])
    expected, exact_gradients = exact(scaled, *CASES["all rows"])
    close(value, expected)
    close(gradients, exact_gradients, 1e-5)


@pytest.mark.parametrize("above", [20, 1_000])
@pytest.mark.parametrize("chunk_rows", [CHUNK, ROWS_FIRST])
def test_extra_logits_that_dominate_keep_their_digits(above, chunk_rows):
    """Rounding errors come from the differences between the logits of a row, not from their size."""
    high = [X, TABLE, EXTRA + np.float32(above)]
    close(op(chunk_rows)(high, *CASES["all rows"]), exact(high, *CASES["all rows"]), 5e-7)


@pytest.mark.parametrize("mode", MODES)
def test_nll_of_each_row(mode):
    targets = CASES["rows of other bands"][0]
    function = compiled(lambda x, table, extra: linear_nll(x, table, targets, extra, chunk_rows=CHUNK), mode)
    nll = numpy(function(*map(ops.convert_to_tensor, ARRAYS)))
    for row, target in enumerate(targets):
        expected, _ = oracle.linear_cross_entropy(X[[row]], TABLE, np.array([target]), np.ones(1), EXTRA[[row]])
        close(nll[row], expected)


def test_nll_can_be_differentiated():
    """Without a bias and with one."""
    targets, weights = CASES["padding"]

    def total(x, table, extra, bias=None):
        nll = linear_nll(x, table, targets, extra, CHUNK, bias)
        return ops.sum(ops.multiply(nll, weights.astype("float32")))

    for tensors in (ARRAYS, [*ARRAYS, BIAS]):
        close(value_and_gradients(total, tensors), exact(tensors, targets, weights))


def test_second_derivatives_are_refused_or_right():
    op = fused(*CASES["all rows"])

    def squared_gradient(x):
        return ops.sum(ops.square(_gradient(lambda x: op(x, TABLE, EXTRA), x)))

    def expected(x):
        return np.sum(exact([x, TABLE, EXTRA], *CASES["all rows"])[1][0] ** 2)

    try:
        _, (second,) = value_and_gradients(squared_gradient, [X])
    except (RuntimeError, ValueError, LookupError, NotImplementedError):
        return
    step = np.zeros_like(X, "float64")
    step[2, 1] = 1e-6
    close(second[2, 1], (expected(X + step) - expected(X - step)) / 2e-6, 1e-4)


def _gradient(function, x):
    if BACKEND == "jax":
        import jax

        return jax.grad(function)(x)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        return tape.gradient(value, x)
    import torch

    return torch.autograd.grad(function(x), x, create_graph=True)[0]


def plain(targets, weights):
    """The unfused form: all logits at once, differentiated by the backend."""

    def function(x, table):
        logits = ops.cast(ops.matmul(x, ops.transpose(table)), "float32")
        log_probs = ops.take_along_axis(ops.log_softmax(logits), ops.convert_to_tensor(targets)[:, None], axis=-1)
        return -ops.sum(ops.multiply(log_probs[:, 0], weights))

    return function


@pytest.mark.parametrize("scale", [0.1, 3.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_not_less_precise_than_the_plain_form(dtype, scale):
    random = np.random.default_rng(5)
    rows, classes, dim = 150, 700, 64  # large enough for the backends' matrix libraries, as real ones are
    x, table = (numpy(ops.cast(scale * random.normal(size=(n, dim)), dtype)) for n in (rows, classes))
    targets, weights = random.integers(0, classes, rows), random.integers(0, 2, rows).astype("float32")
    expected = keras.tree.flatten(oracle.linear_cross_entropy(x, table, targets, weights))

    def errors(function):
        cast = lambda x, table: function(ops.cast(x, dtype), ops.cast(table, dtype))  # noqa: E731
        value, gradients = value_and_gradients(cast, [x, table])
        assert ops.convert_to_tensor(gradients[0]).dtype == ops.convert_to_tensor(x).dtype
        return [np.max(np.abs(a - e)) for a, e in zip((value, *gradients), expected, strict=True)]

    epsilon = {"float32": 2**-23, "bfloat16": 2**-8, "float16": 2**-11}[dtype]
    of_plain, of_fused = errors(plain(targets, weights)), errors(fused(targets, weights, chunk_rows=64))
    for error, other, truth in zip(of_fused, of_plain, expected, strict=True):
        assert error <= other + epsilon * np.max(np.abs(truth))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_bias_keeps_its_digits_in_mixed_precision(dtype):
    x, table = (numpy(ops.cast(array, dtype)) for array in (X, TABLE))
    targets, weights = CASES["padding"]
    weights = weights.astype("float32")

    def total(x, table, bias):
        x, table = ops.cast(x, dtype), ops.cast(table, dtype)
        return linear_cross_entropy(x, table, targets, weights, chunk_rows=CHUNK, bias=bias)

    value, gradients = value_and_gradients(total, [x, table, BIAS + 300])
    expected, exact_gradients = oracle.linear_cross_entropy(x, table, targets, weights, bias=BIAS)
    epsilon = {"bfloat16": 2**-8, "float16": 2**-11}[dtype]
    assert gradients[2].dtype == np.float32
    close(value, expected, epsilon)
    close(gradients, exact_gradients, 2 * epsilon)


def test_float16_keeps_gradients_of_improbable_words():
    x = np.eye(4, dtype="float16") * 12  # the others have 6e-6 each, and the weight makes that 6e-9
    table = np.eye(4, dtype="float16")
    targets, weights = np.arange(4), np.full(4, 1e-3, "float32")
    _, (gradient, _) = value_and_gradients(
        lambda x, table: 2.0**15 * fused(targets, weights)(ops.cast(x, "float16"), ops.cast(table, "float16")),
        [x, table],
    )
    _, (expected, _) = oracle.linear_cross_entropy(x, table, targets, weights)
    assert gradient.any()
    np.testing.assert_allclose(gradient, 2.0**15 * expected, rtol=2e-2)


def test_no_array_holds_all_logits():
    rows, classes, dim = 640, 512, 8
    random = np.random.default_rng(0)
    targets, weights = random.integers(0, classes, rows).astype("int32"), np.ones(rows, "float32")
    x, table = (random.normal(size=(n, dim)).astype("float32") for n in (rows, classes))
    assert largest_array(plain(targets, weights), x, table) >= rows * classes
    assert largest_array(fused(targets, weights, chunk_rows=32), x, table) <= 32 * classes
    summed = lambda x, table: ops.sum(linear_nll(x, table, targets, chunk_rows=32))  # noqa: E731
    assert largest_array(summed, x, table) <= 32 * classes
    biased = lambda x, table, bias: linear_cross_entropy(x, table, targets, weights, None, 32, bias)  # noqa: E731
    assert largest_array(biased, x, table, np.ones(classes, "float32")) <= 32 * classes


def test_a_float32_table_keeps_a_float32_gradient():
    total = lambda x, table: fused(*CASES["padding"])(ops.cast(x, "bfloat16"), table)  # noqa: E731
    _, (gradient_x, gradient_table) = value_and_gradients(total, [X, TABLE])
    assert gradient_x.dtype == gradient_table.dtype == np.float32
    assert np.any(gradient_table != numpy(ops.cast(ops.cast(gradient_table, "bfloat16"), "float32")))
    close(gradient_table, exact([X, TABLE], *CASES["padding"])[1][1], 2e-2)


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_do_not_count_may_hold_anything(mode):
    targets, weights = CASES["padding"]
    dirty = np.where(weights[:, None] == 0, np.nan, X).astype("float32")
    value, gradients = op(mode=mode)([dirty, TABLE, EXTRA], targets, weights)
    expected, exact_gradients = exact(ARRAYS, targets, weights)
    close((value, gradients[:2]), (expected, exact_gradients[:2]))


def test_a_batch_of_no_rows():
    value, gradients = value_and_gradients(fused([], []), [X[:0], TABLE, EXTRA[:0]])
    assert value == 0 and not gradients[1].any()


def test_takes_whatever_converts_to_tensors():
    x, table, extra = (array.tolist() for array in ARRAYS)
    value = linear_cross_entropy(x, table, ORDINARY.tolist(), [1.0] * ROWS, extra)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    close(numpy(value), exact(ARRAYS, ORDINARY, np.ones(ROWS))[0])
