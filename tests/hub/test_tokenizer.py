from collections import Counter

import numpy as np
import pytest

from keras_adaptive.data import TOKENIZERS, Subwords, TextCodec, Vocabulary
from tests.support.refusals import refused
from tests.support.text import NASTY

keras_hub = pytest.importorskip("keras_hub")

from keras_adaptive.hub import AdaptiveTokenizer  # noqa: E402

pytestmark = pytest.mark.once

UNITS = [*TOKENIZERS, "sub-word"]


def codec_of(name):
    """A codec that knows half of the words of the hard lines, or all of their pieces."""
    if name == "sub-word":
        counts = Counter(word for line in NASTY for word in line.split())
        subwords = Subwords.learn({word: 3 * count for word, count in counts.items()}, merges=100)
        return TextCodec(subwords.vocabulary(counts), "whitespace", subwords)
    words = [word for line in NASTY for word in TOKENIZERS[name](line)]
    return TextCodec(Vocabulary.from_counts(Counter(words[::2])), name)


@pytest.fixture(scope="module", params=UNITS)
def tokenizer(request):
    return AdaptiveTokenizer(codec_of(request.param))


def test_ids_are_those_of_training_in_python_and_in_a_graph(tokenizer):
    tf = pytest.importorskip("tensorflow")
    codec = tokenizer.codec
    expected = [codec.encode(codec.tokenize(line)).tolist() for line in NASTY]
    assert any(ids for ids in expected)
    assert tokenizer(NASTY) == tokenizer(tf.constant(NASTY)) == expected
    for line, ids in zip(NASTY[1:], expected[1:]):
        one = tokenizer(line)
        assert one.dtype == "int32" and one.tolist() == ids

    @tf.function(autograph=False)
    def in_a_graph(lines):
        ids = tokenizer(lines)
        return ids, tokenizer.detokenize(ids)

    ids, texts = in_a_graph(tf.constant(NASTY))
    assert ids.to_list() == expected and ids.dtype == tf.int32
    assert [text.decode() for text in texts.numpy()] == tokenizer.detokenize(expected)


def test_strings_of_a_dataset():
    tf = pytest.importorskip("tensorflow")
    tokenizer, lines = AdaptiveTokenizer(codec_of("whitespace")), tf.data.Dataset.from_tensor_slices(NASTY)
    assert [ids.numpy().tolist() for ids in lines.map(tokenizer)] == tokenizer(NASTY)


def test_the_text_of_ids(tokenizer):
    text = "the cat"
    if tokenizer.codec.unit in ("sub-word", "byte"):
        assert tokenizer.detokenize(tokenizer(text)) == text
    ids = [tokenizer(text).tolist(), [2], []]
    assert tokenizer.detokenize(ids) == [tokenizer.detokenize(np.array(one, "int32")) for one in ids]
    assert tokenizer.detokenize([2, 2]) == "\n\n"


def test_the_vocabulary(tokenizer):
    vocabulary = tokenizer.codec.vocabulary
    assert tokenizer.get_vocabulary() == vocabulary.words and tokenizer.vocabulary_size() == len(vocabulary)
    assert tokenizer.id_to_token(5) == vocabulary.words[5] and tokenizer.token_to_id(vocabulary.words[5]) == 5
    assert (tokenizer.start_token_id, tokenizer.end_token_id, tokenizer.pad_token_id) == (2, 2, 1)
    assert sorted(tokenizer.special_token_ids) == [1, 2]
    refused(tokenizer.token_to_id, "never", match="`token` must be in the vocabulary. Received: token='never'")


def test_files_of_a_preset(tokenizer, tmp_path):
    tokenizer.save_to_preset(str(tmp_path))
    assert {path.name for path in (tmp_path / "assets/tokenizer").iterdir()} == set(tokenizer.file_assets)
    loaded = AdaptiveTokenizer.from_config(tokenizer.get_config())
    with pytest.raises(ValueError, match="has no vocabulary yet"):
        loaded("the cat")
    loaded.load_preset_assets(str(tmp_path))
    assert loaded(NASTY) == tokenizer(NASTY)
    (tmp_path / "assets/tokenizer/vocabulary.txt").write_text("other 1\n", encoding="utf-8")
    refused(loaded.load_preset_assets, str(tmp_path), match="vocabulary.txt is not the vocabulary")


def test_ids_are_those_of_keras_hub():
    """The lines are such as KerasHub keeps: it drops digits and text after a NUL, and splits special words."""
    codec = codec_of("sub-word")
    ids = {word: id for id, word in enumerate(codec.vocabulary.words)}
    merges = [" ".join(merge) for merge in codec.subwords.merges]
    other = keras_hub.tokenizers.BytePairTokenizer(ids, merges, add_prefix_space=True)
    lines = [" ".join(word for word in line.split() if word[0] != "<") for line in NASTY[2:]]
    tokenizer = AdaptiveTokenizer(codec)
    assert tokenizer(lines) == [list(row) for row in other(lines)]


def test_a_codec_for_words_splits_as_tensorflow_text():
    tf_text = pytest.importorskip("tensorflow_text")
    tokenizer, lines = AdaptiveTokenizer(codec_of("whitespace")), [line for line in NASTY if line]
    words = tf_text.WhitespaceTokenizer().tokenize(lines).to_list()
    assert tokenizer(lines) == [tokenizer.codec.encode([word.decode() for word in row]).tolist() for row in words]
