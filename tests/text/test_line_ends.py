"""One rule for the ends of lines, wherever a text is read."""

import io

import numpy as np
import pytest

from keras_adaptive.data import SPLITS, TextCodec, Vocabulary
from keras_adaptive.data.codecs.lines import split_lines
from keras_adaptive.evaluation import lengths
from keras_adaptive.export import GraphText
from keras_adaptive.files import read_text_lines
from keras_adaptive.text import TextBatches, TextModel, text_dataset
from tests.support.text import prepared
from tests.support.tiny import language_model
from trainers.page.served_run import ServedRun

pytestmark = pytest.mark.once

# What other programs take for the end of a line: Windows, old Macs, a double conversion, and Python's `splitlines`.
TEXT = "the cat sat\r\nthe\rdog \r ran\r\n\r\n\r\r\na\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\r\nthe end"
LINES = ["the cat sat", "the\rdog \r ran", "", "", "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g", "the end"]
UNITS = {
    "whitespace": {"tokenizer": "whitespace"},
    "words": {"tokenizer": "words"},
    "characters": {"tokenizer": "characters"},
    "ptb_characters": {"tokenizer": "ptb_characters"},
    "bytes": {"tokenizer": "bytes"},
    "sub-words": {"tokenizer": "words", "subwords": 4},
}


@pytest.fixture(scope="module", params=UNITS)
def corpus(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    return prepared(folder, f"{TEXT}\n", train=f"{TEXT}\r\n", test=f"{TEXT}\r", **UNITS[request.param])


@pytest.fixture
def expected(corpus):
    """The tokens of the text, of its lines alone, each with its end."""
    codec = TextCodec.load(corpus.data_dir)
    return [token for line in LINES for token in [*codec.tokenize_part(line), "</s>"]]


def test_a_text_has_the_same_lines_everywhere():
    assert split_lines(TEXT) == split_lines(f"{TEXT}\r") == LINES
    for end in ("", "\r", "\n", "\r\n", "\r\r\n"):
        assert list(read_text_lines(io.BytesIO(f"{TEXT}{end}".encode()))) == LINES


def test_tokens_of_prepared_text(corpus, expected):
    for split in SPLITS:
        assert corpus.vocabulary.decode(corpus.tokens(split)) == expected
    if corpus.metadata["tokenizer"] != "ptb_characters":  # whose files are no text
        size = len("\n".join(LINES).encode()) + 1
        assert {lengths(corpus, split)["byte"] for split in SPLITS} == {size}


def test_tokens_of_text_in_python(corpus, expected, monkeypatch):
    codec = TextCodec.load(corpus.data_dir)
    model = language_model(vocabulary_size=len(codec.vocabulary), cutoffs=())
    text = TextModel(model, codec)
    assert [*codec.tokenize(TEXT), "</s>"] == expected
    ends = ("", "\r", "\n", "\r\n")
    records = text.score([f"{TEXT}{end}" for end in ends])
    assert [record["tokens"] for record in records] == [expected] * len(ends)
    run = ServedRun("runs/none", "none")
    monkeypatch.setattr(ServedRun, "text_model", text)
    for end in ends:
        lines = run.lines_of(f"{TEXT}{end}")
        assert [token for line in lines for token in [*codec.tokenize(line), "</s>"]] == expected
    ids = codec.encode(expected)
    how = {"length": len(ids), "batch_size": 1, "seed": 1, "shuffle": False}
    for lines in (LINES, TEXT.split("\n"), [TEXT], io.StringIO(TEXT, newline="\n")):
        np.testing.assert_array_equal(TextBatches(lines, codec, **how)[0][1][0], ids)


def test_tokens_of_text_in_a_graph(corpus, expected):
    import tensorflow as tf

    codec = TextCodec.load(corpus.data_dir)
    text = GraphText(codec.vocabulary, codec.tokenizer, codec.subwords)
    some = [TEXT, "", "\n", f"{TEXT}\r", "\r", "\n\nthe", "the"]
    tokens, ids = text.encode(tf.constant(some))
    assert [[token.decode() for token in row] for row in tokens.to_list()] == list(map(codec.tokenize, some))
    assert ids.to_list() == [codec.encode(codec.tokenize(one)).tolist() for one in some]
    assert text.encode(tf.constant([], tf.string))[1].to_list() == []
    targets = codec.encode(expected)
    lines = [f"{LINES[0]}\r\n", LINES[1], *TEXT.split("\n", 2)[2:]]  # with its end, without it, and several at once
    batches = text_dataset(tf.data.Dataset.from_tensor_slices(lines), codec, len(targets), 1)
    np.testing.assert_array_equal(next(batches.as_numpy_iterator())[1][0], targets)


def test_a_chunk_of_a_line_keeps_its_carriage_return():
    codec = TextCodec(Vocabulary.from_counts({"a": 1, "\r": 1}), "characters")
    assert codec.tokenize_part("a\r") == ["a", "\r"] and codec.tokenize("a\r") == ["a"]
