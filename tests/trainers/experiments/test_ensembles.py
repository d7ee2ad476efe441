"""Ensembles of runs and of n-gram models, whose losses are made up here."""

import json
import math

import numpy as np
import pytest

from keras_adaptive import evaluation
from keras_adaptive.data import SPLITS
from keras_adaptive.metrics import mixture_nll, mixture_weights
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.text import prepared, write_zipf
from tests.support.tiny import language_model
from tests.support.toy_body import ToyBody
from trainers import evaluate, generate, train
from trainers.experiments import ensembles
from trainers.experiments.run_folder import RunFolder
from trainers.experiments.word_losses import WordLosses, write_losses, write_ngrams

pytestmark = pytest.mark.once

LENGTH = 8


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return prepared(write_zipf(tmp_path_factory.mktemp("text"), words=20))


def made_up(corpus, split, seed):
    words = np.asarray(corpus.words(split))
    return np.random.default_rng([seed, len(split)]).exponential(4.0, len(words)), words


def make_folder(path, corpus, flags):
    path.mkdir(parents=True)
    RunFolder(path).write(f"--data_dir={corpus.data_dir}\n{flags}\n", corpus.vocabulary, corpus.metadata)
    return path


def make_ngrams(path, corpus, seed):
    make_folder(path, corpus, "--order=5")
    for split in ("valid", "test"):
        write_ngrams(path, corpus, split, WordLosses(*made_up(corpus, split, seed), 7))
    return path


@pytest.fixture
def folders(corpus, tmp_path, monkeypatch):
    """Two runs and an n-gram model with losses drawn by the seeds 1, 2 and 3; `.evaluated` lists the work."""
    runs = [make_folder(tmp_path / name, corpus, f"--length={LENGTH}{more}") for name, more in MODELS.items()]
    for seed, run in enumerate(runs, 1):
        (run / "best.keras").write_bytes(bytes([seed]))
        (run / "last.keras").write_bytes(bytes([seed + 10]))
    evaluated = []

    def word_losses(model, corpus, split, *how, report, **by_lines):
        evaluated.append((model.seed, split, *how, *by_lines.values()))
        return made_up(corpus, split, model.seed)

    monkeypatch.setattr(RunFolder, "model", lambda self, name: Model(self.model_file(name).read_bytes()[0]))
    monkeypatch.setattr(RunFolder, "structure", RunFolder.model)
    monkeypatch.setattr(evaluation, "word_losses", word_losses)
    monkeypatch.setattr(evaluation, "word_losses_of_streams", word_losses)
    return Folders([*runs, make_ngrams(tmp_path / "ngrams", corpus, 3)], evaluated)


MODELS = {"blocks": "", "streams": "\n--batching=streams"}
BODIES = [language_model().body, ToyBody(2)]  # of these models


class Folders(list):
    def __init__(self, paths, evaluated):
        super().__init__(paths)
        self.evaluated = evaluated


class Model:
    word_output, trained_length = None, LENGTH

    def __init__(self, seed):
        self.seed, self.body = seed, BODIES[seed % 10 - 1]

    def for_inference(self):
        return self

    def count_params(self):
        return 5


def ensemble_of(paths, *arguments):
    """Returns what `python -m trainers.evaluate` writes for these folders."""
    output = paths[0].parent / "out" / "ensemble.json"
    call(evaluate, f"--run_dir={','.join(map(str, paths))}", f"--output={output}", *arguments)
    return json.loads(output.read_text())


def test_probabilities_are_averaged_with_equal_weights_and_with_the_best_of_valid(folders, corpus, capsys):
    result = ensemble_of(folders, "--split=test")
    nll = {split: np.stack([made_up(corpus, split, seed)[0] for seed in (1, 2, 3)]) for split in ("valid", "test")}
    best = mixture_weights(nll["valid"])
    for name, weights in (("equal", [1 / 3] * 3), ("optimal", best)):
        assert result[name]["weights"] == pytest.approx(weights)
        for split in nll:
            loss = mixture_nll(nll[split], weights).mean()
            assert result[name]["loss"][split] == pytest.approx(loss)
            assert result[name]["bits"][split] == pytest.approx(loss / math.log(2))
            assert result[name]["perplexity"][split] == pytest.approx(math.exp(loss))
    for member, losses in zip(result["members"], nll["test"], strict=True):
        assert member["loss"]["test"] == pytest.approx(losses.mean())
    assert [member["name"] for member in result["members"]] == ["blocks", "streams", "ngrams"]
    assert result["words"] == {split: nll[split].shape[1] for split in nll} and result["unit"] == "word"
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["weight", "valid", "test"] in printed
    assert ["ngrams", f"{best[2]:.4f}", *(f"{math.exp(nll[split][2].mean()):,.2f}" for split in nll)] in printed
    assert printed[-2][:2] == ["optimal", "weights"] and len(printed[-2]) == 4


