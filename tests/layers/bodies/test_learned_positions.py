import numpy as np

from keras_adaptive.layers import LearnedPositions
from tests.support.backends import numpy
from tests.support.weights import built, value


def test_row_p_of_the_table_belongs_to_position_p():
    layer = built(LearnedPositions(6), 3)
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
    assert layer.table.shape == (2 + 6, 3)
    np.testing.assert_allclose(numpy(layer(x)), x + value(layer.table)[2:6], atol=1e-6)
    np.testing.assert_allclose(numpy(layer(x[:, :1], start=5)), x[:, :1] + value(layer.table)[7:], atol=1e-6)
    assert layer(np.zeros((1, 6, 3), "float32")).shape == (1, 6, 3)
