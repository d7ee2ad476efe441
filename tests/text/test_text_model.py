"""Strings in and strings out: what `TextModel` returns is what the model computes of ids."""

import json
import math
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_adaptive
from keras_adaptive.data import EOS, SPECIAL_WORDS, Subwords, TextCodec, Vocabulary
from keras_adaptive.data.codecs.characters import SYMBOLS
from keras_adaptive.models import LanguageModel, Reading
from keras_adaptive.models.prediction import Prediction
from keras_adaptive.text import TextModel, nearest, scoring
from tests.support.refusals import refused
from tests.support.tiny import WORDS, language_model, system

pytestmark = [pytest.mark.usefixtures("eager_predictions"), pytest.mark.once]


@pytest.fixture
def text():
    return TextModel(language_model(), TextCodec(Vocabulary(WORDS, range(len(WORDS), 0, -1))))


def log_probs_of(text, tokens):
    ids = text.codec.encode(tokens)
    values = text.model.log_probs(np.append(EOS, ids[:-1])[None])[0]
    return values, values[np.arange(len(ids)), ids]


@pytest.mark.each_backend
def test_scores_of_a_text_are_those_of_its_tokens(text):
    record = text.score("word3 dog\n\nword1\r\n", alternatives=3)
    assert record["tokens"] == ["word3", "dog", "</s>", "</s>", "word1", "</s>"] and record["unknown"] == ["dog"]
    values, expected = log_probs_of(text, record["tokens"])
    np.testing.assert_allclose(record["log_probs"], expected, atol=1e-5)
    assert record["ranks"] == [1 + int((row > value).sum()) for row, value in zip(values, expected)]
    assert record["bands"] == [int(id >= 5) for id in text.codec.encode(record["tokens"])]
    assert record["perplexity"] == pytest.approx(math.exp(-expected.mean()), rel=1e-5)
    np.testing.assert_allclose(record["entropies"], -(np.exp(values) * values).sum(-1), atol=1e-5)
    for row, best in zip(values, record["alternatives"]):
        assert [word for word, _ in best] == [WORDS[id] for id in np.argsort(-row)[:3]]
        np.testing.assert_allclose([value for _, value in best], np.sort(np.exp(row))[::-1][:3], atol=1e-5)


def test_texts_are_scored_together_as_alone(text):
    texts = ["word1 word2", "", "word3", "word4 word5 word6"]
    alone, together = [text.score(one) for one in texts], text.score(texts, batch_size=3)
    for one, other in zip(alone, together, strict=True):
        assert one["tokens"] == other["tokens"] and one["log_probs"] == pytest.approx(other["log_probs"], abs=2e-5)
    log_prob = sum(one["log_prob"] for one in alone)
    assert text.perplexity(texts) == pytest.approx(math.exp(-log_prob / 10), rel=1e-4)
    assert text.perplexity(texts[0]) == pytest.approx(alone[0]["perplexity"], rel=1e-6)
    assert text.score([]) == text.generate([]) == []


