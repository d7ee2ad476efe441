"""Lines of progress, and the bounds of what a program does for one text."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_adaptive import evaluation
from keras_adaptive.layers import CausalAttention, LearnedPositions, TransformerBlock, TransformerDecoder
from keras_adaptive.models import LanguageModel, reading
from keras_adaptive.text import scoring
from tests.support.programs import parsed
from tests.support.refusals import refused
from tests.support.tiny import VOCABULARY, language_model
from tests.support.toy_body import ToyBody
from trainers import score
from trainers.support import progress

pytestmark = pytest.mark.once


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when told to."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    return clock


def test_progress_is_a_line_now_and_then_with_the_time_left(clock, capsys):
    report = progress.Progress("batches of valid")
    for done in range(1, 41):
        clock.now += 3
        report(done, 1240)
    clock.now += 10
    report(41)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "4 of 1,240, 1:01:48 left (batches of valid)" and len(lines) == 11
    assert lines[-1] == "41 (batches of valid)"


def test_training_is_told_of_every_30_seconds(clock, capsys):
    lines = progress.TrainingLines(SimpleNamespace(update=1200), 5000)
    for seconds in (29, 1):
        clock.now += seconds
        lines.on_train_batch_end(0, {"loss": 5.25, "tokens_per_second": 12_345.6, "hours_left": 2.5})
    clock.now += 30
    lines.on_test_batch_end(6)
    clock.now += 30
    lines.on_train_batch_end(0, {"loss": 5.25})
    assert capsys.readouterr().out.splitlines() == [
        "update 1,200 of 5,000: loss 5.2500, 12,346 tokens/s, 2:30:00 left",
        "update 1,200 of 5,000: validation, batch 7",
        "update 1,200 of 5,000: loss 5.2500",
    ]


def test_the_bar_shows_no_hours_and_only_updates_that_were_skipped():
    lines = progress.TrainingLines(SimpleNamespace(update=1200), 5000)
    for skipped, shown in ((0.0, {"loss"}), (2.0, {"loss", "skipped"})):
        for report in (lines.on_train_batch_end, lines.on_epoch_end):
            logs = {"loss": 5.25, "hours_left": 2.5, "tokens_per_second": 1.0, "skipped": skipped}
            report(0, logs)
            assert set(logs) == {*shown, "tokens_per_second"}


def test_a_terminal_is_told_of_validations_which_the_progress_bar_leaves_out(clock, capsys):
    lines = progress.TrainingLines(SimpleNamespace(update=1200), 5000, with_bar=True)
    clock.now += 30
    lines.on_train_batch_end(0, {"loss": 5.25})
    lines.on_test_batch_end(6)
    assert capsys.readouterr().out == "\nupdate 1,200 of 5,000: validation, batch 7\n"


@pytest.fixture
def line():
    """The inputs and targets of a line of 21 tokens."""
    ids = np.random.default_rng(1).integers(4, VOCABULARY, 21).astype("int32")
    return np.append(2, ids[:-1]).astype("int32"), ids


@pytest.fixture
def small(monkeypatch):
    """Windows of 8 tokens, scored 4 at a time."""
    monkeypatch.setattr(reading, "LONGEST", 8)
    monkeypatch.setattr(scoring, "SEGMENT", 4)


def check_windows(model, line, log_probs):
    """Compares the log-probabilities of a line with those of windows of 8 tokens, half of them context."""
    for start, stop in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 21)):
        begin = max(start - 4, 0)
        expected = -model.nll(*(ids[None, begin:stop] for ids in line))[0, start - begin :]
        np.testing.assert_allclose(log_probs[start:stop], expected, atol=5e-6)


def test_a_long_line_is_read_in_windows_that_overlap(small, line):
    model = language_model()
    (log_probs, ranks), (short, _) = scoring.score_lines(model, [line[1], line[1][:3]], [line[1], line[1][:3]])
    assert log_probs.shape == ranks.shape == (21,)
    check_windows(model, line, log_probs)
    np.testing.assert_allclose(short, log_probs[:3], atol=5e-6)


def test_a_line_longer_than_the_body_reads_is_read_in_windows(line):
    parts = language_model()
    block = TransformerBlock(12, CausalAttention(2))
    body = TransformerDecoder([block], 8, positions=LearnedPositions(8))
    model = LanguageModel(parts.word_input, body, parts.word_output)
    ((log_probs, _),) = scoring.score_lines(model, [line[1]], [line[1]])
    check_windows(model, line, log_probs)


@pytest.mark.parametrize(
    "content, lines", [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3), (b"a" * 2**20 + b"\n", 1)], ids=range(5)
)
def test_lines_are_counted_without_their_contents(tmp_path, content, lines):
    (tmp_path / "text").write_bytes(content)
    with parsed(score, "--run_dir=none", f"--input={tmp_path}/text"):
        assert score.count_lines() == lines


def test_a_body_with_a_state_of_fixed_size_reads_a_whole_line(small, line):
    parts = language_model()
    model = LanguageModel(parts.word_input, ToyBody(8), parts.word_output)
    assert evaluation.state_grows(parts.body) and not evaluation.state_grows(model.body)
    ((log_probs, _),) = scoring.score_lines(model, [line[1]], [line[1]])
    np.testing.assert_allclose(log_probs, -model.nll(line[0][None], line[1][None])[0], atol=5e-6)


TOKENS = np.array([*[5] * 9, 2, *[6] * 3, 2, *[7] * 25, 2])  # the third line is long
CORPUS = SimpleNamespace(
    verify=lambda split: None,
    tokens=lambda split: TOKENS,
    words=lambda split: TOKENS,
    word_starts=lambda split: np.arange(40),
)


def test_windows_of_attention_are_bounded(monkeypatch):
    model, reported = language_model(), []
    expected, _ = evaluation.word_losses(model, CORPUS, "valid", 8, 4, 8)
    monkeypatch.setattr(evaluation, "PAIRS", 300)  # two windows of 12 tokens
    found, _ = evaluation.word_losses(model, CORPUS, "valid", 8, 4, 8, report=lambda *at: reported.append(at))
    np.testing.assert_allclose(found, expected, atol=5e-6)
    assert reported == [(16, 40), (32, 40), (40, 40)]
    monkeypatch.setattr(evaluation, "LONGEST", 20)
    for block, by_lines in ((21, False), (1_000_000, False), (8, True)):
        match = "A window may have at most 20 tokens, .* Received: windows of up to [234]"
        refused(evaluation.word_losses, model, CORPUS, "valid", block, 0, 8, by_lines, match=match)


@pytest.mark.parametrize("body, rows", [(ToyBody(8), 2), (None, 1)], ids=["state of fixed size", "attention"])
def test_long_windows_are_read_in_segments(monkeypatch, body, rows):
    """Memory is bounded for any block: by few tokens at a time, and by no more rows than windows."""
    parts, read, reported = language_model(), [], []
    model = LanguageModel(parts.word_input, body or parts.body, parts.word_output)
    expected, _ = evaluation.word_losses(model, CORPUS, "valid", 20, 0, 8)
    monkeypatch.setattr(evaluation, "SEGMENT", 8)
    monkeypatch.setattr(evaluation, "PAIRS", 20 * 8)
    nll_of = type(model.word_output).nll
    nll = lambda output, hidden, targets: read.append(tuple(targets.shape)) or nll_of(output, hidden, targets)  # noqa: E731
    monkeypatch.setattr(type(model.word_output), "nll", nll)
    found, _ = evaluation.word_losses(model, CORPUS, "valid", 20, 0, 8, report=lambda *at: reported.append(at))
    np.testing.assert_allclose(found, expected, atol=5e-6)
    assert set(read) == {(rows, 8), (rows, 4)} and len(reported) == 6 // rows and reported[-1] == (40, 40)