def test_each_run_is_read_as_it_was_trained_and_once(folders):
    result = ensemble_of(folders, "--split=test")
    assert folders.evaluated == [
        *((1, split, LENGTH // 2, LENGTH // 2, 16, False) for split in ("valid", "test")),
        *((2, split, LENGTH, 1) for split in ("valid", "test")),
    ]
    assert [member["blocks"] and member["blocks"]["of"] for member in result["members"]] == ["tokens", "streams", None]
    assert ensemble_of(folders[::-1], "--split=valid")["optimal"]["loss"].keys() == {"valid"}
    assert len(folders.evaluated) == 4
    ensemble_of(folders, "--blocks_of=lines", "--block=4", "--context=2", "--batch_size=3")
    assert folders.evaluated[4:] == [(seed, "valid", 4, 2, 3, True) for seed in (1, 2)]
    ensemble_of(folders, "--model=last")
    assert [one[0] for one in folders.evaluated[6:]] == [11, 12]
    ensemble_of(folders)
    assert len(folders.evaluated) == 8  # the losses of the best and of the last models are both kept


OTHER_UNIT = "other is a run of characters and .*blocks is a run of words: .* different units cannot be averaged"


@pytest.mark.parametrize(
    "seed, how, message",
    [
        (5, {}, "other has another text than .*blocks: only runs of the same corpus"),
        (1, {"min_count": 30}, r"has another vocabulary \(\d+ words\) than .*blocks \(24\): .* cannot be averaged"),
        (1, {"tokenizer": "characters"}, OTHER_UNIT),
        (1, {"subwords": 3}, "other is a run of sub-words and .*blocks is a run of words"),
    ],
)
def test_runs_that_make_no_ensemble_are_refused_before_any_work(folders, corpus, tmp_path, seed, how, message):
    how = how or {"vocabulary": corpus.vocabulary}
    data = prepared(write_zipf(tmp_path / "text", words=20, seed=seed), **how)
    other = make_ngrams(tmp_path / "other", data, 4)
    refused(evaluate, f"--run_dir={folders[0]},{other}", "--output=/dev/null", match=message)
    assert not folders.evaluated


def test_members_that_scored_other_words_are_refused():
    words = [np.array([4, 5]), np.array([4, 6])]
    losses = {split: [WordLosses(np.ones(2), some, 0) for some in words] for split in SPLITS}
    match = "must score the same words of train. Received: 2 and 2 words, which differ"
    refused(ensembles.evaluate, losses, match=match)


def test_bad_flags_and_folders_are_refused_in_one_line(folders, corpus, tmp_path):
    run, _, ngrams = folders
    refused(evaluate, f"--run_dir={run},{ngrams}", match="Several runs need --output")
    whole = "--within_vocabulary supports a single run"
    refused(evaluate, f"--run_dir={run},{ngrams}", "--output=/dev/null", "--within_vocabulary", match=whole)
    refused(evaluate, f"--run_dir={run},{run}/../blocks", "--output=/dev/null", match="is given twice")
    refused(evaluate, f"--run_dir={run},{tmp_path}/none", "--output=/dev/null", match="none holds no run")
    alone = "holds the losses of an n-gram model: only trainers.analyze, and trainers.evaluate with several runs"
    refused(evaluate, f"--run_dir={ngrams}", match=alone)
    refused(generate, f"--run_dir={ngrams}", match=alone)
    training = [f"--data_dir={corpus.data_dir}", "--length=8", "--cutoffs=4", "--warmup=0"]
    refused(train, f"--run_dir={ngrams}", *training, match="holds an n-gram model, not a training run")
    output = f"--output={tmp_path}/new.json"
    losses = ngrams / "losses_valid.npz"
    nll, words = made_up(corpus, "valid", 3)
    for bad in (nll[1:], nll * np.nan, np.stack([nll, nll])):
        write_ngrams(ngrams, corpus, "valid", WordLosses(bad, words, 7))
        refused(evaluate, f"--run_dir={run},{ngrams}", output, match="valid.npz .* a finite loss for each")
    losses.write_bytes(losses.read_bytes()[:100])
    refused(evaluate, f"--run_dir={run},{ngrams}", output, match="losses_valid.npz is not a file of")
    losses.unlink()
    again = "losses_valid.npz is missing or contains the losses of another text: make the folder again"
    refused(evaluate, f"--run_dir={run},{ngrams}", output, match=again)
    write_losses(losses, "text of another corpus", WordLosses(*made_up(corpus, "valid", 3), 7))
    refused(evaluate, f"--run_dir={run},{ngrams}", output, match=again)


def test_one_run_may_be_written_elsewhere(folders, tmp_path):
    call(evaluate, f"--run_dir={folders[0]}", f"--output={tmp_path}/new/one.json")
    assert json.loads((tmp_path / "new" / "one.json").read_text())["split"] == "valid"
    assert not (folders[0] / "evaluation_valid.json").exists()
