"""The JSON API: its answers are those of the models."""

import json
import math

import numpy as np
import pytest
from starlette.testclient import TestClient

from keras_adaptive.data import EOS, UNK, Subwords, Vocabulary
from keras_adaptive.layers import AdaptiveSoftmax, LearnedPositions, TransformerDecoder, WordEmbedding
from keras_adaptive.models import LanguageModel, transformer
from tests.support.served import ADDRESS, COUNTS, write_run
from tests.support.text import NASTY
from tests.support.tiny import WORDS
from trainers.page import app, bodies
from trainers.page.app import Page
from trainers.page.served_run import ServedRun

pytestmark = pytest.mark.once

UNITS = ["words", "others", "letters", "bytes", "pieces", "cnn"]


def lines_of(answer):
    *lines, end = map(json.loads, answer.text.splitlines())
    assert end == {"end": True} and answer.headers["content-type"] == "application/x-ndjson"
    return lines


def test_runs_are_described(client, page):
    answer = client.get("/api/runs").json()
    assert answer["limits"] == {"characters": 20_000, "words": 2_000, "length": 500}
    page.warm_up()
    runs = {run["name"]: run for run in client.get("/api/runs").json()["runs"]}
    assert list(runs) == list(page.runs) and [name for name in runs if runs[name]["reads_bytes"]] == ["cnn"]
    assert {name: run["unit"] for name, run in runs.items()} == {
        **dict.fromkeys(("words", "others", "cnn"), "word"),
        **{"letters": "character", "bytes": "byte", "pieces": "sub-word"},
    }
    model = page.runs["cnn"].folder.model()
    assert runs["cnn"]["parameters"] == model.count_params() and runs["cnn"]["vocabulary_size"] == 20
    parts = [runs["cnn"][part] for part in ("input", "body", "output")]
    assert parts == ["CharCNN", "TransformerDecoder", "AdaptiveSoftmax"]
    assert not any(run["training"] for run in runs.values())


def test_a_text_is_scored_line_by_line(post, page):
    answer = post("score", run="words", text="word2 word1\r\n\nnever word3 never\n", alternatives=3)
    run = page.runs["words"]
    lines = [["word2", "word1", "</s>"], ["</s>"], ["never", "word3", "never", "</s>"]]
    assert [line["tokens"] for line in answer["lines"]] == lines
    for line in answer["lines"]:
        ids = run.codec.encode(line["tokens"])[None]
        inputs = np.concatenate([[[EOS]], ids[:, :-1]], axis=1)
        log_probs, ranks, entropies, best, best_ids = run.folder.model().alternatives(inputs, ids, 3)
        np.testing.assert_allclose(line["log_probs"], log_probs[0], atol=2e-6)
        np.testing.assert_allclose(line["entropies"], entropies[0], atol=2e-6)
        assert line["ranks"] == ranks[0].tolist()
        words = [[word for word, _ in pairs] for pairs in line["alternatives"]]
        assert words == [run.codec.decode(row) for row in best_ids[0]]
    bits = -sum(sum(line["log_probs"]) for line in answer["lines"]) / math.log(2)
    assert answer["words"] == 8 and answer["unknown"] == 2
    assert answer["bits"] == pytest.approx(bits, abs=1e-4)
    assert answer["perplexity"] == pytest.approx(2 ** (bits / 8), rel=1e-5)
    pieces = [line["pieces"] for line in answer["lines"]]
    assert pieces[::2] == [["word2", " word1", "\n"], ["never", " word3", " never", "\n"]]


@pytest.mark.parametrize("run", UNITS)
def test_hostile_text_is_read_by_every_unit(post, run):
    """A text with everything is scored, and its pieces can be printed."""
    hostile = [*NASTY, "\0\x1b[31m\u202e", "<script>alert(1)</script>", "\ud800 \udc80x", "z" * 500, "a\rb\x85c\u2028d"]
    answer = post("score", run=run, text="\n".join(hostile), alternatives=2)
    assert len(answer["lines"]) == len(hostile)
    for line in answer["lines"]:
        sizes = {len(line[name]) for name in ("tokens", "log_probs", "ranks", "bands", "pieces", "alternatives")}
        assert len(sizes) == 1 and line["tokens"][-1] == "</s>"


def test_pieces_print_the_text_of_every_unit(post):
    for run in ("letters", "bytes", "pieces"):
        (line,) = post("score", run=run, text="word1 é  cad")["lines"]
        text = "word1 é cad" if run == "pieces" else "word1 é  cad"
        assert "".join(line["pieces"]).removesuffix("\n") == text


