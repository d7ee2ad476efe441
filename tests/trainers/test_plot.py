import json
import math
import shutil

import matplotlib.pyplot as plt
import numpy as np
import pytest

from keras_adaptive.files import read_json_lines
from tests.support import programs
from tests.support.programs import call
from tests.support.refusals import refused
from trainers import plot
from trainers.plots import run as plots

pytestmark = pytest.mark.once

LOG = [
    {"update": 10, "loss": 6.0, "learning_rate": 0.1},
    {"update": 20, "loss": 5.0, "learning_rate": 0.2},
    {"update": 20, "val_loss": 4.5, "val_perplexity": math.exp(4.5)},
    {"update": 30, "loss": None, "learning_rate": 0.3},
]
BINS = [
    {"low": 0, "high": 1, "tokens": 100, "nll": 9.0},
    {"low": 1, "high": 1000, "tokens": 300, "nll": 5.0},
    {"low": 1000, "high": None, "tokens": 600, "nll": 2.0},
]
SCORES = [
    {"tokens": ["The", "$cat$", "sat", "</s>"], "log_probs": [-1.0, -20.0, -3.0, -0.1]},
    {"tokens": ["incomprehensibly", "so", "</s>"], "log_probs": [-9.0, -2.0, -0.1]},
]


def json_lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "log.jsonl").write_text(json_lines(LOG))
    (tmp_path / "evaluation_valid.json").write_text(json.dumps({"loss": 3.6, "by_frequency": BINS}))
    (tmp_path / "score.jsonl").write_text(json_lines(SCORES))
    return tmp_path


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_every_picture_is_drawn_into_the_run_folder(run_dir):
    shutil.copy(run_dir / "evaluation_valid.json", run_dir / "evaluation_test.json")
    drawn = plots.draw_run(run_dir)
    by_frequency = ["loss_by_frequency_test.png", "loss_by_frequency_valid.png"]
    assert [path.name for path in drawn] == ["learning_curve.png", *by_frequency, "surprisal.png"]
    for path in drawn:
        image = plt.imread(path)
        assert path.parent == run_dir
        assert image.shape[0] > 200 and image.shape[1] > 1000
        assert len(np.unique(image[..., 0])) > 20  # of red


def test_what_the_run_has_not_written_is_named_and_left_out(run_dir, capsys):
    (run_dir / "evaluation_valid.json").unlink()
    (run_dir / "score.jsonl").write_text("")
    assert [path.name for path in plots.draw_run(run_dir)] == ["learning_curve.png"]
    printed = capsys.readouterr().out
    assert "loss_by_frequency_*.png: not drawn" in printed
    assert "surprisal.png: not drawn" in printed


def test_learning_curve_shows_the_records():
    top, bottom = plots.plot_learning_curve(LOG, "run").axes[:2]
    train, valid = top.lines
    assert train.get_xydata().tolist() == [[10, 6], [20, 5]]
    assert valid.get_xydata().tolist() == [[20, 4.5]]
    assert f"{math.exp(4.5):.1f}" in valid.get_label()
    assert bottom.lines[0].get_xydata().tolist() == [[10, 0.1], [20, 0.2], [30, 0.3]]


def test_perplexities_stand_at_their_losses():
    figure = plots.plot_learning_curve(LOG, "run")
    figure.canvas.draw()
    right = figure.axes[0].child_axes[0]
    labels = {text.get_text(): text.get_position()[1] for text in right.get_yticklabels()}
    assert labels == {"100": pytest.approx(math.log(100)), "200": pytest.approx(math.log(200))}


def test_a_run_that_diverged_is_drawn():
    figure = plots.plot_learning_curve([{"update": update, "loss": 900.0 * update} for update in (1, 2)], "run")
    figure.canvas.draw()
    (train,) = figure.axes[0].lines
    assert train.get_xydata().tolist() == [[1, 900], [2, 1800]]


