"""Char-CNN inputs against the formula over all slots, one word at a time."""

from functools import partial

import keras
import numpy as np
import pytest

from keras_adaptive.layers import CharCNN, CharCNNSoftmax, CharLSTMSoftmax
from keras_adaptive.ops.map_rows import map_rows
from keras_adaptive.ops.word_bytes import Convolutions, beginnings, encode_words, with_markers
from tests.support import oracle
from tests.support.backends import MODES, numpy, runner, weight_gradients
from tests.support.chunks import set_chunk_sizes
from tests.support.weights import built, value

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = ["a", "the", "cat", "naïve", "日本語", "sixteen_bytes_ab", "seventeen_bytes_a", "twenty_bytes_of_word"]
FILTERS, MAX_BYTES, DIM = (3, 4, 5), 20, 6
LONG = "x" * 19 + "é"  # whose last byte is the 21st


@pytest.fixture(autouse=True)
def three_numbers_of_slots(monkeypatch):
    """5, 12 and 20, to compile less."""
    monkeypatch.setattr("keras_adaptive.layers.inputs.char_cnn.SLOTS", (5, 12))


def make(highways=1, words=(*WORDS, LONG), **kwargs):
    options = {"char_dim": 4, "filters": FILTERS, "max_bytes": MAX_BYTES} | kwargs
    return built(CharCNN([*SPECIAL, *words], DIM, highways=highways, **options))


def expected(layer, word_bytes):
    weights, slots = [value(variable) for variable in layer.trainable_variables], layer.max_bytes
    if layer.word_markers:
        word_bytes, slots = [256, *word_bytes[:slots], 257], slots + 2
    return oracle.char_cnn(word_bytes, weights, layer.highways, slots, padding(layer))


def padding(layer):
    return 0.0 if layer.zero_padding else value(layer.table)[0]


def bytes_of(layer, id):
    return b"" if id == 0 else layer.words[id].encode()


OF_HIGHWAYS = [(0, MODES[0]), (2, MODES[0]), *((1, mode) for mode in MODES)]
OF_PADDING = [(*one, {"zero_padding": zero_padding}) for zero_padding in (True, False) for one in OF_HIGHWAYS]


@pytest.mark.parametrize("highways, mode, options", [*OF_PADDING, (2, MODES[0], {"word_markers": True})], ids=str)
def test_vectors_are_those_of_the_formula(highways, mode, options):
    layer = make(highways, **options)
    symbols = value(layer.symbols)
    vectors = runner(layer, mode)(np.arange(len(layer.words), dtype="int32")[None])[0]
    special = {1: np.zeros(DIM), 2: symbols[0], 3: symbols[1]}
    for id, vector in enumerate(vectors):
        truth = special[id] if id in special else expected(layer, bytes_of(layer, id))
        np.testing.assert_allclose(vector, truth, atol=2e-5)


@pytest.mark.parametrize("slots", [MAX_BYTES, 8])
def test_a_width_may_be_left_out(slots):
    random = np.random.default_rng(0)
    table = random.normal(size=(257, 4))
    kernels = [random.normal(size=(width, 4, filters)) for width, filters in enumerate(FILTERS, 1)]
    biases = [random.normal(size=filters) for filters in FILTERS]
    words = encode_words(["a", "the", "cat"], MAX_BYTES)[:, :slots].astype("int32")

    def features(kernels, biases):
        convolutions = Convolutions(slots, MAX_BYTES)
        function = lambda *w: convolutions(words, w[0], *w[1:4], *beginnings(w[1:4]), *w[4:])  # noqa: E731
        return runner(function)(*(array.astype("float32") for array in (table, *kernels, *biases)))

    whole = features(kernels, biases)
    kernels[1], biases[1] = kernels[1][..., :0], biases[1][:0]
    np.testing.assert_allclose(features(kernels, biases), np.delete(whole, range(3, 7), axis=1), atol=1e-5)


FILTERS_OF_2016 = (32, 32, 64, 128, 256, 512, 1024, 2048)  # 4,096 features
OF_2016 = {"highways": 2, "char_dim": 16, "filters": FILTERS_OF_2016, "word_markers": True}


