"""Runs of random weights, as training leaves them, analysed and compared with sums done here."""

import json
import math
from collections import defaultdict
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest

from keras_adaptive import evaluation
from keras_adaptive.data import EOS, UNK, prepare
from keras_adaptive.models import transformer_lm
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.text import prepared, write_zipf
from tests.support.weights import randomize
from trainers import analyze
from trainers.experiments.run_folder import RunFolder
from trainers.experiments.word_losses import Run, WordLosses, open_runs, write_ngrams
from trainers.plots import analysis as plots

pytestmark = pytest.mark.once

LINE = 8  # tokens
LOG = [
    {"update": 2, "loss": 4.0, "tokens": 64, "seconds": 2.0},
    {"update": 3, "val_loss": 4.0, "tokens": 96, "seconds": 3.0},
    {"update": 4, "loss": 4.0, "tokens": 32, "seconds": 1.5},  # begins with update 4 again
    {"update": 6, "val_loss": 3.0, "tokens": 96, "seconds": 4.0},
]


def zipf(folder, seed=1):
    """A corpus of words by Zipf's law, eight tokens a line with the `</s>`; `seed` is that of valid and test."""
    return prepared(write_zipf(folder, words=20, line=LINE - 1, seed=0, held_out_seed=seed))


def make_run(run_dir, corpus, **settings):
    """The folder of a run as trainers.train leaves it, but for the content of its model."""
    run_dir.mkdir(parents=True)
    settings = {"data_dir": corpus.data_dir, "length": LINE, "tail_dropout": 0.0, **settings}
    flags = "".join(f"--{name}={value}\n" for name, value in settings.items())
    RunFolder(run_dir).write(flags, corpus.vocabulary, corpus.metadata)
    (run_dir / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in LOG))
    (run_dir / "best.keras").write_bytes(b"a model")
    return run_dir


