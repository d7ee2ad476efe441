"""Weights of one model as the start of another."""

import numpy as np
import pytest

from keras_adaptive.data import SPECIAL_WORDS, Vocabulary
from keras_adaptive.layers import (
    AdaptiveSoftmax,
    CausalAttention,
    CharCNNSoftmax,
    CharLSTMSoftmax,
    LSTMDecoder,
    SampledSoftmax,
    TransformerBlock,
    TransformerDecoder,
    WordEmbedding,
)
from keras_adaptive.models import Dropout, LanguageModel, transformer
from keras_adaptive.models.transfer import transfer
from tests.support.backends import numpy
from tests.support.refusals import refused
from tests.support.tiny import language_model, system
from tests.support.toy_body import ToyBody
from tests.support.weights import embedding_weights, randomize, softmax_weights

pytestmark = pytest.mark.once

# 20 ids, of which 5 are in the head. In the new vocabulary w3 and w0 change places, and two words are new.
WORDS = [f"w{number}" for number in range(16)]
NEW_WORDS = ["w3", "new", "w1", "w2", "w0", *WORDS[4:14], "newer"]
OLD, NEW = (Vocabulary([*SPECIAL_WORDS, *words], [0] * 20) for words in (WORDS, NEW_WORDS))


def vectors(model):
    """The vector of every word in the space of the hidden states, as it enters and leaves."""
    tables, projections = embedding_weights(model.word_input)
    return np.concatenate([table @ projection for table, projection in zip(tables, projections)])


def model_of(body=None, word_output=None, **kwargs):
    body = body or transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2, **kwargs)
    return LanguageModel(WordEmbedding(20, 8), body, word_output or AdaptiveSoftmax(20, (5,)))


def blocks(activation="relu", scale_input=True, **mixer):
    block = TransformerBlock(12, CausalAttention(2, **mixer), activation=activation)
    return model_of(TransformerDecoder([block], 8, scale_input=scale_input))


def test_words_keep_their_vectors_where_their_band_is_the_same():
    source, model = language_model(), language_model()
    randomize(model, seed=5)
    fresh = vectors(model)
    assert transfer(model, NEW, source, OLD) == 18
    old, new = vectors(source), vectors(model)
    for id, word in enumerate(NEW.words):
        if word in OLD and (OLD.words.index(word) < 5) == (id < 5):
            np.testing.assert_allclose(new[id], old[OLD.words.index(word)], atol=1e-6)
    tables = [numpy(table.value) for table in model.word_input.tables]
    projection = numpy(source.word_input.projections[1].value)
    moved = OLD.words.index("w0")  # out of the head into the tail: its vector is the nearest one there
    expected = np.linalg.lstsq(projection.T, old[moved], rcond=None)[0]
    np.testing.assert_allclose(tables[1][NEW.words.index("w0") - 5], expected, atol=1e-5)
    new_word = NEW.words.index("new")
    randomize(source, seed=5)
    np.testing.assert_array_equal(tables[1][new_word - 5], numpy(source.word_input.tables[1].value)[new_word - 5])
    assert not np.allclose(fresh, new)


@pytest.mark.parametrize("name", ["SM", "SM-T", "ASM", "CNN"])
def test_the_same_words_give_the_same_model(name):
    source, model = system(name), system(name)
    randomize(model, seed=5)
    assert transfer(model, OLD, source, OLD) == 20
    for one, other in zip(model.weights, source.weights):
        np.testing.assert_array_equal(numpy(one.value), numpy(other.value))


def test_an_untied_output_keeps_its_logits():
    """A word moves from the tail into the head, whose vectors can hold the vectors of any band."""
    source, model = system("ASM"), system("ASM")
    randomize(model, seed=5)
    transfer(model, NEW, source, OLD)
    hidden = np.random.default_rng(0).normal(size=(3, 8))

    def logits(output, id):
        tables, projections = softmax_weights(output)[:2]
        band = np.searchsorted(output.boundaries[1:], id, side="right")
        projected = hidden if projections[band] is None else hidden @ projections[band]
        return projected @ tables[band][id - output.boundaries[band]]

    for word in ("<unk>", "w3", "w1", "w9"):  # w3 moves
        expected = logits(source.word_output, OLD.words.index(word))
        found = logits(model.word_output, NEW.words.index(word))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_biases_and_a_table_that_bands_share_follow_their_words():
    def model(seed):
        words, body = WordEmbedding(20, 8), transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2)
        return randomize(LanguageModel(words, body, AdaptiveSoftmax(20, (5,), tied_to=words, use_bias=True)), seed)

    source, new = model(1), model(2)
    fresh = numpy(new.word_output.bias.value).copy()
    assert transfer(new, NEW, source, OLD) == 18
    for id, word in enumerate(NEW.words):
        old = OLD.words.index(word) if word in OLD else None
        expected = fresh[id] if old is None else numpy(source.word_output.bias.value)[old]
        assert numpy(new.word_output.bias.value)[id] == expected
        if old is not None:
            row = numpy(source.word_input.tables[0].value)[old]
            np.testing.assert_array_equal(numpy(new.word_input.tables[0].value)[id], row)
    np.testing.assert_array_equal(numpy(new.word_output.class_bias.value), numpy(source.word_output.class_bias.value))