@pytest.mark.parametrize("options, weights", [({}, 20_458_880), (OF_2016, 71_790_128)], ids=["2019", "2016"])
@pytest.mark.once
def test_the_published_sizes(options, weights):
    """Baevski and Auli 2019, one highway to 1,024 dimensions; Jozefowicz et al. 2016, section 5.4: 72M weights."""
    with keras.StatelessScope(initialize_variables=False):
        layer = CharCNN([*SPECIAL, "word"], 1024, **options)
        layer.build()
    assert layer.count_params() == weights


def test_places_and_repetitions():
    layer = make()
    run = runner(layer)
    ids = np.random.default_rng(0).integers(0, len(layer.words), size=(5, 40)).astype("int32")
    table = run(np.arange(len(layer.words), dtype="int32"))
    np.testing.assert_allclose(run(ids), table[ids], atol=1e-6)
    outside = run(np.array([[-1, 4, len(layer.words)]], "int32"))[0]
    np.testing.assert_array_equal(outside[[0, 2]], 0)


def test_ids_of_a_column():
    """A column is not contiguous in memory, and torch's search warns about it."""
    layer, ids = make(), np.arange(12, dtype="int32").reshape(4, 3) % 7
    tensor = keras.ops.convert_to_tensor(ids)[:, 1:2]
    np.testing.assert_array_equal(numpy(layer(tensor)), numpy(layer(keras.ops.convert_to_tensor(ids[:, 1:2].copy()))))


@pytest.mark.parametrize(
    "rows, mode, zero_padding",
    [(3, MODES[0], True), (3, MODES[0], False), *((1, mode, True) for mode in MODES if mode != "eager")],
)
def test_gradients_are_those_of_the_formula(rows, mode, zero_padding, monkeypatch):
    """The value is Σ upstream·vector over repeated words in several chunks; one length has no word."""
    set_chunk_sizes(monkeypatch, convolved_words=rows, highway_words=rows)
    layer = make(highways=2, zero_padding=zero_padding)
    random = np.random.default_rng(1)
    ids = np.array([4, 5, 5, 6, 2, 2, 3, 1, 0, 8, 9, 10, 11, 12, 5], "int32")
    upstream = random.normal(size=(len(ids), DIM))

    def total(ids):
        return keras.ops.sum(layer(ids) * keras.ops.convert_to_tensor(upstream.astype("float32")))

    variables = layer.trainable_variables
    _, gradients = weight_gradients(lambda: total(keras.ops.convert_to_tensor(ids)), variables, mode=mode)
    assert not gradients[0][0].any()  # padding is not trained
    weights, constant = [value(variable) for variable in variables], padding(layer)

    def vector(id, weights):
        rows = {1: np.zeros(DIM), 2: weights[1][0], 3: weights[1][1]}
        return rows[id] if id in rows else oracle.char_cnn(bytes_of(layer, id), weights, 2, MAX_BYTES, constant)

    def truth(weights):
        return np.sum(np.stack([vector(id, weights) for id in ids]) * upstream)

    for place, gradient in enumerate(gradients):
        for _ in range(3):
            direction = random.normal(size=gradient.shape)
            moved = [*weights[:place], weights[place] + 1e-30j * direction, *weights[place + 1 :]]
            slope = truth(moved).imag / 1e-30
            assert np.sum(gradient * direction) == pytest.approx(slope, rel=2e-3, abs=2e-3), variables[place].path


@pytest.mark.once
def test_each_distinct_word_is_computed_once_from_the_bytes_it_has(monkeypatch):
    """The rows are counted where they are chosen, as active words by length, which is the same on every backend."""
    layer, seen = make(words=["a", "the", "twenty_bytes_of_word"]), {}

    def counting(cases, *arguments, **options):
        for function, active, _ in cases:
            seen[getattr(function, "slots", "highways")] = int(keras.ops.sum(keras.ops.cast(active, "int32")))
        return map_rows(cases, *arguments, **options)

    monkeypatch.setattr("keras_adaptive.layers.inputs.char_cnn.map_rows", counting)
    layer(np.array([[4, 5, 4, 5, 4, 4, 6, 6, 2]], "int32"))
    assert seen.pop("highways") == 3
    assert sum(seen.values()) == 3 and seen[20] == 1