def analysis_of(folder, *arguments):
    """Returns what `python -m trainers.analyze --output_dir=folder ARGUMENTS` writes into analysis.json."""
    call(analyze, f"--output_dir={folder}", *arguments)
    return json.loads((folder / "analysis.json").read_text())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return zipf(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def analysed(corpus, tmp_path_factory):
    """(the folder of everything, what came out) for two runs of different weights."""
    folder = tmp_path_factory.mktemp("runs")
    runs = [make_run(folder / name, corpus, tail_dropout=rate) for name, rate in (("one", 0.0), ("two", 0.1))]
    sizes = {"dim": 8, "num_blocks": 1, "num_heads": 2, "ffn_dim": 8, "cutoffs": (4,), "factor": 2}
    for seed, run in enumerate(runs):
        randomize(model := transformer_lm(len(corpus.vocabulary), **sizes), seed)
        model.save(run / "best.keras")
    return folder, analysis_of(folder / "out", "--contexts=0,4", "--lengths=8,12", *runs)


@pytest.fixture
def evaluations(monkeypatch):
    """Stands in for models and pictures; the list of what was evaluated, with losses of 1, 2, 3, …"""
    calls = []

    def word_losses(model, corpus, split, block, context, batch_size, by_lines, report):
        calls.append((split, block, context))
        words = np.asarray(corpus.tokens(split))
        return np.full(len(words), float(len(calls))), words

    model = SimpleNamespace(count_params=lambda: 5, for_inference=lambda: None)
    monkeypatch.setattr(RunFolder, "model", lambda *_: model)
    monkeypatch.setattr(evaluation, "word_losses", word_losses)
    monkeypatch.setattr(plots, "draw_analysis", lambda *_: [])
    return calls


def named(analysis, name):
    return next(run for run in analysis["runs"] if run["name"] == name)


def mean_by_decade(losses, words, counts):
    """{lowest count of the bin: (words, mean loss)}, word by word."""
    bins = defaultdict(list)
    for loss, word in zip(losses, words, strict=True):
        count = int(counts[word])
        bins[10 ** (len(str(count)) - 1) if count else 0].append(loss)
    return {low: (len(one), pytest.approx(sum(one) / len(one), rel=1e-5)) for low, one in bins.items()}


def as_dict(bins):
    return {one["low"]: (one["tokens"], one["nll"]) for one in bins}


@pytest.mark.parametrize("name", ["one", "two"])
def test_losses_agree_with_the_model_word_by_word(analysed, corpus, name):
    folder, analysis = analysed
    run, model = named(analysis, name), RunFolder(folder / name).model()
    tokens = np.asarray(corpus.tokens("valid"), "int32")
    inputs = np.append(EOS, tokens[:-1])
    nll = model.nll(inputs.reshape(-1, LINE), tokens.reshape(-1, LINE)).ravel().astype("float64")
    counts = corpus.vocabulary.counts
    assert as_dict(run["by_frequency"]) == mean_by_decade(nll, tokens, counts)
    assert as_dict(run["by_previous"]) == mean_by_decade(nll, inputs, counts)
    assert run["loss"]["valid"] == pytest.approx(nll.mean(), rel=1e-5)
    assert run["perplexity"]["valid"] == pytest.approx(math.exp(nll.mean()), rel=1e-4)
    assert run["perplexity_of_known"] == run["perplexity"]  # of a text whose words are all in the vocabulary
    assert run["parameters"] == model.count_params()


def test_unknown_words_may_be_left_out():
    losses = WordLosses(np.array([1.0, 9.0, 2.0]), np.array([7, UNK, 8]), 0)
    assert analyze.perplexity_of_known(losses) == pytest.approx(math.exp(1.5))


def test_the_previous_word_is_the_one_before(tmp_path, evaluations, monkeypatch):
    """Each word has a frequency of its own: "a" 1,000 and more, "b" 100, "c" 10, the end of the line 1."""
    corpus = prepared(tmp_path / "text", "a b c a\n", train=2000 * "a " + 200 * "b " + 20 * "c " + "\n")
    run = make_run(tmp_path / "run", corpus)
    losses = np.array([1.0, 2.0, 4.0, 8.0, 16.0])  # of a b c a </s>, after </s> a b c a
    monkeypatch.setattr(evaluation, "word_losses", lambda *_, **__: (losses, np.asarray(corpus.tokens("valid"))))
    (result,) = analysis_of(tmp_path / "out", run)["runs"]
    assert as_dict(result["by_frequency"]) == {1: (1, 16.0), 10: (1, 4.0), 100: (1, 2.0), 1000: (2, 4.5)}
    assert as_dict(result["by_previous"]) == {1: (1, 1.0), 10: (1, 8.0), 100: (1, 4.0), 1000: (2, 9.0)}


@pytest.mark.parametrize(
    "units, measure, by_position, by_length",
    [
        (
            ["characters", "bytes"],
            {"name": "bits", "unit": "character", "digits": 4},
            {1: 0.6, 2: 1 / 3, 3: 1 / 3},
            {2: [1 / 5, 1 / 6, 1 / 7], 3: [1, 1 / 2, 1 / 3, 1 / 4]},
        ),
        (["whitespace"], {"name": "perplexity", "unit": "word", "digits": 2}, {1: 1 / 2, 2: 1 / 3}, {}),
    ],
)
def test_positions_and_bits(tmp_path, evaluations, monkeypatch, capsys, units, measure, by_position, by_length):
    """The token at place i of `The at` and the end of the line has the probability 1 / (i + 1)."""
    corpora = [prepared(tmp_path / unit, "The at", tokenizer=unit) for unit in units]
    tokens = len(corpora[0].tokens("valid"))
    nll = np.log(np.arange(1.0, tokens + 1))
    monkeypatch.setattr(evaluation, "word_losses", lambda _, corpus, split, *__, **___: (nll, corpus.tokens(split)))
    runs = [make_run(tmp_path / f"run_of_{unit}", corpus) for unit, corpus in zip(units, corpora)]
    analysis = analysis_of(tmp_path / "out", *runs)
    assert analysis["measure"] == measure
    for run in analysis["runs"]:
        assert run["bits"] == dict.fromkeys(["valid", "test"], pytest.approx(nll.mean() / math.log(2)))
        assert [one["bits"] for one in run["contexts"]] == [pytest.approx(run["bits"]["valid"])] * 4
        assert {one["position"]: one["probability"] for one in run["by_position"]} == pytest.approx(by_position)
        found = {one["length"]: one["probability"] for one in run["by_length"]}
        assert found == {length: pytest.approx(means) for length, means in by_length.items()}
    value = "{:,.{}f}".format(analysis["runs"][0][measure["name"]]["valid"], measure["digits"])
    *_, last, footer, path = capsys.readouterr().out.splitlines()
    assert last.split()[-2:] == [value, value]
    assert footer.startswith(f"{measure['name']} per {measure['unit']}, in blocks")


def test_bins_make_up_the_whole(analysed):
    for run in analysed[1]["runs"]:
        for key in ("by_frequency", "by_previous"):
            assert sum(one["tokens"] for one in run[key]) == run["words"]["valid"] == 12 * LINE
            total = sum(one["tokens"] * one["nll"] for one in run[key])
            assert total / run["words"]["valid"] == pytest.approx(run["loss"]["valid"])
            assert all(one["high"] == (10 * one["low"] or 1) for one in run[key])  # the last one too, whatever the run


def test_contexts_are_read_and_not_scored(analysed, corpus):
    folder, analysis = analysed
    tokens = np.asarray(corpus.tokens("valid"), "int32")
    inputs, model = np.append(EOS, tokens[:-1]), RunFolder(folder / "one").model()
    first = model.nll(inputs[None, :LINE], tokens[None, :LINE])
    rows = np.arange(LINE, len(tokens), LINE)[:, None] + np.arange(-4, LINE)  # each line and four tokens before it
    rest = model.nll(inputs[rows], tokens[rows])[:, 4:]
    points = {(one["length"], one["context"]): one for one in named(analysis, "one")["contexts"]}
    assert set(points) == {(8, 0), (8, 4), (12, 0), (12, 4)}
    expected = np.append(first, rest).mean()
    assert points[12, 4]["loss"] == pytest.approx(expected, rel=1e-5)
    assert points[12, 4]["perplexity"] == pytest.approx(math.exp(expected), rel=1e-4)
    assert points[8, 0]["loss"] == named(analysis, "one")["loss"]["valid"]
    assert len({one["loss"] for one in points.values()}) == 4


def test_runs_are_compared_best_first(analysed, capsys):
    folder, analysis = analysed
    valid = [run["perplexity"]["valid"] for run in analysis["runs"]]
    assert valid == sorted(valid) and analysis["differing"] == ["tail_dropout"]
    assert json.loads((folder / "out" / "analysis.json").read_text()) == analysis
    assert named(analysis, "two")["settings"]["tail_dropout"] == "0.1"
    best, *_ = analysis["runs"]
    header, first, second = (line.split() for line in analyze.table(analysis))
    assert header == ["run", "tail_dropout", "parameters", "tokens", "seconds", "valid", "test"]
    assert first[:2] == [best["name"], best["settings"]["tail_dropout"]]
    assert first[3:] == ["192", "7", *(f"{best['perplexity'][split]:,.2f}" for split in ("valid", "test"))]


def test_the_time_is_that_of_every_fit(tmp_path):
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in LOG))
    validations = [{"update": 3, "loss": 4.0}, {"update": 6, "loss": 3.0}]
    found = analyze.training(tmp_path / "log.jsonl")
    assert found == {"tokens": 96 + 96, "seconds": 3.0 + 4.0, "validations": validations}
    assert analyze.training(tmp_path / "none.jsonl") == {"tokens": None, "seconds": None, "validations": []}


