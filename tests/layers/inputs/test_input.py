import pytest

from keras_adaptive.layers import AdaptiveEmbedding, Input, WordEmbedding

pytestmark = pytest.mark.once


@pytest.mark.parametrize("layer", [AdaptiveEmbedding(40, 16, (5, 12), output_dim=6), WordEmbedding(40, 6)], ids=type)
def test_attributes_of_an_input(layer):
    assert isinstance(layer, Input)
    assert (layer.vocabulary_size, layer.output_dim) == (40, 6)
    assert layer.boundaries[0] == 0 and layer.boundaries[-1] == 40
    assert layer.compute_output_shape((3, None)) == (3, None, 6) and layer.for_inference() is layer
    layer.build()
    assert sum(table.shape[0] for table in layer.tables) == 40 and layer.max_bytes is None
    with pytest.raises(NotImplementedError, match=f"`{type(layer).__name__}` reads the ids of words only"):
        layer.embed_bytes([[1]], [1], [True])
