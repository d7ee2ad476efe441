import numpy as np
import pytest

from keras_adaptive.layers import WordEmbedding
from tests.support.backends import MODES, runner
from tests.support.weights import built, value


@pytest.mark.parametrize("mode", MODES[:2])
def test_vectors_are_rows_of_the_table(mode):
    layer = built(WordEmbedding(9, 4))
    ids = np.array([[0, 8, 3], [3, -1, 9]], "int32")
    table = np.concatenate([value(layer.tables[0]), np.zeros((1, 4))])
    np.testing.assert_allclose(runner(layer, mode)(ids), table[np.where((ids < 0) | (ids > 8), 9, ids)], atol=1e-6)


@pytest.mark.once
def test_starting_values():
    layer = WordEmbedding(2_000, 64)
    layer.build()
    assert np.std(value(layer.tables[0])) == pytest.approx(64**-0.5, rel=0.02)
