import numpy as np
import pytest
from keras import ops

from keras_adaptive.backend.slice_update import slice_update
from tests.support.backends import BACKEND, graph_operations, runner


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("position", [0, 2, 4])
def test_a_stretch_is_replaced(position, axis):
    tensor, new = np.zeros((2, 5, 3), "float32"), np.arange(6, dtype="float32").reshape(2, 1, 3) + 1
    expected = tensor.copy()
    expected[:, position : position + 1] = new
    run = runner(lambda *given: slice_update(*given, axis))
    others = (0, axis, 3 - axis)  # each its own inverse
    found = run(tensor.transpose(others), new.transpose(others), np.int32(position))
    np.testing.assert_array_equal(found.transpose(others), expected)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="it is what a SavedModel is made of")
def test_no_operation_of_xla_is_needed():
    import tensorflow as tf

    specifications = [tf.TensorSpec([None, None, 3]), tf.TensorSpec([None, None, 3]), tf.TensorSpec([], tf.int32)]
    operations = graph_operations(slice_update, *specifications)
    assert not [operation.type for operation in operations if operation.type.startswith("Xla")]
    assert ops.shape(slice_update(ops.zeros((1, 4, 3)), ops.ones((1, 2, 3)), 1)) == (1, 4, 3)