def test_corrections_follow_their_words():
    """A new word is spelled by the network of the source and keeps the correction that it begins with, 0 here."""

    def model(words):
        output = CharCNNSoftmax(words, 8, correction_dim=2, char_dim=4, filters=(3, 4), max_bytes=8)
        return model_of(word_output=output)

    source, new = model(OLD.words), model(NEW.words)
    randomize(source)
    assert transfer(new, NEW, source, OLD) == 18
    old, corrections = (numpy(each.word_output.corrections.value) for each in (source, new))
    for row, word in zip(corrections, NEW.words):
        np.testing.assert_array_equal(row, old[OLD.words.index(word)] if word in OLD else [0, 0])
    tables = [numpy(each.word_output.for_inference().tables[0].value) for each in (source, new)]
    np.testing.assert_allclose(tables[1][NEW.words.index("w3")], tables[0][OLD.words.index("w3")], atol=1e-6)


def test_sizes_of_the_body_may_be_those_of_the_vocabulary():
    assert transfer(language_model(ffn_dim=20), NEW, language_model(ffn_dim=20), OLD) == 18


def test_a_tied_model_starts_an_untied_one():
    source, model = system("SM-T"), system("SM", output_dim=4)
    transfer(model, OLD, source, OLD)  # each of its tables gets the one that was tied
    tokens = np.array([[4, 9, 17]])
    np.testing.assert_allclose(model.log_probs(tokens), source.log_probs(tokens), atol=1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_an_output_of_another_class_keeps_its_weights(tied):
    """Tests both directions. The tables of a tied output come with the input."""

    def spelled(seed):
        body = transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2, output_dim=4)
        output = CharLSTMSoftmax(OLD.words, units=3, char_dim=2)
        return randomize(LanguageModel(WordEmbedding(20, 4), body, output), seed)

    softmax = randomize(system("SM-T" if tied else "SM", output_dim=4), seed=6)
    for model, source in ((spelled(5), softmax), (softmax, spelled(7))):
        own = {id(weight) for weight in model.word_output.weights} - {id(weight) for weight in model.word_input.weights}
        fresh = {id(weight): numpy(weight.value).copy() for weight in model.weights}
        assert transfer(model, OLD, source, OLD) == 20
        for weight in model.weights:
            assert np.array_equal(numpy(weight.value), fresh[id(weight)]) == (id(weight) in own)
        for part, its in ((model.word_input, source.word_input), (model.body, source.body)):
            for new, old in zip(part.weights, its.weights, strict=True):
                np.testing.assert_array_equal(numpy(new.value), numpy(old.value))


def test_what_acts_in_training_only_may_differ():
    source = language_model()
    other = language_model(dropout=Dropout(0.3, attention=0.2, tail=0.1), dtype="mixed_bfloat16")
    other.body.trainable = False
    assert transfer(other, OLD, source, OLD) == 20
    recurrent = [
        model_of(
            LSTMDecoder(1, 6, 8, dropout=(*[rate] * 3, rate > 0), penalties=(rate, rate), weight_dropout=rate),
            SampledSoftmax(20, num_samples=samples, loss=loss),
        )
        for rate, samples, loss in ((0.0, 3, "nce"), (0.5, 4, "importance_sampling"))
    ]
    assert transfer(*(item for model in recurrent for item in (model, OLD))) == 20


FLAGS = "pass its flags. The"
REFUSED = [  # function that makes both models, arguments of the model and of its source, and the message
    (system, {"name": "SM-T"}, {"name": "SM", "output_dim": 4}, "The word_output is tied to the input, and not tied"),
    (language_model, {"dim": 4}, {}, f"{FLAGS} dimensions of the word vectors of .*, and .*"),
    (language_model, {"num_blocks": 2}, {}, "number of weights is .*, and .*"),
    (language_model, {"ffn_dim": 16}, {}, "The shape of .* is .*, and .*"),
    (language_model, {"num_heads": 4}, {}, f"{FLAGS} setting body.blocks.0.mixer.num_heads is 4, and 2"),
    # The tail has one dimension for both factors.
    (
        language_model,
        {"dim": 4, "factor": 3},
        {"dim": 4, "factor": 4},
        f"{FLAGS} setting word_input.factor is 3, and 4",
    ),
    (model_of, {"first_position": 0}, {}, f"{FLAGS} setting body.positions.first_position is 0, and 2"),
    (blocks, {"activation": "gelu"}, {}, "The setting body.blocks.0.activation is gelu, and relu"),
    (blocks, {"window": 3}, {}, "The setting body.blocks.0.mixer.window is 3, and None"),
    (blocks, {"scale_input": False}, {}, "The setting body.scale_input is False, and True"),
    (
        system,
        {"name": "CNN", "zero_padding": False},
        {"name": "CNN"},
        "setting word_input.zero_padding is False, and True",
    ),
]


@pytest.mark.parametrize("make, arguments, arguments_of_source, message", REFUSED)
def test_models_of_other_sizes_or_another_meaning_are_refused(make, arguments, arguments_of_source, message):
    model, source = make(**arguments), make(**arguments_of_source)
    refused(transfer, model, OLD, source, OLD, match=f"{message} in the source")


def test_parts_of_other_classes_are_refused_before_any_word_is_copied():
    frozen = AdaptiveSoftmax(20, (5,), trainable=False)
    for model, source, match in (
        (model_of(ToyBody(8)), model_of(), "The body is ToyBody, and TransformerDecoder in the source"),
        (language_model(), system("CNN"), "The word_input is AdaptiveEmbedding, and CharCNN in the source"),
        (
            model_of(word_output=frozen),
            model_of(word_output=CharLSTMSoftmax(OLD.words, units=3)),
            "freeze input and body only. .* a frozen AdaptiveSoftmax, and a CharL",
        ),
    ):
        before = model.get_weights()
        refused(transfer, model, OLD, randomize(source, seed=5), OLD, match=match)
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(new, old)
