import pytest

from keras_adaptive.layers import AdaptiveEmbedding, Input, WordEmbedding

pytestmark = pytest.mark.once


@pytest.mark.parametrize("layer", [AdaptiveEmbedding(40, 16, (5, 12), output_dim=6), WordEmbedding(40, 6)], ids=type)
def test_attributes_of_an_input(layer):
    assert isinstance(layer, Input)
    assert (layer.vocabulary_size, layer.output_dim) == (40, 6)
    assert layer.boundaries[0] == 0 and layer.boundaries[-1] == 40
    assert layer.compute_output_shape((3, None)) == (3, None, 6)
    layer.build()
    assert sum(table.shape[0] for table in layer.tables) == 40 and layer.max_bytes is None
    with pytest.raises(NotImplementedError, match=f"`{type(layer).__name__}` reads the ids of words only"):
        layer.embed_bytes([[1]], [1], [True])


def test_words_outside_the_vocabulary_need_spellings():
    layer = WordEmbedding(4, 2)
    assert layer.for_inference() is layer
    for words in (["new"], []):
        with pytest.raises(ValueError, match=r"Only an input that reads bytes.* for a WordEmbedding"):
            layer.for_inference(words)


def test_an_input_must_say_what_it_does():
    with pytest.raises(NotImplementedError, match="`Input` must implement `call"):
        Input().call([[1]])