def test_a_mark_at_the_beginning_is_text_for_bytes_only(post):
    for run, tokens in {"words": ["a"], "letters": ["a"], "bytes": ["ï", "»", "¿", "a"]}.items():
        (line,) = post("score", run=run, text="\ufeffa")["lines"]
        assert line["tokens"][:-1] == tokens


@pytest.mark.parametrize("how", [{"temperature": 0}, {"seed": 3}, {"seed": 3, "top_k": 2}, {"seed": 3, "top_p": 0.5}])
def test_generated_words_are_those_of_the_model(post, page, how):
    run = page.runs["words"]
    items = lines_of(post("generate", run="words", prompt="word3 word1", length=4, alternatives=2, **how))
    prompt = run.codec.encode(["</s>", "word3", "word1"])[None]
    stream = run.model.stream(prompt, 4, alternatives=2, forbid=[UNK], **{"seed": None, **how})
    ids, log_probs, best, best_ids = zip(*stream)
    assert [item["token"] for item in items] == run.codec.decode(np.ravel(ids))
    np.testing.assert_allclose([item["probability"] for item in items], np.exp(np.ravel(log_probs)), rtol=1e-4)
    for item, own, best_of_place in zip(items, best, best_ids):
        assert [word for word, _ in item["alternatives"]] == run.codec.decode(best_of_place[0])
        np.testing.assert_allclose([value for _, value in item["alternatives"]], np.exp(own[0]), atol=1e-5)


@pytest.mark.parametrize("run", UNITS)
def test_writing_goes_on_from_a_prefix(post, page, run):
    """Texts and tokens continue as if they had not stopped."""
    assert isinstance(page.runs["pieces"].folder.codec.subwords, Subwords)
    whole = lines_of(post("generate", run=run, prompt="word1\nwo", length=5, temperature=0))
    begun = [item["token"] for item in whole[:2]]
    rest = lines_of(post("generate", run=run, prompt="word1\nwo", prefix=begun, length=3, temperature=0))
    assert [item["token"] for item in rest] == [item["token"] for item in whole[2:]]
    assert [item["text"] for item in rest] == [item["text"] for item in whole[2:]]
    np.testing.assert_allclose([i["probability"] for i in rest], [i["probability"] for i in whole[2:]], rtol=1e-3)
    tokens = [*page.runs[run].codec.tokenize("word1"), "</s>", *page.runs[run].codec.tokenize("wo")]
    texts = list(page.runs[run].codec.detokenize([*tokens, *(item["token"] for item in whole)]))[len(tokens) :]
    assert [item["text"] for item in whole] == texts[:5]


def test_a_model_of_few_positions_reads_and_writes_long_lines(tmp_path):
    """The model reads windows."""
    blocks = transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2).blocks
    body = TransformerDecoder(blocks, 8, positions=LearnedPositions(6))
    model = LanguageModel(WordEmbedding(20, 8), body, AdaptiveSoftmax(20, ()))
    write_run(tmp_path / "short", model, Vocabulary(WORDS, COUNTS))
    page = Page([ServedRun(tmp_path / "short", "short")])
    page.warm_up()
    client = TestClient(page.app(), ADDRESS)
    answer = client.post("/api/score", json={"run": "short", "text": "word1 " * 30})
    assert answer.status_code == 200 and len(answer.json()["lines"][0]["tokens"]) == 31
    assert answer.json()["lines"][0]["reading"] == "in windows of 6 tokens, 3 of them context"
    prompt = {"run": "short", "prompt": "word1 word2 word3"}
    assert len(lines_of(client.post("/api/generate", json={**prompt, "length": 20}))) == 20


def test_no_unknown_word_is_written(post):
    items = lines_of(post("generate", run="words", length=300, seed=1, temperature=2))
    assert "<unk>" not in {item["token"] for item in items} and len({item["token"] for item in items}) > 10


def test_writing_without_a_prompt_begins_without_a_space(post):
    first, second = lines_of(post("generate", run="words", length=2, seed=8))
    assert first["text"] in (first["token"], "\n") and second["text"] in (f" {second['token']}", "\n")


