"""Training and evaluation on streams, by the programs, with the smallest body that carries a state."""

import json
import math
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_adaptive.data import StreamBatches, load_corpus
from keras_adaptive.evaluation import word_losses_of_streams
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.runs import assert_same_runs, evaluated, records, stopped
from tests.support.text import prepared, write_zipf
from tests.support.toy_body import ToyBody
from trainers import analyze, evaluate, train
from trainers.experiments import checks
from trainers.experiments.parts import PARTS, Part
from trainers.experiments.run_folder import RunFolder

pytestmark = pytest.mark.once


ROWS = 4
MODEL = ["--input=word", "--output=softmax", "--notie_words", "--body=toy", "--dim=8", "--dropout=0.3"]
STREAMS = ["--batching=streams", "--bptt=5", f"--batch_size={ROWS}"]  # few lengths to compile
TRAINING = ["--updates=24", "--evaluate_every=12", "--log_every=1", "--momentum=0.9", "--notensorboard"]
FLAGS = [*MODEL, *STREAMS, *TRAINING]


@pytest.fixture(scope="module", autouse=True)
def toy_body():
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(PARTS["body"], "toy", Part(ToyBody, "dim dropout"))
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return prepared(write_zipf(tmp_path_factory.mktemp("text"), words=30, lengths=(50, 12, 12))).data_dir


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    keras.utils.set_random_seed(1)
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    call(train, *FLAGS, f"--data_dir={corpus}", f"--run_dir={run_dir}")
    return run_dir


def test_the_rate_of_an_update_follows_its_length(trained, corpus):
    batches = StreamBatches(load_corpus(corpus).tokens("train"), 5, ROWS, seed=1)
    factors = np.array([batches.rate_factor(t) for t in range(24)])
    cosine = [1e-5 + (1 - 1e-5) * (1 + math.cos(math.pi * t / 24)) / 2 for t in range(24)]
    found = [one["learning_rate"] for one in records(trained) if "loss" in one]
    np.testing.assert_allclose(found, factors * cosine, rtol=1e-6)
    assert len(batches) < 24 and factors.max() > 2  # an epoch ended within


@pytest.mark.each_backend
def test_a_stopped_run_ends_the_same(trained, corpus, tmp_path, capsys):
    """It has dropout and random lengths, and stops within an epoch of the text and within a validation."""
    arguments = [*FLAGS, f"--data_dir={corpus}", f"--run_dir={tmp_path}/run"]
    for event, batch in (("on_train_batch_end", 3), ("on_test_batch_begin", 1)):
        with stopped(event, batch):
            call(train, *arguments)
    assert "update 4 of 24" in capsys.readouterr().out
    call(train, *arguments)
    assert "update 12 of 24, epoch 1 of 2" in capsys.readouterr().out
    assert_same_runs(trained, tmp_path / "run")
    assert len(records(trained)) == 26


@pytest.mark.each_backend
def test_validation_and_evaluation_carry_the_state(trained, corpus, capsys):
    """Validation carries the state through each stream, and an evaluation through the text."""
    model, data = RunFolder(trained).model("last"), load_corpus(corpus)
    tokens = np.asarray(data.tokens("valid"), "int32")
    stream = np.append(2, tokens)[None]
    result = evaluated(trained, "--model=last", "--block=7")
    whole = model.nll(stream[:, :-1], stream[:, 1:])
    assert result["perplexity"] == pytest.approx(math.exp(whole.mean()), rel=1e-6)
    assert result["blocks_of"] == "tokens with the state carried" and result["tokens"] == len(tokens)
    assert "state carried" in capsys.readouterr().out
    nll, words = word_losses_of_streams(model, data, "valid", 5, ROWS)
    np.testing.assert_array_equal(words, tokens)
    assert nll.mean() == pytest.approx(records(trained)[-1]["val_loss"], rel=1e-5)
    assert abs(nll.mean() / whole.mean() - 1) > 1e-5  # the streams begin without a state
    result = evaluated(trained, "--model=last", "--blocks_of=tokens", "--block=8")
    assert result["loss"] != pytest.approx(whole.mean(), rel=1e-5)
    refused(evaluate, f"--run_dir={trained}", "--context=3", match=r"--context belongs to --blocks_of=tokens\|lines")


def test_an_analysis_carries_the_state_too(trained, tmp_path):
    expected = evaluated(trained)["loss"]
    call(analyze, "--contexts=0", "--lengths=8", "--batch_size=1", f"--output_dir={tmp_path}", trained)
    (run,) = json.loads((tmp_path / "analysis.json").read_text())["runs"]
    assert run["loss"]["valid"] == pytest.approx(expected, rel=1e-6)
    assert run["contexts"][0]["loss"] != pytest.approx(expected, rel=1e-4)  # its windows begin without a state


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--bptt=4"], "bptt"),
        (["--batch_size=98"], r"from 1 to the number of tokens \(96\). Received: batch_size=98"),
        (["--micro_batches=3"], "--batch_size must be a multiple of .* --batch_size=4 --micro_batches=3"),
        (["--length=5"], r"--length belongs to --batching=blocks\|sentences"),
        (
            ["--body=transformer", "--num_heads=2", "--ffn_dim=8", "--num_blocks=1"],
            "--batching=streams needs a --body that carries its state .* Received: --body=transformer. Choose another",
        ),
    ],
)
def test_bad_flags_leave_no_run_behind(corpus, tmp_path, arguments, message):
    refused(train, *FLAGS, *arguments, f"--data_dir={corpus}", f"--run_dir={tmp_path}/run", match=message)
    assert not (tmp_path / "run").exists()


def test_streams_are_not_divided_among_replicas_in_part(monkeypatch):
    two, settings = SimpleNamespace(replicas=2), {"batch_size": 3, "micro_batches": 1}
    monkeypatch.setattr(checks, "FLAGS", SimpleNamespace(strategy="ddp"))
    checks.check_rows(two, settings, None)
    refused(checks.check_rows, two, settings, 3, match="a multiple of .* --strategy=ddp with 2 replicas")


def test_summary_counts_the_tokens_of_an_update(corpus, capsys):
    call(train, *FLAGS, "--summary", f"--data_dir={corpus}")
    assert "float32, 20 tokens at a time" in capsys.readouterr().out


def test_averages_are_validated_and_kept_as_the_best(corpus, tmp_path):
    """The rate makes validation worse at once, from the third validation on."""
    sgd = ["--optimizer=averaged_sgd", "--average_after=1", "--schedule=step_decay", "--max_rate=30", "--clip_norm=1"]
    flags = [one for one in FLAGS if not one.startswith("--momentum")]
    lengths = ["--updates=8", "--evaluate_every=1", f"--data_dir={corpus}", f"--run_dir={tmp_path}/run"]
    call(train, *flags, *sgd, "--weight_decay=1e-6", *lengths)
    losses = [one["val_loss"] for one in records(tmp_path / "run") if "val_loss" in one]
    begun = next(n for n in range(2, 8) if losses[n] > min(losses[: n - 1]))
    with np.load(tmp_path / "run" / "checkpoints" / "update_0000000008.npz") as kept:
        state = json.loads(str(kept["state"]))
    assert state["callbacks"][-1] == {"losses": losses} and begun < 7
    model = RunFolder(tmp_path / "run").model("last")
    nll, _ = word_losses_of_streams(model, load_corpus(corpus), "valid", 5, ROWS)
    assert nll.mean() == pytest.approx(losses[-1], rel=1e-5)
