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
