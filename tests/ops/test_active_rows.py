import re

import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops.active_rows import over_active_rows
from tests.support.backends import BACKEND, MODES, compiled, numpy

ACTIVE = {
    "some": [True, False, True, True, False, False, True, True, False, True, True],
    "all": [True] * 11,
    "none": [False] * 11,
    "the last": [False] * 10 + [True],
}


def doubled(active, x, chunk_rows):
    """Twice each active row, −1 elsewhere, and the sum of the active rows."""

    def body(inputs, live, carry):
        (rows,) = inputs
        return [2 * rows], [carry[0] + ops.sum(ops.where(live[:, None], rows, 0), axis=0)]

    outputs, carry = over_active_rows(body, active, [x], [ops.full(ops.shape(x), -1.0)], [ops.zeros(3)], chunk_rows)
    return outputs[0], carry[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chunk_rows", [1, 4, 11, 16])
@pytest.mark.parametrize("case", ACTIVE)
def test_only_active_rows_are_worked_on(case, chunk_rows, mode):
    active = np.array(ACTIVE[case])
    x = np.random.default_rng(0).normal(size=(11, 3)).astype("float32")
    run = compiled(lambda active, x: doubled(active, x, chunk_rows), mode)
    output, total = numpy(run(ops.convert_to_tensor(active), ops.convert_to_tensor(x)))
    np.testing.assert_array_equal(output, np.where(active[:, None], 2 * x, -1))
    np.testing.assert_allclose(total, x[active].sum(axis=0), atol=1e-6)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only its graphs have batches of unknown size")
@pytest.mark.parametrize("rows", [0, 3, 11])
def test_a_chunk_is_no_larger_than_a_batch_of_unknown_size(rows):
    import tensorflow as tf

    specifications = [tf.TensorSpec([None], tf.bool), tf.TensorSpec([None, 3])]

    @tf.function(input_signature=specifications, autograph=False)
    def sizes(active, x):
        body = lambda inputs, live, carry: ([tf.ones_like(inputs[0]) * tf.cast(tf.size(live), tf.float32)], carry)  # noqa: E731
        return over_active_rows(body, active, [x], [tf.zeros_like(x)], [], 8)[0][0]

    np.testing.assert_array_equal(
        sizes(np.ones(rows, bool), np.zeros((rows, 3), "float32")), np.full((rows, 3), min(rows, 8))
    )


@pytest.mark.skipif(BACKEND != "jax", reason="only XLA moves operations out of loops")
def test_a_single_row_is_not_worked_on_before_the_loop():
    import jax

    def product(active, x, table):
        body = lambda inputs, live, carry: ([inputs[0] @ table], carry)  # noqa: E731
        return over_active_rows(body, active, [x], [ops.zeros((1, 500))], [], 1)[0][0]

    program = jax.jit(product).lower(np.ones(1, bool), np.ones((1, 300)), np.ones((300, 500))).compile().as_text()
    computations = dict(re.findall(r"^(?:ENTRY )?%([\w.]+) \(.*?\{\n(.*?)^\}", program, flags=re.M | re.S))
    (entry,) = re.findall(r"^ENTRY %([\w.]+)", program, flags=re.M)
    at_once = [
        computations[entry],
        *(computations[name] for name in re.findall(r"calls=%([\w.]+)", computations[entry])),
    ]
    assert " dot(" in program and not any(" dot(" in text for text in at_once)
