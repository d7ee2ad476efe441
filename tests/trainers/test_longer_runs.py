"""Runs that end early, go on for longer than planned, or start from the weights of another."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from keras_adaptive.data import load_corpus
from tests.support.programs import call
from tests.support.quickstart import SHRUNK
from tests.support.refusals import refused
from tests.support.runs import assert_same_runs, evaluated, records
from tests.support.text import prepared, write_zipf
from trainers import evaluate, train
from trainers.experiments import checks
from trainers.experiments.experiment import Experiment
from trainers.experiments.run_folder import RunFolder

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Two corpora with different words and counts."""
    how = [{"words": 80 - 10 * seed, "seed": seed} for seed in range(2)]
    return [prepared(write_zipf(tmp_path_factory.mktemp("text"), **one)).data_dir for one in how]


def of_quick_start(run_dir, corpus, *flags):
    return [*SHRUNK, *flags, f"--data_dir={corpus}", f"--run_dir={run_dir}"]


def trained(run_dir, corpus, *flags):
    call(train, *of_quick_start(run_dir, corpus, *flags))
    return RunFolder(run_dir)


def not_trained(run_dir, corpus, *flags, match):
    refused(train, *of_quick_start(run_dir, corpus, *flags), match=match)


@pytest.fixture(scope="module")
def whole(corpora, tmp_path_factory):
    """A run of 6 updates, after which a cycle ends."""
    return trained(tmp_path_factory.mktemp("runs") / "whole", corpora[0], "--period=3")


def test_a_run_is_lengthened_bit_for_bit(whole, corpora, tmp_path, capsys):
    run = trained(tmp_path / "run", corpora[0], "--updates=3")  # one cycle over all updates
    changed = r"--updates=6 \(was 3\)\. .* rates so far do not change, .*pass --init_from=.*run and another"
    not_trained(tmp_path / "run", corpora[0], match=changed)
    assert run.flags()["updates"] == "3"
    damaged = RunFolder(shutil.copytree(run.path, tmp_path / "damaged"))
    for path in damaged.checkpoints.iterdir():
        path.write_bytes(b"PK")
    with pytest.warns(UserWarning, match="is damaged and is skipped"):
        not_trained(damaged.path, corpora[0], "--period=3", match="checkpoint")
    assert damaged.flags()["updates"] == "3"
    trained(tmp_path / "run", corpora[0], "--period=3")
    assert "update 3 of 6, epoch 2 of 2" in capsys.readouterr().out
    assert (run.flags()["updates"], run.flags()["period"]) == ("6", "3")
    assert_same_runs(run.path, whole.path)
    not_trained(run.path, corpora[0], "--period=3", "--updates=3", match=r"other flags: --updates=3 \(was 6\)")


@pytest.mark.parametrize(
    "flags, lengthens",
    [
        (["--updates=200", "--period=100"], True),
        (["--updates=200"], False),
        (["--updates=100"], False),
        (["--updates=50", "--period=100"], False),
        (["--updates=200", "--period=100", "--shrink=0.5"], True),
        (["--updates=200", "--period=100", "--max_rate=0.5"], False),
        (["--updates=200", "--period=100", "--dropout=0.2"], False),
        (["--updates=200", "--period=100", "--seed=2"], False),
    ],
)
def test_only_more_updates_at_the_same_rates_lengthen(flags, lengthens):
    assert Experiment.of_arguments(flags).lengthens(Experiment.of_arguments(["--updates=100"])) == lengthens


def test_a_step_between_any_two_updates_is_compared():
    first, second = (
        Experiment.of_arguments(["--schedule=step_decay", f"--decay_at={at}", f"--updates={updates}"])
        for at, updates in ((1001, 5_000), (1003, 10_000))
    )
    assert not second.lengthens(first)


def test_patience_ends_a_run(corpora, tmp_path, capsys):
    still = ["--max_rate=1e-30", "--min_rate=0", "--warmup_rate=0", "--evaluate_every=1"]
    for patience, update in ((1, 2), (1, 2), (2, 3)):  # the same command changes nothing, and more patience continues
        run = trained(tmp_path / "run", corpora[0], *still, f"--patience={patience}")
        printed = capsys.readouterr().out
        assert f"Trained {update} updates, of 6: {patience} validations brought no lower loss; best" in printed
        assert [one["update"] for one in records(run.path) if "val_loss" in one] == list(range(1, update + 1))


def test_patience_that_ends_a_run_before_averages_is_refused(monkeypatch):
    chosen = Experiment.of_arguments(["--optimizer=averaged_sgd", "--evaluate_every=10", "--updates=90"])
    values = {"run_dir": "run", "model_devices": 0, "tensorboard": False}
    for patience in (0, 7, 6):
        monkeypatch.setattr(checks, "FLAGS", SimpleNamespace(patience=patience, **values))
        if patience != 6:
            checks.check_flags(chosen)
    refused(checks.check_flags, chosen, match="--patience must be 0 or above 6, .* --patience=6 --average_after=5")


