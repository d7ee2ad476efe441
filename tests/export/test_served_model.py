"""The graphs of a `ServedModel` that is not saved."""

import numpy as np
import pytest

from keras_adaptive.data import EOS, TOKENIZERS, Subwords, TextCodec, Vocabulary, detokenize_subwords
from keras_adaptive.data.codecs.subwords import piece_bytes
from keras_adaptive.export import export_saved_model
from keras_adaptive.export.graph_text import GraphText
from keras_adaptive.export.saved_model import in_dtype, with_output_for_inference
from keras_adaptive.export.served_model import ServedModel
from keras_adaptive.layers import (
    AdaptiveSoftmax,
    CharCNN,
    CharCNNSoftmax,
    CharLSTMSoftmax,
    LSTMDecoder,
    NPLMDecoder,
    QRNNDecoder,
    SampledSoftmax,
    WordEmbedding,
)
from keras_adaptive.models import LanguageModel, hybrid_transformer, shortformer, transformer_xl
from keras_adaptive.special_words import UNK
from keras_adaptive.text import TextModel
from tests.support.backends import BACKEND
from tests.support.tiny import WORDS as TINY_WORDS
from tests.support.tiny import language_model, system
from tests.support.weights import randomize

pytestmark = pytest.mark.usefixtures("one_number_of_slots")
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="SavedModels are made on TensorFlow")


def trace(model, text, name):
    """A function of a ServedModel that is not saved."""
    return ServedModel(model, text, max_length=80).functions()[name]


@on_tensorflow
@pytest.mark.parametrize("characters", [{"word_markers": True}, {"zero_padding": False}], ids=str)
def test_words_enter_by_their_bytes(characters):
    vocabulary = Vocabulary(TINY_WORDS, [0] * len(TINY_WORDS))
    model = system("CNN", **characters)
    score, log_probs = (trace(model, GraphText(vocabulary), name) for name in ("score", "log_probs"))
    tokens, extra = (
        "word3 naïve word5 <unk> <s> </s> longer_than_it_reads <pad> </s>".split(),
        ["naïve", "longer_than_it_reads"],
    )
    inputs, targets = (
        np.append(2, vocabulary.encode(tokens, extra)[:-1]).astype("int32")[None],
        vocabulary.encode(tokens),
    )
    scores = score([" ".join(tokens[:-1]), "word1"])
    np.testing.assert_allclose(
        -scores["log_probs"][0], model.for_inference(extra).nll(inputs, targets[None])[0], atol=1e-5
    )
    assert scores["unknown"][0].numpy().tolist() == [word in extra for word in tokens]
    ids = np.arange(20, dtype="int32")[None]
    np.testing.assert_allclose(log_probs(ids)["log_probs"], model.log_probs(ids), atol=1e-5)


def test_vectors_of_an_output_are_computed_once_and_an_input_reads_bytes():
    output = CharCNNSoftmax(TINY_WORDS, 4, char_dim=4, filters=(3, 4), max_bytes=16)
    model = system("CNN", output_dim=4)
    assert with_output_for_inference(model) is model
    model = with_output_for_inference(LanguageModel(model.word_input, model.body, output))
    assert (type(model.word_input), type(model.word_output)) == (CharCNN, AdaptiveSoftmax)


@on_tensorflow
@pytest.mark.parametrize("sampled, dtype", [(False, "float32"), (False, "bfloat16"), (True, "float32")])
def test_words_that_input_and_output_share_with_biases(sampled, dtype):
    model, vocabulary = system("ASM-T"), Vocabulary(TINY_WORDS, [0] * len(TINY_WORDS))
    if sampled:
        output = SampledSoftmax(len(TINY_WORDS), 4, tied_to=model.word_input)
        model = randomize(LanguageModel(model.word_input, model.body, output))
    functions = [trace(in_dtype(model, dtype), GraphText(vocabulary), name) for name in ("score", "next_words")]
    tokens = ["word3", "word5", "word1", "</s>"]
    targets = np.array([vocabulary.encode(tokens)])
    inputs = np.append(2, targets[0, :-1]).astype("int32")[None]
    score, next_words = functions[0]([" ".join(tokens[:-1])]), functions[1]([" ".join(tokens[:-1])], 3)
    tolerance = {"atol": 1e-5 if dtype == "float32" else 0.2, "rtol": 0}
    np.testing.assert_allclose(-score["log_probs"], model.nll(inputs, targets), **tolerance)
    log_probs = model.log_probs(inputs)[0, -1]
    best = vocabulary.encode([word.decode() for word in next_words["words"].numpy()[0]])
    np.testing.assert_allclose(np.log(next_words["probabilities"][0]), log_probs[best], **tolerance)
    assert dtype != "float32" or best.tolist() == np.argsort(-log_probs)[:3].tolist()


