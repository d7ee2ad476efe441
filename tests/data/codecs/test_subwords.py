import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keras_adaptive.data import TOKENIZERS, UNITS, Subwords, begins_word, detokenize_subwords
from keras_adaptive.data.codecs.vocabulary import SPECIAL_WORDS
from tests.support.programs import run
from tests.support.refusals import refused
from tests.support.text import NASTY

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def counts():
    return Counter(word for line in NASTY for word in 3 * line.split())


@pytest.fixture(scope="module")
def subwords(counts):
    return Subwords.learn(counts, merges=200)


def learn_by_hand(counts, merges):
    """The published algorithm, for words of letters, none doubled: merge the most frequent pair, again and again."""
    words = {word: list("Ġ" + word) for word in counts}
    for _ in range(merges):
        pairs = Counter()
        for word, parts in words.items():
            for pair in zip(parts, parts[1:]):
                pairs[pair] += counts[word]
        (left, right), best = max(pairs.items(), key=lambda item: item[1])
        assert sorted(pairs.values())[-2:] != [best, best], "a tie"
        yield left, right
        for parts in words.values():
            for i in range(len(parts) - 1, 0, -1):
                if parts[i - 1 : i + 1] == [left, right]:
                    parts[i - 1 : i + 1] = [left + right]


def test_merges_are_those_of_the_published_algorithm():
    random = np.random.default_rng(1)
    words = {"".join(random.permutation(list("abcde"))[: random.integers(2, 6)]) for _ in range(300)}
    counts = {word: int(random.integers(1, 10_000)) for word in sorted(words)}
    assert Subwords.learn(counts, 25).merges == list(learn_by_hand(counts, 25))


@pytest.mark.processes
def test_merges_do_not_depend_on_the_process_or_the_order(counts, subwords):
    again = Subwords.learn(dict(sorted(counts.items())), merges=200)
    assert again.sha256 == subwords.sha256
    program = "import sys, types; package = sys.modules['keras_adaptive'] = types.ModuleType('keras_adaptive'); "
    program += "package.__path__ = ['keras_adaptive']; from keras_adaptive.data.codecs.subwords import Subwords; "
    done = run("-c", program + f"print(Subwords.learn({dict(counts)!r}, 200).sha256)")  # it imports no Keras
    assert done.stdout.split() == [subwords.sha256], done.stderr


def test_a_small_text_has_few_merges_and_special_words_none():
    merges = Subwords.learn({"ab": 2, "cd": 1, "<unk>": 1000}, 100).merges
    assert ["".join(merge) for merge in merges] in (["Ġa", "Ġab"], ["ab", "Ġab"])
    assert Subwords.learn({"<unk>": 1000, "</s>": 1000}, 100).merges == []


def test_a_long_word_of_many_occurrences_counts_them_all():
    assert Subwords.learn({"ab": 2500, "cd": 2501}, 1).merges[0] in [("Ġ", "c"), ("c", "d")]
    assert Subwords.learn({"ab": 2501, "cd": 2500}, 1).merges[0] in [("Ġ", "a"), ("a", "b")]


@pytest.mark.parametrize("line", NASTY)
def test_pieces_are_the_text(subwords, line):
    words = line.split()
    pieces = [piece for parts in subwords.pieces(words) for piece in parts]
    assert "".join(detokenize_subwords(pieces)).replace("\n", " </s>") == "".join(f" {word}" for word in words)
    assert sum(map(begins_word, pieces)) == len(words)


@given(text=st.text())
@example(text="६ १६ ६a \x00 \x1f \x85")
def test_pieces_of_any_text_are_the_text(text):
    subwords = Subwords([("Ġ", "a"), ("Ã", "©"), ("a", "a")])
    for name in set(TOKENIZERS) - set(UNITS):
        words = TOKENIZERS[name](text)
        for word, pieces in zip(words, subwords.pieces(words), strict=True):
            assert "".join(detokenize_subwords(pieces)) == f" {word}", name
            assert [begins_word(piece) for piece in pieces] == [True] + [False] * (len(pieces) - 1)


def test_special_words_are_never_cut(subwords):
    assert list(subwords.pieces(SPECIAL_WORDS)) == [[word] for word in SPECIAL_WORDS]
    (pieces,) = subwords.pieces(["x<unk>"])
    assert "<unk>" not in pieces and len(pieces) > 1


def test_many_words_are_cut_as_one_by_one(subwords, counts, monkeypatch):
    together = list(subwords.pieces(counts))
    monkeypatch.setattr("keras_adaptive.data.codecs.subwords._BATCH", 7)
    assert list(subwords.pieces(counts)) == together == [next(subwords.pieces([word])) for word in counts]


def test_the_vocabulary_counts_the_pieces_and_knows_every_byte(subwords, counts):
    vocabulary = subwords.vocabulary(counts)
    pieces = Counter(p for word, parts in zip(counts, subwords.pieces(counts)) for p in parts * counts[word])
    assert dict(zip(vocabulary.words, vocabulary.counts.tolist())) == dict.fromkeys(vocabulary.words, 0) | pieces
    assert len(vocabulary) % 8 == 0 and vocabulary.words[:4] == list(SPECIAL_WORDS)
    assert (vocabulary.counts[4:-1] >= vocabulary.counts[5:]).all()
    new = "".join(map(chr, range(0x21, 0x250)))
    assert not vocabulary.unknown(p for parts in subwords.pieces(new.split()) for p in parts)
    assert set(subwords.symbols) <= set(vocabulary.words) and len(subwords.symbols) > 256 + 150


def test_symbols_are_those_of_tokenizers():
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(Subwords([]).symbols) == sorted(ByteLevel.alphabet())


def test_text_streams_and_waits_for_whole_characters():
    pieces = ["Ġcaf", "Ã", "©", "</s>", "Ġ", "<unk>", "Ã", "Ġend", "â"]
    assert list(detokenize_subwords(pieces)) == [" caf", "", "é", "\n", " ", " <unk>", "", "\ufffd end", "", "\ufffd"]
    assert "".join(detokenize_subwords(["Ġ", "Ã", "</s>", "Ġa"])) == " \ufffd\n a"


def test_saved_merges_load(subwords, tmp_path):
    subwords.save(tmp_path / "merges.txt")
    loaded = Subwords.load(tmp_path / "merges.txt")
    assert loaded.merges == subwords.merges and loaded.sha256 == subwords.sha256
    assert Subwords(subwords.merges[:-1]).sha256 != subwords.sha256


@pytest.mark.parametrize(
    "text", ["a b\nab d e\n", "a b\nabc\n", "a b\n\n", "a b\nxy z\n", "a b\na  b\n", "a b\n\xff b\n", "a b\r\na b\n"]
)
def test_bad_merges_are_refused(tmp_path, text):
    (tmp_path / "merges.txt").write_bytes(text.encode("latin-1"))
    match = "merges.txt is not a file of merges, or is damaged .Merge [12] must have two pieces"
    refused(Subwords.load, tmp_path / "merges.txt", match=match)


def test_only_words_are_cut_by_a_merge_at_least(subwords):
    for words in ([""], ["the", "a b"], ["a\n"], ["\u00a0"]):
        refused(lambda words=words: list(subwords.pieces(words)), match="`words` must be single words. Received:")
    refused(Subwords.learn, {"a": 2}, 0, match="`merges` must be positive. Received: merges=0")


def test_a_missing_package_is_named_with_the_command(subwords, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for use in (lambda: Subwords.learn({"a": 2}), lambda: list(Subwords(subwords.merges).pieces(["a"]))):
        refused(use, error=ModuleNotFoundError, match="pip install tokenizers")