def test_a_run_starts_from_another_on_other_words(whole, corpora, tmp_path, capsys):
    flags = [f"--init_from={whole.path}", "--updates=3"]
    run = trained(tmp_path / "run", corpora[1], *flags, "--freeze=body")
    vocabularies = [load_corpus(corpus).vocabulary for corpus in corpora]
    shared = sum(word in vocabularies[0] for word in vocabularies[1].words)
    known = f"{shared} of the {len(vocabularies[1])} words"
    assert f"Starting from {whole.path}, which has {known}" in capsys.readouterr().out
    assert 4 < shared < len(vocabularies[1])
    old, new = whole.model("best"), run.model("last")
    same = [np.array_equal(*map(np.asarray, pair)) for pair in zip(old.body.get_weights(), new.body.get_weights())]
    assert all(same) and not np.array_equal(old.word_output.get_weights()[0], new.word_output.get_weights()[0])
    trained(tmp_path / "run", corpora[1], *flags, "--freeze=body")  # resumes
    assert "Starting" not in capsys.readouterr().out
    not_trained(tmp_path / "run", corpora[1], *flags, match=r"other flags: --freeze= \(was body\)")


SPELLED = ["--output=char_lstm", "--notie_words", "--output_units=8", "--char_dim=4"]


def test_another_output_is_trained_on_a_frozen_run(whole, corpora, tmp_path, capsys):
    flags = [*SPELLED, f"--init_from={whole.path}", "--freeze=input,body", "--updates=3"]
    run = trained(tmp_path / "run", corpora[0], *flags)
    assert "not used, and the CharLSTMSoftmax starts from random ones" in capsys.readouterr().out
    old, new = whole.model("best"), run.model("last")
    for part in ("word_input", "body"):
        for weight, its in zip(getattr(new, part).get_weights(), getattr(old, part).get_weights(), strict=True):
            np.testing.assert_array_equal(weight, its)
    results = [evaluated(run.path, *options) for options in ([], ["--within_vocabulary"])]
    assert [result["within_vocabulary"] for result in results] == [False, True]
    assert results[1]["perplexity"] < 0.99 * results[0]["perplexity"]
    match = "--within_vocabulary belongs to .* a run with AdaptiveSoftmax. Omit"
    refused(evaluate, f"--run_dir={whole.path}", "--within_vocabulary", match=match)


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--freeze=body"], "pass --init_from=RUN too"),
        (["--init_from={run}", "--freeze=head"], "--freeze must be input, body or output, .* --freeze=head"),
        (["--init_from={run}", "--freeze=input,body,output"], "leaves nothing to train"),
        (["--init_from={run}", "--freeze=output"], "--freeze must list both input and output, .* --freeze=output"),
        (["--init_from={run}", "--freeze=input,body"], "--freeze must list both .* --freeze=input,body"),
        (["--init_from={run}", "--ffn_dim=64"], "parts and sizes: pass its flags. The shape of .* 64"),
        (["--init_from={run}", "--dim=32"], "of the word vectors of .* is .32, 8., and .16, 4. in the source"),
        (["--init_from={run}", "--input=word", "--output=softmax", "--cutoffs="], "belongs to --input=adaptive"),
        (["--init_from={run}", "--num_heads=1"], "The setting body.blocks.0.mixer.num_heads is 1, and 2"),
        (["--init_from={run}", "--freeze=body", "--clip_parts=body"], "--clip_parts must have a part .* --freeze=body"),
        (["--clip_norm=1e39"], "clip_norm=1e39: 1e[+]39 is not a number in the range"),
        (["--clip_norm=1e308"], "clip_norm=1e308: 1e[+]308 is not a number in the range"),
        (["--init_from=nowhere"], "nowhere holds no"),
        ([*SPELLED, "--init_from={run}", "--ffn_dim=64"], "parts and sizes: pass its flags. The shape of .* 64"),
        ([*SPELLED, "--init_from={run}", "--freeze=body,output"], "freeze input and body only. .* a frozen CharLSTMSo"),
        ([*SPELLED, "--max_bytes=1"], "`max_bytes` must be at least 14, the number of bytes of 'made.*max_bytes=1."),
    ],
)
def test_a_start_that_does_not_fit_is_refused_and_leaves_no_run(whole, corpora, tmp_path, flags, message):
    not_trained(tmp_path / "run", corpora[1], *(flag.format(run=whole.path) for flag in flags), match=message)
    assert not (tmp_path / "run").exists()


def test_a_trial_of_a_recipe_for_another_vocabulary(corpora, tmp_path, capsys):
    """Its cutoffs, validations and warm-up do not fit."""
    recipe = ["--cutoffs=20,4000", "--evaluate_every=100", "--warmup=50"]
    run = trained(tmp_path / "run", corpora[0], *recipe, "--updates=2")
    printed = capsys.readouterr().out
    assert "A trial: --updates=2 is below --evaluate_every=100" in printed
    size = len(run.codec.vocabulary)
    assert f"Training with --cutoffs={run.flags()['cutoffs']} for {size} words, since 20,4000 do not fit" in printed
    assert [record["update"] for record in records(run.path) if "val_loss" in record] == [2]
    assert run.model().word_output.cutoffs == tuple(map(int, filter(None, run.flags()["cutoffs"].split(","))))
    trained(run.path, corpora[0], *recipe, "--updates=2")  # complete
    not_trained(run.path, corpora[0], *recipe, "--updates=200", match=r"other flags: --updates=200 \(was 2\)")