def test_what_occurs_often_has_its_gradients_summed_in_float32():
    """A sum of ones in bfloat16 would stop at 256."""
    layer = make(dtype="mixed_bfloat16")
    ids = np.array([2] * 700 + [4], "int32")
    total = lambda: keras.ops.sum(keras.ops.cast(layer(keras.ops.convert_to_tensor(ids)), "float32"))  # noqa: E731
    _, gradients = weight_gradients(total, [layer.symbols])
    np.testing.assert_allclose(gradients[0], [[700.0] * DIM, [0.0] * DIM])


@pytest.mark.parametrize("word_markers", [False, True])
def test_any_string_has_a_vector(word_markers):
    layer = make(word_markers=word_markers)
    spelled = [b"cat", b"catt", LONG.encode()[:MAX_BYTES]]
    vectors = layer.vectors(["cat", "catt", LONG])
    np.testing.assert_allclose(vectors, [expected(layer, word) for word in spelled], atol=2e-5)


@pytest.mark.once
def test_vectors_of_any_number_of_words_are_compiled_rarely(monkeypatch):
    """Each layer compiles once, for few numbers of rows; more rows than words do not compile again."""
    layer, shapes = make(), []

    def count(function, variables):
        def counted(x, number):
            shapes.append((function, x.shape[0]))
            return function(x, number)

        return counted

    monkeypatch.setattr("keras_adaptive.layers.inputs.char_cnn.compiled", count)
    words = ["cat", "catt", "x", "cat", "yy"]
    alone = np.concatenate([layer.vectors([word]) for word in words])
    np.testing.assert_allclose(layer.vectors(words), alone, atol=1e-6)
    np.testing.assert_allclose(layer.vectors(words[:3]), alone[:3], atol=1e-6)
    assert len({function for function, _ in shapes}) == 1 and [rows for _, rows in shapes] == [1] * 5 + [8, 4]


@pytest.mark.once
def test_neighbors_are_those_of_the_cosine():
    layer = make(highways=0)
    table = np.stack([expected(layer, word.encode()) for word in layer.words[4:]])
    query = expected(layer, b"catt")
    cosines = table @ query / np.linalg.norm(table, axis=1) / np.linalg.norm(query)
    found = layer.neighbors("catt", k=3)
    assert [word for word, _ in found] == [layer.words[4 + i] for i in np.argsort(-cosines)[:3]]
    np.testing.assert_allclose([cosine for _, cosine in found], np.sort(cosines)[::-1][:3], atol=1e-5)
    assert "cat" not in [word for word, _ in layer.neighbors("cat", k=20)]
    for several, alone in zip(layer.neighbors(["catt", "cat"], k=3), [found, layer.neighbors("cat", k=3)], strict=True):
        assert [word for word, _ in several] == [word for word, _ in alone]
        np.testing.assert_allclose([cosine for _, cosine in several], [cosine for _, cosine in alone], atol=1e-6)


@pytest.mark.once
def test_a_configuration_without_a_word_on_padding_has_zeros():
    """Files that are older than `zero_padding` have no such setting."""
    config = make(zero_padding=False).get_config()
    assert not CharCNN.from_config(config).zero_padding
    del config["zero_padding"], config["word_markers"]
    assert CharCNN.from_config(config).zero_padding and not CharCNN.from_config(config).word_markers


@pytest.mark.once
@pytest.mark.parametrize(
    "layer", [partial(CharCNN, output_dim=4), partial(CharCNNSoftmax, num_samples=2), CharLSTMSoftmax]
)
def test_keras_does_not_track_every_word(layer):
    """It would make a list of its own class, in seconds for a million words."""
    assert type(layer([*SPECIAL, "a"]).words) is list


@pytest.mark.once
def test_bytes():
    characters = encode_words(["a\0b", LONG], 20)
    assert characters[0, :4].tolist() == [98, 1, 99, 0]
    assert characters[1, -1] == "é".encode()[0] + 1
    marked = numpy(with_markers(keras.ops.convert_to_tensor(characters)))
    assert marked[0, :6].tolist() == [257, 98, 1, 99, 258, 0]
    assert marked[1].tolist() == [257, *characters[1], 258]  # a word that fills the slots, or was cut, ends too