def test_updates_done_again_after_a_resume_count_once():
    records = [{"update": update, "loss": loss} for update, loss in [(10, 6.0), (20, 5.0), (10, 5.5)]]
    assert plots.curve(records, "loss") == ([10, 20], [5.5, 5.0])


@pytest.mark.parametrize("low, high, numbers", [(90, 600, [100, 200, 500]), (1, 3, [1, 2]), (1.5, 1.9, [])])
def test_round_numbers(low, high, numbers):
    assert plots.round_numbers(low, high) == numbers


def test_loss_by_frequency_shows_the_bins():
    top, bottom = plots.plot_loss_by_frequency(BINS, "run").axes
    assert [bar.get_height() for bar in top.patches] == [9, 5, 2]
    assert [bar.get_height() for bar in bottom.patches] == pytest.approx([0.1, 0.3, 0.6])
    assert [tick.get_text() for tick in bottom.get_xticklabels()] == ["0", "1 – 999", "1,000 +"]
    assert top.lines[0].get_label() == "all words: 3.60"  # 0.1 · 9 + 0.3 · 5 + 0.6 · 2


def test_surprisal_is_in_bits_and_in_order():
    figure = plots.plot_surprisal(SCORES, "run")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[::2] == ["The", "$cat$", "sat", "</s>", "incomprehensibly", "so", "</s>"]
    assert texts[1::2] == ["1.4", "28.9", "4.3", "0.1", "13.0", "2.9", "0.1"]
    assert not any(text.get_parse_math() for text in figure.axes[0].texts)


def test_words_of_surprisal_are_readable():
    words = ["w" * (1 + number % 17) for number in range(150)]
    figure = plots.plot_surprisal([{"tokens": words, "log_probs": [-20.0] * 150}], "run")
    figure.canvas.draw()
    axes = figure.axes[0]
    boxes = [box.get_window_extent() for box in axes.patches]
    assert len(boxes) == 150
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
        for text in axes.texts[2 * number : 2 * number + 2]:
            extent = text.get_window_extent()
            assert box.x0 < extent.x0 and extent.x1 < box.x1
            assert box.y0 < extent.y0 and extent.y1 < box.y1
            assert text.get_fontsize() > 6


def test_a_passage_is_cut():
    record = {"tokens": ["a"] * 100, "log_probs": [-1.0] * 100}
    assert [len(line) for line in plots.passage([record] * 3)] == [100, plots.MAX_WORDS - 100]


def test_a_word_wider_than_the_page_is_shortened():
    assert plots.wrap([[("a" * 100, 1.0)]], 10) == [(0, 0, 10, "a" * 9 + "…", 1.0)]


def test_a_line_that_is_being_written_does_not_count(tmp_path):
    (tmp_path / "log.jsonl").write_text(json_lines(LOG) + '{"update": 40, "lo')
    assert read_json_lines(tmp_path / "log.jsonl") == LOG


def test_several_runs_are_drawn(run_dir):
    second = run_dir / "second"
    second.mkdir()
    (second / "log.jsonl").write_text(json_lines(LOG))
    call(plot, run_dir, second)
    assert (run_dir / "surprisal.png").exists()
    assert (second / "learning_curve.png").exists()


@pytest.mark.parametrize("name, message", [("missing", "is not a folder"), ("", "has no results to draw")])
def test_a_folder_without_a_run_is_refused(tmp_path, name, message):
    refused(plot, tmp_path / name, match=message)


@pytest.mark.processes
def test_the_command(run_dir, forks):
    done = programs.run("-m", "trainers.plot", run_dir)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(run_dir / "surprisal.png")


@pytest.mark.processes
def test_matplotlib_that_is_missing_is_asked_for_in_one_line(run_dir):
    code = "import runpy, sys; sys.modules['matplotlib'] = None; runpy.run_module('trainers.plot', run_name='__main__')"
    done = programs.run("-c", code, run_dir)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert 'pip install "keras_adaptive[plots]"' in done.stderr