@on_tensorflow
def test_pieces_of_words():
    counts = {"the": 9, "them": 4, "naïve": 3, "日本": 2, "cat's": 2}
    subwords = Subwords.learn(counts, merges=12)
    vocabulary = subwords.vocabulary(counts)
    model = language_model(vocabulary_size=len(vocabulary), cutoffs=(50,))
    text = GraphText(vocabulary, "words", subwords)
    words = ["them", "!!", "naïve", "日", "cat's", "</s>"]
    pieces = [piece for parts in subwords.pieces(words) for piece in parts]
    ids = np.append(2, vocabulary.encode(pieces)).astype("int32")[None]
    (nll,) = model.nll(ids[:, :-1], ids[:, 1:])
    score = trace(model, text, "score")
    scores = score([" them!! naïve 日 cat's", ""])
    assert [piece.decode() for piece in scores["tokens"][0].numpy()] == pieces and len(pieces) > len(words)
    assert scores["words"].numpy().tolist() == [6, 1]
    np.testing.assert_allclose(scores["log_probs"][0], -nll, atol=1e-5)
    np.testing.assert_allclose(scores["perplexity"][0], np.exp(nll.sum() / 6), rtol=1e-4)
    assert_long_lines_are_refused_before_they_are_cut(score, max(len(piece_bytes(word)) for word in vocabulary.words))
    ids = np.random.default_rng(0).integers(0, len(vocabulary), (20, 30)).astype("int32")
    for row, line in zip(ids, text.detokenize(ids).numpy()):
        assert line.decode() == "".join(detokenize_subwords(vocabulary.decode(row)))