def test_contexts_are_quarters_of_the_length_of_training(corpus, tmp_path):
    run = Run(make_run(tmp_path / "run", corpus), "run")
    assert run.windows([], []) == [(8, 0), (8, 2), (8, 4), (8, 6)]
    assert run.windows([16, 4], [0, 8]) == [(16, 0), (16, 8), (4, 0)]


def test_kept_losses_are_the_fresh_ones(analysed, monkeypatch):
    folder, fresh = analysed
    monkeypatch.setattr(RunFolder, "model", lambda *_: pytest.fail("the model was loaded again"))
    assert analysis_of(folder / "out", "--contexts=0,4", "--lengths=8,12", folder / "two", folder / "one") == fresh


def test_losses_of_another_model_or_text_are_not_used(corpus, tmp_path, evaluations):
    run = make_run(tmp_path / "run", corpus)
    all_of_it = [("valid", 8, 0), ("test", 8, 0), ("valid", 4, 4)]

    def analysed_anew():
        """Returns what is evaluated, after checking that all losses come from it."""
        begin = len(evaluations)
        (result,) = analysis_of(tmp_path / "out", "--contexts=0,4", run)["runs"]
        losses = [*result["loss"].values(), *(one["loss"] for one in result["contexts"])]
        assert losses == [last + number for number in (1, 2, 1, 3)]
        return evaluations[begin:]

    last = 0
    assert analysed_anew() == all_of_it
    assert analysed_anew() == []
    last = 3
    (run / "best.keras").write_bytes(b"another model")
    assert analysed_anew() == all_of_it
    assert analysed_anew() == []
    last = 6
    other = zipf(tmp_path / "text", seed=2)
    (run / "flags.txt").write_text(f"--data_dir={other.data_dir}\n--length=8\n")
    assert analysed_anew() == all_of_it