def test_neighbors_of_any_string(post, page):
    found = post("neighbors", run="cnn", words=["wrod1", "word2", "\ud83d\ude00\0"], k=2)["neighbors"]
    expected = page.runs["cnn"].folder.model().word_input.neighbors(["wrod1", "word2", "😀\0"], 2)
    assert [one["known"] for one in found] == [False, True, False]
    for one, pairs in zip(found, expected):
        assert [word for word, _ in one["nearest"]] == [word for word, _ in pairs]
        np.testing.assert_allclose([cosine for _, cosine in one["nearest"]], [c for _, c in pairs], atol=1e-5)


@pytest.mark.parametrize("run, known", [("words", "word1"), ("others", "worda"), ("letters", "a"), ("pieces", "word")])
def test_neighbors_of_every_model(post, page, run, known):
    """A model compares the vectors of its words or pieces; other strings have none."""
    one, unknown = post("neighbors", run=run, words=[known, "dog dog"], k=3)["neighbors"]
    assert one["known"] and len(one["nearest"]) == 3 and one["word"] == known
    (token,) = page.runs[run].codec.tokenize(known)
    expected = page.runs[run].text_model.neighbors(token, 3)
    assert [word for word, _ in one["nearest"]] == [word for word, _ in expected]
    assert not unknown["known"] and unknown["nearest"] == []


def test_texts_above_the_limits_are_refused(folders, client, page):
    small = bodies.Limits(characters=50, words=6, length=3)
    other = type(client)(Page(page.runs.values(), small).app(), client.base_url)
    for route, body in {
        "score": {"text": "a " * 30},
        "score ": {"text": "a b c d e f g"},
        "score  ": {"run": "others", "text": "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.\n" + "." * 30},
        "generate": {"prompt": "a b c d e f g"},
    }.items():
        answer = other.post(f"/api/{route.strip()}", json={"run": "words", **body})
        assert answer.status_code == 413 and " must " in answer.json()["error"], answer.text
    for text in ("a b c d e f", "a b\nc\n\nd e f\n"):  # ends of lines are no words
        assert other.post("/api/score", json={"run": "words", "text": text}).status_code == 200
    answer = other.post("/api/score", json={"run": "words", "text": "a"} | {"x": "y" * bodies.largest(small)})
    assert answer.status_code == 413 and "bytes" in answer.json()["error"]
    answer = other.post("/api/generate", json={"run": "words", "length": 4})
    assert answer.status_code == 400 and "`length` must be a whole number from 1 to 3" in answer.json()["error"]


def test_two_thousand_words_are_read_in_every_unit(post):
    text = "word1 " * 1999 + "word2"
    for run in ("words", "letters"):
        assert len(post("score", run=run, text=text, alternatives=0)["lines"][0]["tokens"]) >= 2001
    assert post("generate", run="words", prompt=text, length=1)
    assert "2,000 words" in post("score", 413, run="words", text=f"{text} word3")["error"]


def test_a_busy_server_says_so(page, client):
    full = type(client)(Page(page.runs.values(), at_once=0).app(), client.base_url)
    for route, body in {"score": {"text": "a"}, "generate": {}, "neighbors": {"words": ["a"]}}.items():
        answer = full.post(f"/api/{route}", json={"run": "words", **body})
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1" and "again" in answer.json()["error"]
    assert full.get("/api/runs").status_code == 200


def test_places_are_given_back(page, post):
    post("score", run="words", text="a")
    lines_of(post("generate", run="words", length=2))
    post("generate", 400, run="words", prefix=["nothing"])
    post("score", 413, run="words", text="a " * 3_000)
    post("neighbors", run="words", words=["a"])
    assert page.turns.requests == 0


def test_an_unexpected_error_names_no_secret(page, client, monkeypatch):
    def fail(*_):
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(app, "summed", fail)
    calm = type(client)(page.app(), client.base_url, raise_server_exceptions=False)
    answer = calm.post("/api/score", json={"run": "words", "text": "a"})
    assert answer.status_code == 500 and answer.json() == {"error": "The server failed (RuntimeError): see its output."}
    assert "content-security-policy" in answer.headers and page.turns.requests == 0


def test_an_error_within_a_stream_is_its_last_line(page, client, monkeypatch):
    run = page.runs["words"]

    def broken(*_, **__):
        yield {"token": "a"}
        raise ValueError("the weights are gone")

    monkeypatch.setattr(run, "generate", broken)
    answer = client.post("/api/generate", json={"run": "words"})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines == [{"token": "a"}, {"error": "the weights are gone"}]
    assert page.turns.requests == 0