def assert_long_lines_are_refused_before_they_are_cut(score, longest):
    """The error tells the fewest pieces that a line of such words can have, with its `</s>`."""
    import tensorflow as tf

    for line, fewest in (
        ("a" * 500_000 + " b" * 250_000, 250_000 + 1 + 500_000 // longest),
        (" b" * 80, 80),
        ("a" * 80 * longest, 81),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"have 80 tokens, .*Received:\] \[{fewest + 1}\]"):
            score(["the", line])


@on_tensorflow
@pytest.mark.parametrize("tokenizer", ["characters", "bytes"])
def test_characters_and_bytes(tokenizer):
    line = "the naïve  cat 日"
    counts = dict.fromkeys(TOKENIZERS[tokenizer](line), 1)
    text = GraphText(Vocabulary.from_counts(counts), tokenizer)
    _, ids = text.encode([line, ""])
    assert ids.to_list()[1] == [] and min(ids.to_list()[0]) > 3
    assert text.detokenize(ids[:1]).numpy()[0].decode() == line
    assert text.detokenize([[*ids.to_list()[0], EOS]]).numpy()[0].decode() == f"{line}\n"


SIZES = {"num_blocks": 2, "dim": 4, "ffn_dim": 5, "num_heads": 2}


def plain(words):
    return AdaptiveSoftmax(len(words), ())


def adaptive(words):
    return AdaptiveSoftmax(len(words), (6,))


def sampled(words):
    return SampledSoftmax(len(words), num_samples=3)


def char_cnn(words):
    return CharCNNSoftmax(words, 3, char_dim=3, filters=(3, 4), max_bytes=6)


def char_lstm(words):
    return CharLSTMSoftmax(words, units=3, char_dim=3, max_bytes=6)


@on_tensorflow
@pytest.mark.usefixtures("eager_predictions")
@pytest.mark.parametrize(
    "body, output, tokenizer",
    [
        (LSTMDecoder(2, 5, 4), sampled, "characters"),
        (QRNNDecoder(2, 5, 4, window=2), plain, "bytes"),
        (NPLMDecoder(2, 5, num_local=2, num_global=1, global_window=3), adaptive, "characters"),
        (hybrid_transformer(attention_window=3, **SIZES), char_cnn, "characters"),
        (shortformer(memory_length=3, segment_length=2, **SIZES), char_lstm, "characters"),
        (transformer_xl(memory_length=3, **SIZES), adaptive, "bytes"),
    ],
)
def test_other_bodies_and_outputs_read_lines_that_may_be_empty(body, output, tokenizer):
    lines = ["", "ab"]
    vocabulary = Vocabulary.from_counts(dict.fromkeys(TOKENIZERS[tokenizer]("abcdefghijk "), 1))
    model = randomize(LanguageModel(WordEmbedding(len(vocabulary), 4), body, output(vocabulary.words)))
    score, generate = (trace(model, GraphText(vocabulary, tokenizer), name) for name in ("score", "generate"))
    ids = [np.array([EOS, *vocabulary.encode(TOKENIZERS[tokenizer](line))], "int32") for line in lines]
    scores = score(lines)
    for row, prompt in enumerate(ids):
        nll = model.nll(prompt[None], np.append(prompt[1:], EOS)[None])
        np.testing.assert_allclose(scores["log_probs"][row, : len(prompt)], -nll[0], atol=1e-5)
    greedy = {"length": 6, "temperature": 0.0, "top_k": 0, "seed": 1}
    expected = [vocabulary.decode(new) for new in model.generate(ids, 6, 0, forbid=[UNK])]
    for some in (slice(None), slice(1), slice(1, None)):  # the shortest line is empty, all are, none is
        tokens = generate(lines[some], **greedy)["tokens"].numpy()
        assert [[token.decode() for token in row] for row in tokens] == expected[some]


@on_tensorflow
@pytest.mark.usefixtures("eager_predictions")
@pytest.mark.parametrize("characters", [False, True], ids=["words", "CNN"])
def test_long_lines_are_read_in_windows(characters):
    """The windows equal those in Python and do not depend on the other lines; a longer text is continued."""
    vocabulary, model = Vocabulary(TINY_WORDS, [0] * 20), system("CNN") if characters else language_model()
    model.trained_length = 8
    text, served = TextModel(model, TextCodec(vocabulary)), ServedModel(model, GraphText(vocabulary), max_length=80)
    functions = served.functions()
    lines = [" ".join(f"word{place * 7 % 16:x}" for place in range(length)) for length in (0, 3, 7, 8, 23)]
    scores = functions["score"](lines)
    for row, (line, record) in enumerate(zip(lines, text.score(lines))):
        found = scores["log_probs"].numpy()[row, : len(record["tokens"])]
        np.testing.assert_allclose(found, record["log_probs"], atol=1e-5)
        assert scores["reading"].numpy()[row].decode() == record["reading"]
        best = text.next_words(line, k=3)
        together = functions["next_words"](lines, 3)
        assert [word.decode() for word in together["words"].numpy()[row]] == [word for word, _ in best]
        np.testing.assert_allclose(together["probabilities"][row], [value for _, value in best], atol=1e-5)
    assert record["reading"] == "in windows of 8 tokens, 4 of them context"
    texts = functions["generate"](lines, 20, 0.0, 0, 1)["text"].numpy()
    assert [one.decode() for one in texts] == text.generate(lines, 20, temperature=0)
    ids = vocabulary.encode(lines[-1].split())[None]
    log_probs = functions["log_probs"](ids)["log_probs"][0]
    for place in range(ids.shape[1]):
        seen = ids[:, max(place // 4 * 4 - 4, 0) : place + 1]
        np.testing.assert_allclose(log_probs[place], model.log_probs(seen)[0, -1], atol=1e-5)


@pytest.mark.skipif(BACKEND == "tensorflow", reason="it is what this backend can do")
def test_another_backend_is_refused(tmp_path):
    with pytest.raises(ValueError, match="set KERAS_BACKEND=tensorflow and load the model there"):
        export_saved_model(language_model(), Vocabulary.from_counts({}), tmp_path / "1")
