"""SavedModels against the live model, in a process that has neither Keras nor this package."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import keras_adaptive
from keras_adaptive.data import TOKENIZERS, TextCodec, Vocabulary
from keras_adaptive.export import export_saved_model
from keras_adaptive.export.graph_text import GraphText
from keras_adaptive.export.saved_model import in_dtype
from keras_adaptive.export.served_model import ServedModel
from keras_adaptive.models import transformer_lm
from keras_adaptive.special_words import UNK
from keras_adaptive.text import TextModel
from tests.support.backends import BACKEND
from tests.support.programs import ask
from tests.support.tiny import WORDS as TINY_WORDS
from tests.support.tiny import language_model
from tests.support.weights import randomize

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(BACKEND != "tensorflow", reason="SavedModels are made on TensorFlow"),
]

SERVING = Path(__file__).parents[2] / "docs" / "serving.md"
MAX_LENGTH = 80
WORDS = ["the", "cat", "sat", "naïve", "!", *(f"w{i}" for i in range(1991))]
VOCABULARY = Vocabulary.from_counts({word: len(WORDS) - i for i, word in enumerate(WORDS)})
LINES = [
    "the cat sat w700 w1900 !",
    "",
    " \t\u00a0",
    "the qqq cat Ω w3 <unk> x",
    "the </s> cat <s> <pad>",
    "naïve\u2003w7\nw8\x1fw9\u3000",
    b"w5 \xff\xfe w6\xe2\x82",
    "w1500 w2 w30 " * 26,
]
TOO_LONG = "w1 " * MAX_LENGTH  # with its </s>
DRAWS = [(1.0, 0), (0.6, 0), (1.5, 7), (1.0, 3)]  # temperature, top_k
COLD = (1e-42, 1e-38, 1e-30)  # the first is not a normal float32
ERRORS = [
    ("score", {"text": ["the", TOO_LONG]}, r"may have 80 tokens, .*Received:\] \[81\]"),
    ("next_words", {"text": [TOO_LONG], "k": 1}, r"may have 80 tokens, .*Received:\] \[81\]"),
    ("generate", {"text": ["w1 " * 70], "length": 10}, r"may have 80 tokens, .*Received:\] \[81\]"),
    ("next_words", {"text": ["the"], "k": 0}, r"`k` must be from 1 to 1000. Received:\] \[0\]"),
    ("next_words", {"text": ["the"], "k": 1001}, r"`k` must be from 1 to 1000. Received:\] \[1001\]"),
    *(("next_words", {"text": ["the"], "k": k}, "`k` must be from 1 to 1000") for k in (-1, 2**31 - 1, -(2**31))),
    *(("generate", {"text": ["the"], "length": n}, "`length` must be from 1 to 80") for n in (0, -1, 81, 2**31 - 1)),
    *(("generate", {"text": ["the"] * 999, "length": n}, "`length` must be from 1") for n in (10**7, -(2**31))),
    *(("generate", {"text": ["the"], "top_k": k}, "`top_k` must be from 1 to 1000, or 0") for k in (1001, 2**31 - 1)),
    ("generate", {"text": ["the"], "temperature": -0.5}, "`temperature` must not be negative"),
    ("generate", {"text": ["the"], "temperature": float("nan")}, "`temperature` must not be negative"),
    ("generate", {"text": ["the"], "top_k": -1}, "`top_k` must be from 1 to 1000, or 0"),
    ("log_probs", {"token_ids": [[4, 2000]]}, "`token_ids` must be from 0 to 1999"),
    *(("log_probs", {"token_ids": [[4, id]]}, "`token_ids` must be from 0") for id in (-1, 2**31 - 1, -(2**31))),
    ("log_probs", {"token_ids": [[4] * 81]}, "may have 80 tokens"),
    ("log_probs", {"token_ids": [[4] * 20_000] * 50}, "may have 80 tokens"),
    # Numbers are checked before the text is read.
    ("next_words", {"text": [TOO_LONG], "k": 0}, "`k` must be"),
    ("generate", {"text": [TOO_LONG], "temperature": -1.0}, "`temperature` must not be negative"),
    ("generate", {"text": [TOO_LONG], "top_k": -1}, "`top_k` must be"),
    ("generate", {"text": [TOO_LONG], "length": 2**31 - 1}, "`length` must be"),
]


def generation(text, **options):
    return "generate", {"text": text, "length": 1, "temperature": 1.0, "top_k": 0, "seed": 1, **options}


# The requests of the documentation and the answers that it shows.
SHOWN = [
    [json.loads(one) for one in pair]
    for pair in re.findall(r"-d '(\{.*?\})'\n# (\{.*\})\n", SERVING.read_text(encoding="utf-8"))
]
REQUESTS = {
    "score": ("score", {"text": LINES}),
    "log_probs": ("log_probs", {"token_ids": [[2, 4, 900], [5, 6, 7]]}),
    **{f"best {k}": ("next_words", {"text": LINES[:6], "k": k}) for k in (1, 7, 10, 11, 1000)},
    "greedy": generation(LINES[:4], length=9, temperature=0),
    **{f"cold {heat}": generation(LINES[:4], length=9, temperature=heat, top_k=7) for heat in COLD},
    "cold among all": generation(LINES[:4], length=9, temperature=COLD[0]),
    **{f"seed {seed}": generation(["the cat"], seed=seed) for seed in (-1, 2**31 - 1, -(2**31))},
    "no ids": ("log_probs", {"token_ids": []}),
    **{f"draws {way}": generation(["the cat"] * 4000, temperature=way[0], top_k=way[1]) for way in DRAWS},
    "alone": generation(["the cat"], length=12),
    "first": generation(["the cat", "the cat", "", "the cat sat w3 w4"], length=12),
    "reseeded": generation(["the cat"], length=12, seed=2),
    "no score": ("score", {"text": []}),
    "no words": ("next_words", {"text": [], "k": 3}),
    "no text": generation([], length=3),
    **{
        f"error {i}": generation(**inputs) if name == "generate" else (name, inputs)
        for i, (name, inputs, _) in enumerate(ERRORS)
    },
    **{f"shown {i}": request for i, (request, _) in enumerate(SHOWN)},
}


@pytest.fixture(scope="module")
def model():
    model = transformer_lm(
        len(VOCABULARY), dim=32, num_blocks=1, num_heads=2, ffn_dim=64, cutoffs=(200, 800), dtype="float32"
    )
    randomize(model)
    return model


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """Returns the folder of a SavedModel after a move."""
    folder = tmp_path_factory.mktemp("exports")
    export_saved_model(model, VOCABULARY, folder / "first" / "1", max_length=MAX_LENGTH)
    return shutil.move(folder / "first", folder / "moved") / "1"


@pytest.fixture(scope="module")
def responses(folder):
    """`{name of the request: all of its response}`"""
    return dict(zip(REQUESTS, ask(folder, REQUESTS.values()), strict=True))


@pytest.fixture(scope="module")
def answers(responses):
    """`{name of the request: its outputs, or the error}`"""
    return {name: one.get("outputs", one.get("error")) for name, one in responses.items()}


def read(line, end=()):
    """The tokens of a line and, as the live programs feed them, the ids of `</s>` and the line."""
    text = line if isinstance(line, str) else line.decode(errors="replace")
    tokens = [*TOKENIZERS["whitespace"](text.replace("\n", " </s> ")), *end]
    return tokens, np.append(2, VOCABULARY.encode(tokens)).astype("int32")


def in_a_batch(lines):
    """Ids of the lines, padded: one shape, so that the live model is compiled once."""
    ids = np.ones((len(lines), max(map(len, lines))), "int32")
    for row, line in zip(ids, lines):
        row[: len(line)] = line
    return ids


def test_strings_go_in_and_come_out(folder, model):
    saved, live = keras_adaptive.load(folder), TextModel(model, TextCodec(VOCABULARY))
    lines = [*LINES[:5], "the\ncat\r\n\r\rsat\x0c!\r\n"]
    for one, other in zip(saved.score(lines, batch_size=3), live.score(lines), strict=True):
        assert [one[name] for name in ("tokens", "words", "unknown")] == [
            other[name] for name in ("tokens", "words", "unknown")
        ]
        assert one["log_probs"] == pytest.approx(other["log_probs"], abs=1e-5)
    assert saved.perplexity(lines) == pytest.approx(live.perplexity(lines), rel=1e-4)
    (words, values), (expected, others) = (zip(*one.next_words("the cat", 3)) for one in (saved, live))
    assert words == expected and values == pytest.approx(others, abs=1e-5)
    assert saved.generate(["the cat", "the"], 4, 0) == [saved.generate("the cat", 4, 0), saved.generate("the", 4, 0)]
    assert saved.next_words("sat\r\nthe cat\n", 1)[0][0] == live.next_words("sat\nthe cat\n", 1)[0][0]
    assert saved.generate("the\ncat", 4, 0) == live.generate("the\r\ncat", 4, 0)
    assert saved.generate("the cat", 4, 0) == live.generate("the cat", 4, 0)
    assert saved.generate("the", 9, seed=1, top_k=5) == saved.generate("the", 9, seed=1, top_k=5)
    for call, message in [
        (lambda: saved.next_words("the", 0), "^`k` must be from 1 to 1000. Received: 0.$"),
        (lambda: saved.score(TOO_LONG), "^A line may have 80 tokens, .* Received: 81.$"),
        (lambda: saved.score("the", alternatives=1), "has no `alternatives`: load the folder of the run"),
        (lambda: saved.neighbors("the"), "has no `neighbors`: load the folder of the run"),
        (lambda: keras_adaptive.load(folder, "last"), "pass no other argument"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_scores_are_those_of_the_model(answers, model):
    scores = answers["score"]
    lines = [read(line, ["</s>"]) for line in LINES]
    ids = in_a_batch([ids for _, ids in lines])
    nll = model.nll(ids[:, :-1], ids[:, 1:])
    for row, (tokens, _) in enumerate(lines):
        count = len(tokens)
        assert scores["lengths"][row] == scores["words"][row] == count
        assert scores["tokens"][row] == tokens + [""] * (79 - count)
        np.testing.assert_allclose(
            scores["log_probs"][row], np.append(-nll[row, :count], np.zeros(79 - count)), atol=1e-5
        )
        np.testing.assert_allclose(scores["log_prob"][row], -nll[row, :count].sum(dtype="float64"), rtol=1e-5)
        np.testing.assert_allclose(scores["perplexity"][row], np.exp(nll[row, :count].mean(dtype="float64")), rtol=1e-4)
        unknown = [word in VOCABULARY.unknown(tokens) for word in tokens]
        assert scores["unknown"][row] == unknown + [False] * (79 - count)
    assert scores["tokens"][6][:3] == ["w5", "\ufffd\ufffd", "w6\ufffd"] and scores["tokens"][1][0] == "</s>"


def test_next_words_are_the_most_probable(answers, model):
    lines = [read(line)[1] for line in LINES[:6]]
    log_probs = model.log_probs(in_a_batch(lines))[np.arange(len(lines)), [len(line) - 1 for line in lines]]
    for k in (1, 7, 10, 11, 1000):
        answer = answers[f"best {k}"]
        best = -np.sort(-np.exp(log_probs), axis=1)[:, :k]
        np.testing.assert_allclose(answer["probabilities"], best, rtol=1e-4, atol=1e-7)
        ids = np.stack([VOCABULARY.encode(words) for words in answer["words"]])
        np.testing.assert_allclose(np.exp(np.take_along_axis(log_probs, ids, 1)), best, rtol=1e-4, atol=1e-7)
        assert all(len(set(row)) == k for row in ids.tolist())


def test_the_most_probable_text_is_that_of_the_model(answers, model):
    for row, line in enumerate(LINES[:4]):
        words = VOCABULARY.decode(model.generate(read(line)[1][None], 9, temperature=0, forbid=[UNK])[0])
        assert answers["greedy"]["tokens"][row] == words
        text = "".join("\n" if word == "</s>" else f" {word}" for word in words).replace("\n ", "\n")
        assert answers["greedy"]["text"][row] == (text if line else text.removeprefix(" "))


def test_the_least_temperatures_take_the_most_probable_words(answers):
    for name in (*(f"cold {heat}" for heat in COLD), "cold among all"):
        assert answers[name] == answers["greedy"]
    assert all(len(answers[f"seed {seed}"]["tokens"][0]) == 1 for seed in (-1, 2**31 - 1, -(2**31)))


def test_draws_follow_the_probabilities(answers, model):
    at_one = model.log_probs(read("the cat")[1][None])[0, -1].astype("float64")
    for temperature, top_k in DRAWS:
        log_probs = np.where(np.arange(len(at_one)) == UNK, -np.inf, at_one) / temperature
        if top_k:
            log_probs[log_probs < np.sort(log_probs)[-top_k]] = -np.inf
        expected = np.exp(log_probs) / np.exp(log_probs).sum()
        (draws,) = np.transpose([VOCABULARY.encode(row) for row in answers[f"draws {temperature, top_k}"]["tokens"]])
        counts, sure = np.bincount(draws, minlength=len(expected)), expected > 0.005
        assert sure.any() and counts[expected == 0].sum() == 0
        shares = np.append(expected[sure], max(0.0, 1 - expected[sure].sum()))
        found = np.append(counts[sure], counts[~sure].sum())
        deviations = np.sqrt(len(draws) * shares * (1 - shares).clip(0))
        np.testing.assert_array_less(np.abs(found - len(draws) * shares), 4.5 * deviations + 1e-6)


def test_a_seed_gives_one_text_whatever_comes_behind_it(answers):
    alone, first = answers["alone"]["tokens"], answers["first"]["tokens"]
    assert first[0] == alone[0] != first[1]
    assert answers["reseeded"]["tokens"] != alone


def test_log_probs_of_ids(answers, model):
    ids = np.array(REQUESTS["log_probs"][1]["token_ids"], "int32")
    np.testing.assert_allclose(answers["log_probs"], model.log_probs(ids), atol=1e-5)


def test_no_lines_have_no_answers(answers):
    assert all(value == [] for name in ("no score", "no words", "no text") for value in answers[name].values())


def test_what_cannot_be_answered_is_an_error_and_takes_no_memory(answers, responses):
    for number, (_, _, message) in enumerate(ERRORS):
        assert re.search(message, answers[f"error {number}"])
        assert responses[f"error {number}"]["grown"] < 1e8  # bytes, of the memory of the process


def test_weights_are_stored_once(folder, model):
    import tensorflow as tf

    sizes = dict(tf.train.list_variables(str(folder / "variables" / "variables")))
    assert sum(int(np.prod(shape)) for shape in sizes.values() if shape) == model.count_params()
    size = (folder / "variables" / "variables.data-00000-of-00001").stat().st_size
    assert size == pytest.approx(4 * model.count_params(), rel=0.05)


def test_servers_have_all_operations(folder):
    from tensorflow.core.protobuf import saved_model_pb2

    file = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    graph = file.meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    names = {node.op for node in nodes}
    assert "MatMul" in names and not {name for name in names if name.startswith(("Xla", "PyFunc", "EagerPyFunc"))}


def test_the_command_line_of_tensorflow_runs_it(folder, answers, tmp_path):
    arguments = ["--signature_def", "score", "--input_exprs", f"text=[{LINES[0]!r}]", "--outdir", tmp_path]
    program = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli"]
    command = [*program, "run", "--dir", folder, "--tag_set", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "log_prob.npy") == pytest.approx(answers["score"]["log_prob"][:1], rel=1e-5)


def test_bfloat16_halves_the_weights_and_stays_near(model):
    score = ServedModel(in_dtype(model, "bfloat16"), GraphText(VOCABULARY), MAX_LENGTH).functions()["score"]
    assert {variable.dtype for variable in in_dtype(model, "bfloat16").weights} == {"bfloat16"}
    ids = read(LINES[0], ["</s>"])[1][None]
    exact = -model.nll(ids[:, :-1], ids[:, 1:])[0]
    log_probs = score(LINES[:1])["log_probs"].numpy()[0]
    assert log_probs.dtype == "float32"
    np.testing.assert_allclose(log_probs, exact, rtol=0, atol=0.2)
    assert np.abs(log_probs - exact).max() > 1e-5


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("full", {}, "full exists and is not empty"),
        (
            "1",
            {"vocabulary": Vocabulary.from_counts({"the": 1})},
            "`vocabulary` must have the 2,000 .* Received: size=8",
        ),
        ("1", {"dtype": "float16"}, "`dtype` must be float32 or bfloat16. Received: dtype='float16'"),
        ("1", {"max_length": 0}, "`max_length` must be at least 1"),
        ("1", {"max_length": 2**31}, "`max_length` must be at least 1 and below 2.31"),
        ("1", {"tokenizer": "bpe"}, "`tokenizer` must be one of"),
    ],
)
def test_what_cannot_be_exported_is_refused(model, tmp_path, name, arguments, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ValueError, match=message):
        export_saved_model(model, **{"vocabulary": VOCABULARY, "folder": tmp_path / name, **arguments})
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_model_that_is_not_finite_is_not_exported(tmp_path):
    model = language_model()
    vocabulary = Vocabulary(TINY_WORDS, [0] * len(TINY_WORDS))
    model.word_output.class_table.assign(np.nan * model.word_output.class_table.value)
    with pytest.raises(ValueError, match="must have finite weights. Received: infinity or NaN in .*class_table"):
        export_saved_model(model, vocabulary, tmp_path / "1")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    tf = pytest.importorskip("tensorflow")

    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "variables.data; No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full)
    vocabulary = Vocabulary(TINY_WORDS, [0] * len(TINY_WORDS))
    with pytest.raises(OSError, match=f"{tmp_path}/1 cannot be written .variables.data; No space left on device."):
        export_saved_model(language_model(), vocabulary, tmp_path / "1")
    assert not list(tmp_path.iterdir())


def test_the_requests_of_the_documentation_have_its_answers(responses):
    assert [request.get("signature_name") for request, _ in SHOWN] == ["next_words", "score", "generate"]
    for number, (_, written) in enumerate(SHOWN):
        assert shape_of(responses[f"shown {number}"]) == shape_of(written)


def shape_of(value):
    """The names, lists and types of a JSON value."""
    if isinstance(value, dict):
        return {name: shape_of(part) for name, part in value.items()}
    return [shape_of(part) for part in value] if isinstance(value, list) else type(value)