def test_runs_of_other_vocabularies_are_compared(corpus, tmp_path, evaluations):
    """The frequencies come from each run's own corpus, which has the same text."""
    rare = prepare(corpus.data_dir.parent, tmp_path / "rare", min_count=30)
    runs = [make_run(tmp_path / "all", corpus), make_run(tmp_path / "few", rare)]
    analysis = analysis_of(tmp_path / "out", "--contexts=0", *runs)
    assert analysis["differing"] == ["min_count"]
    few = {one["low"] for one in named(analysis, "few")["by_frequency"]}
    assert few < {one["low"] for one in named(analysis, "all")["by_frequency"]}


def test_an_ngram_model_is_a_baseline(corpus, tmp_path, evaluations):
    """The folder of the model has losses of 2.5; the run's are 1 for valid."""
    run, ngrams = make_run(tmp_path / "run", corpus), make_run(tmp_path / "kn5", corpus, order=5)
    words = np.asarray(corpus.tokens("valid"))
    for split in ("valid", "test"):
        losses = WordLosses(np.full(len(words), 2.5), words, 1000)
        write_ngrams(ngrams, corpus, split, losses)
    analysis = analysis_of(tmp_path / "out", "--contexts=0", f"--baseline={tmp_path}/out/../kn5", run, ngrams)
    assert analysis["baseline"] == "kn5" and analysis["differing"] == []
    result, other = named(analysis, "run"), named(analysis, "kn5")
    assert [one["nll"] for one in other["by_bucket"]] == [2.5] * 25
    assert [one["nll"] for one in result["by_bucket"]] == [1.0] * 25
    assert other["contexts"] == [] and other["parameters"] == 1000 and other["loss"]["test"] == 2.5
    assert not (ngrams / "losses_valid_8_context_0.npz").exists()


def test_runs_of_one_name_are_told_apart(corpus, tmp_path):
    runs = [make_run(tmp_path / name / "run", corpus) for name in ("a", "b")]
    assert [run.name for run in open_runs(runs)] == [str(run) for run in runs]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["RUN", "RUN/../run"], "is given twice: name each run once"),
        (["RUN", "OTHER"], "other has another text than .*run: only runs of the same corpus"),
        (["RUN", "UNTRAINED"], "untrained holds no best.keras yet"),
        (["RUN", "RUN/nothing"], "holds no run"),
        (["RUN", "--contexts=0,x"], "--contexts must be numbers of tokens, such as 0,128. Received: --contexts=0,x"),
        (["RUN", "--baseline=RUN/none"], "--baseline must be one of the .* runs. Received: --baseline=.*run/none"),
        (["RUN", "FEW", "--baseline=RUN"], "few has another vocabulary than .*run, so its gain cannot be measured"),
        (["RUN", "--contexts=8,-1"], r": --contexts=\[8, -1\] for windows of \[8\] tokens of .*run\. Pass 0 too"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_work(corpus, tmp_path, monkeypatch, arguments, message):
    monkeypatch.setattr(RunFolder, "model", lambda *_: pytest.fail("a model was loaded"))
    places = {"RUN": make_run(tmp_path / "run", corpus)}
    places["OTHER"] = make_run(tmp_path / "other", zipf(tmp_path / "text", seed=2))
    places["FEW"] = make_run(tmp_path / "few", prepare(corpus.data_dir.parent, tmp_path / "rare", min_count=30))
    places["UNTRAINED"] = make_run(tmp_path / "untrained", corpus)
    (places["UNTRAINED"] / "best.keras").unlink()
    for name, place in places.items():
        arguments = [argument.replace(name, str(place)) for argument in arguments]
    refused(analyze, f"--output_dir={tmp_path}/out", *arguments, match=message)
    assert not (tmp_path / "out").exists()


def test_runs_that_count_words_otherwise_are_refused():
    runs = [{"path": name, "words": {"valid": words}, "settings": {}} for name, words in (("a", 10), ("b", 11))]
    refused(analyze.compare, runs, "valid", match="b has other words than a .* with the same --tokenizer")


def test_pictures_are_in_the_folder(analysed):
    folder, _ = analysed
    names = ["loss_by_frequency", "loss_by_previous", "contexts", "validations", "perplexity"]
    names.append("perplexity_by_tail_dropout")
    assert sorted(path.stem for path in (folder / "out").glob("*.png")) == sorted(names)
    for name in names:
        image = plt.imread(folder / "out" / f"{name}.png")
        assert image.shape[0] > 200 and image.shape[1] > 1000
        assert len(np.unique(image[..., 0])) > 20  # of red