def test_a_text_that_is_too_long_for_attention_is_scored_in_windows(text, monkeypatch):
    monkeypatch.setattr(text, "reading", Reading(8, 4))
    monkeypatch.setattr(scoring, "SEGMENT", 4)
    monkeypatch.setattr(scoring, "TOKENS", 8)
    words, done = [f"word{i % 9}" for i in range(17)], []
    record = text.score(" ".join(words))
    ids = np.append(EOS, text.codec.encode(record["tokens"]))
    for place, value in enumerate(record["log_probs"]):
        window = ids[max(place // 4 * 4 - 4, 0) : place + 1]
        assert value == pytest.approx(text.model.log_probs(window[None])[0, -1, ids[place + 1]], abs=1e-5)
    assert record["reading"] == "in windows of 8 tokens, 4 of them context"
    list(text.score_tokens([record["tokens"]], reporter=lambda: lambda *counts: done.append(counts)))
    assert done == [(8, 18), (12, 18), (16, 18), (18, 18)]


def test_lines_of_any_length_need_three_programs(text, monkeypatch):
    programs, measured = set(), Prediction._measured

    def recorded(model, name, measure, pairs, state, keys=False):
        pairs, sizes = list(pairs), [tuple(part.shape) for part in keras.tree.flatten(state)]
        programs.update((tokens.shape, *sizes) for tokens, _ in pairs)
        return measured(model, name, measure, pairs, state, keys)

    monkeypatch.setattr(Prediction, "_measured", recorded)
    for words in (0, 3, 31, 32, 63, 64, 150, 511):
        text.score("word1 " * words)
    assert {tokens for tokens, *_ in programs} == {(1, 32), (1, 64)} and len(programs) == 3


@pytest.mark.parametrize("prompt", ["", "word1 word2", "word1\nword3 dog " * 30])
@pytest.mark.each_backend
def test_the_next_words_are_the_most_probable_ones(text, prompt, monkeypatch):
    monkeypatch.setattr(text, "reading", Reading(16, 8))
    lines = [line.split() for line in prompt.split("\n")]
    tokens = [EOS, *text.codec.encode([token for line in lines for token in (*line, "</s>")][:-1])]
    expected = np.exp(text.model.log_probs(np.array(tokens[max((len(tokens) - 1) // 8 * 8 - 8, 0) :])[None])[0, -1])
    found = text.next_words(prompt, k=4)
    assert [word for word, _ in found] == [WORDS[id] for id in np.argsort(-expected)[:4]]
    np.testing.assert_allclose([value for _, value in found], np.sort(expected)[::-1][:4], atol=1e-5)


@pytest.mark.once
def test_next_words_that_begin_with_typed_letters(text):
    every = text.next_words("word1", k=len(text.vocabulary))
    expected = [pair for pair in every if pair[0].startswith("word")]
    assert text.next_words("word1", 3, prefix="word") == expected[:3] and len(expected) > 3
    assert text.next_words("word1", prefix="nothing begins so") == []


@pytest.mark.each_backend
def test_one_seed_gives_one_text_whichever_way_it_comes(text):
    how = {"length": 6, "top_k": 9, "top_p": 0.99, "seed": 3}
    whole = text.generate("word1", **how)
    pairs = list(text.stream("word1", **how))
    spaced = "".join(f" {token}".replace(" </s>", "\n") for token, _ in pairs)
    assert spaced.replace("\n ", "\n") == "".join(piece for _, piece in pairs)
    assert "".join(piece for _, piece in pairs) == whole == text.generate(["word1"], **how)[0]
    stop = pairs[2][0]
    ended = text.generate("word1", **how, stop=stop)
    assert whole.startswith(ended) and ended.split()[-1:] == [stop] * (stop != "</s>")
    assert len(ended) < len(whole)


def test_what_precedes_a_text_is_read_and_not_scored(text):
    whole = text.score("word1 word2 \nword3 cat word4")
    part = text.score("word3 cat word4", context="word1 word2 \n")
    assert part["tokens"] == whole["tokens"][3:] == ["word3", "cat", "word4", "</s>"]
    np.testing.assert_allclose(part["log_probs"], whole["log_probs"][3:], atol=1e-5)
    assert part["words"] == 4 and part["log_prob"] == pytest.approx(sum(whole["log_probs"][3:]), abs=1e-4)
    open_end = text.score(["word3 cat", "word4"], end=False)
    assert [one["tokens"] for one in open_end] == [["word3", "cat"], ["word4"]]
    refused(text.score, "", end=False, match="A text must have a token to score")


def test_surprisals_are_in_bits_and_by_word(text):
    record, counts = text.score("word1 dog"), text.vocabulary.counts
    rows = text.surprisals(["word1 dog", "word1"], end=True)
    assert [(row["sentence"], row["position"], row["word"]) for row in rows] == [
        *((1, 1, "word1"), (1, 2, "dog"), (1, 3, "</s>"), (2, 1, "word1"), (2, 2, "</s>"))
    ]
    np.testing.assert_allclose(
        [row["surprisal"] for row in rows[:3]], -np.array(record["log_probs"]) / np.log(2), atol=1e-5
    )
    assert [row["rank"] for row in rows[:3]] == record["ranks"]
    expected = np.log(counts[text.codec.encode(["word1"])[0]] / counts.sum())
    assert rows[0]["log_frequency"] == pytest.approx(expected, abs=1e-6)


def test_unknown_words_are_not_generated_unless_asked_for(text):
    plain = text.generate([""] * 200, 10, seed=1, forbid=[])
    assert any("<unk>" in one for one in plain)
    assert not any("<unk>" in one for one in text.generate([""] * 200, 10, seed=1))
    assert "word1" not in text.generate("", 60, seed=1, forbid=["word1"]).split()


def test_several_continuations_of_a_prompt(text):
    one = text.generate("word1", 6, seed=1, num_return_sequences=3)
    assert len(one) == 3 and len(set(one)) > 1 and all(isinstance(each, str) for each in one)
    several = text.generate(["word1", "word2"], 6, seed=1, num_return_sequences=2)
    assert [len(each) for each in several] == [2, 2]


def test_no_line_begins_with_a_space(text):
    generated = text.generate(["", "word1", "word1\n"] * 20, 40, seed=1)
    assert any("\n" in one.strip("\n") for one in generated)
    assert not any("\n " in one for one in generated)
    assert not any(one.startswith(" ") for one in (*generated[::3], *generated[2::3]))
    assert all(one[0] in " \n" for one in generated[1::3])


def test_it_says_what_it_is(text):
    assert repr(text) == "<TextModel: AdaptiveEmbedding, TransformerDecoder, AdaptiveSoftmax; 20 words, 736 parameters>"


def test_a_continuation_goes_on_from_any_of_its_tokens(text):
    pairs = list(text.stream("word1", 5, 0))
    tokens = [token for token, _ in pairs]
    assert list(text.stream("word1", 2, 0, prefix=tokens[:3])) == pairs[3:]
    texts = text.generate(["word1", "word1 word2 word3"], 5, 0)
    assert texts == [text.generate(one, 5, 0) for one in ("word1", "word1 word2 word3")]


def test_line_ends_of_windows_are_no_characters():
    letters = [*SPECIAL_WORDS, *"ab\r", *"cdefghijklmno"[:13]]
    text = TextModel(language_model(), TextCodec(Vocabulary(letters, [0] * 20), "characters"))
    assert text.score("a\r\nb\r\n")["tokens"] == ["a", "</s>", "b", "</s>"]


def bytes_codec():
    symbols = [*SPECIAL_WORDS, *SYMBOLS]
    return TextCodec(Vocabulary(symbols, [0] * len(symbols)), "bytes")


def test_characters_come_with_the_last_of_their_bytes(monkeypatch):
    codec, letters = bytes_codec(), [SYMBOLS[byte] for byte in "né\n".encode()[:-1]]
    text = TextModel(language_model(vocabulary_size=260), codec)
    for tokens, prefix, expected in [
        ([*letters, "</s>"], [], ["n", "", "é", "\n"]),
        (letters[2:], letters[:2], ["é"]),
        (letters[1:2], letters[:1], ["", "\ufffd"]),
    ]:
        ids = codec.encode(tokens)
        monkeypatch.setattr(LanguageModel, "stream", lambda *_, ids=ids, **__: iter(ids[:, None]))
        pairs = list(text.stream("é", prefix=prefix))
        assert [piece for _, piece in pairs] == expected
        assert [token for token, _ in pairs] == [*tokens, *[""] * (len(expected) - len(tokens))]


def test_the_perplexity_of_pieces_is_per_word():
    subwords = Subwords.learn({"low": 5, "lower": 2, "slow": 2}, merges=3)
    vocabulary = subwords.vocabulary({"low": 5, "lower": 2, "slow": 2})
    text = TextModel(language_model(vocabulary_size=len(vocabulary)), TextCodec(vocabulary, "words", subwords))
    record = text.score("slower low")
    assert record["words"] == 3 < len(record["tokens"])
    assert "".join(text.codec.detokenize(record["tokens"])) == " slower low\n"
    assert record["perplexity"] == pytest.approx(math.exp(-record["log_prob"] / 3), rel=1e-9)
    rows = text.surprisals("slower low")
    assert [row["word"] for row in rows] == ["slower", "low", "</s>"] and rows[0]["rank"] is None
    assert sum(row["surprisal"] for row in rows) == pytest.approx(-record["log_prob"] / math.log(2), abs=1e-4)


@pytest.mark.each_backend
def test_unknown_words_are_read_by_their_bytes():
    model, codec = system("CNN"), TextCodec(Vocabulary(WORDS, range(len(WORDS), 0, -1)))
    closed, opened = TextModel(model, codec), TextModel(model, codec, open_vocabulary=True)
    lines = ["word1 dog word2", "word1 cat word2"]
    (one, other), (dog, cat) = closed.score(lines), opened.score(lines)
    assert one["log_probs"] == other["log_probs"] != dog["log_probs"]
    assert dog["log_probs"][:2] == pytest.approx(one["log_probs"][:2], abs=1e-5) and dog["unknown"] == ["dog"]
    assert abs(dog["log_probs"][2] - cat["log_probs"][2]) > 1e-6
    before = opened.model
    assert opened.next_words("word1 dog") != closed.next_words("word1 dog") and opened.model is before
    assert opened.neighbors(["wrod1", "word2"]) == [model.word_input.neighbors(word, 3) for word in ("wrod1", "word2")]
    assert closed.neighbors("wrod1", 2) == model.word_input.neighbors("wrod1", 2) and closed.reads_bytes


@pytest.mark.parametrize("chunk", [7, 20, 8192])
@pytest.mark.each_backend
def test_the_nearest_words_of_a_model_of_ids(text, monkeypatch, chunk):
    """The vectors are in bands, computed in chunks, with the projections."""
    monkeypatch.setattr(nearest, "CHUNK", chunk)
    vectors = keras.ops.convert_to_numpy(text.model.word_input(np.arange(20))).astype("float64")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    words = ["word1", "worde", "<unk>"]
    for word, pairs in zip(words, text.neighbors(words, 99), strict=True):
        cosines = vectors @ vectors[WORDS.index(word)]
        order = [id for id in np.argsort(-cosines, kind="stable") if id >= 4 and WORDS[id] != word]
        assert [neighbor for neighbor, _ in pairs] == [WORDS[id] for id in order]
        np.testing.assert_allclose([cosine for _, cosine in pairs], cosines[order], atol=1e-5)
    assert text.neighbors("word1", 2) == text.neighbors(["word1"], 2)[0] and text.neighbors([]) == []


def test_a_run_folder_is_loaded(text, tmp_path):
    refused(keras_adaptive.load, tmp_path, match=r"holds no run \(vocabulary.txt is missing\)")
    text.vocabulary.save(tmp_path / "vocabulary.txt")
    facts = {"size": len(text.vocabulary), "sha256": text.vocabulary.sha256}
    (tmp_path / "corpus.json").write_text(json.dumps({"tokenizer": "whitespace", "unit": "word", "vocabulary": facts}))
    refused(keras_adaptive.load, tmp_path, match="holds no best.keras yet: train it with trainers.train")
    text.model.save(tmp_path / "last.keras")
    loaded = keras_adaptive.load(tmp_path, "last")
    assert isinstance(loaded.model, LanguageModel) and loaded.vocabulary.words == WORDS
    assert loaded.score("word1")["log_probs"] == pytest.approx(text.score("word1")["log_probs"], abs=1e-6)
    language_model(24).save(tmp_path / "best.keras")
    match = "best.keras is the model of another run: it has 24 words, and .* 20"
    refused(keras_adaptive.load, tmp_path, match=match)


def test_an_empty_path_and_a_path_of_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("saved_model.pb").write_bytes(b"")
    advice = ": pass the folder of a trained model"
    refused(keras_adaptive.load, "", match=f"^The path of the model is empty{advice}")
    for path in ("saved_model.pb", "none", Path("none"), "/dev/null"):
        refused(keras_adaptive.load, path, match=f"holds no run .it is not a folder.{advice}")


BAD = {
    "no string": (lambda text: text.score([3]), "A text must be a string. Received: 3"),
    "half a character": (lambda text: text.next_words("a \ud800"), "whole characters. Received: half .* character 2"),
    "alternatives": (lambda text: text.score("a", alternatives=21), "`alternatives` must be from 0 to 20, .*=21"),
    "stop": (lambda text: text.generate(stop="word1 word2"), "`stop` must hold words .* the word 'word1 word2'"),
    "prefix": (lambda text: text.stream(prefix=["dog"]), "`prefix` must hold tokens of the vocabulary.* 'dog'"),
    "k": (lambda text: text.next_words("a", 0), "`k` must"),
    "no texts": (lambda text: text.perplexity([]), "`texts` must hold a text"),
    "neighbors": (lambda text: text.neighbors(["word1", "dog"]), "`word` must be in the vocabulary.*CharCNN.* 'dog'"),
    "bytes": (lambda text: TextModel(text.model, text.codec, open_vocabulary=True), "Only an input that reads bytes"),
    "codec": (lambda text: TextModel(text.model, bytes_codec()), "of the model, of 20 words. Received: .* 260 words"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line(text, name):
    call, message = BAD[name]
    assert len(refused(call, text, match=message)) < 300
