"""Pictures of trainers.analyze: what is drawn for an analysis made by hand."""

import itertools

import matplotlib.pyplot as plt
import pytest

from trainers.plots import STYLE
from trainers.plots import analysis as plots

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


WORDS = {"name": "perplexity", "unit": "word", "digits": 2}
CHARACTERS = {"name": "bits", "unit": "character", "digits": 4}


def example(runs, differing=("tail_dropout",), values=None, measure=WORDS):
    """An analysis of so many runs."""

    def one(number):
        bins = [
            {"low": low, "high": high, "tokens": 10 * (place + 1), "nll": 9.0 - 2 * place + number / 10}
            for place, (low, high) in enumerate(((1, 10), (10, 100), (100, 1000)))
        ]
        points = [
            {"length": 64, "context": context, "perplexity": 100 - context + number, "bits": 2 - context / 100}
            for context in (32, 0)
        ]
        return {
            "name": f"a_run_with_a_long_name_{number}",
            "settings": dict.fromkeys(differing, str(values[number] if values else number / 10)),
            "words": {"valid": 60, "test": 60},
            "perplexity": {"valid": 100 + number, "test": 110 - 2 * number},
            "bits": {"valid": 1.25 + number / 10, "test": 1.5},
            "by_frequency": bins,
            "by_previous": bins,
            "contexts": points,
            "validations": [{"update": update, "loss": 5 - update / 100 + number} for update in (100, 200)],
            "by_bucket": [
                {"most": 500 // place, "least": 400 // place, "tokens": 4, "nll": place * (2.0 - number / 4)}
                for place in range(1, 26)
            ],
            "by_position": [{"position": 1, "probability": 0.5}, {"position": 3, "probability": 0.75 - number / 4}],
            "by_length": [
                {"length": 2, "probability": [0.5, 0.75, 1.0]},
                {"length": 4, "probability": [0.25, 0.5, 0.5, 1.0 - number / 4, 0.5]},
            ],
        }

    every = [one(number) for number in range(runs)]
    return {"split": "valid", "measure": measure, "differing": list(differing), "baseline": None, "runs": every}


def lines(axes):
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines}


def texts(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_losses_are_drawn_for_each_run_and_above_the_best():
    figure = plots.plot_losses(example(2), "by_frequency", "the word")
    top, middle, bottom = figure.axes
    assert lines(top) == {
        "a_run_with_a_long_name_0 (100.00)": [[0, 9.0], [1, 7.0], [2, 5.0]],
        "a_run_with_a_long_name_1 (101.00)": [[0, 9.1], [1, 7.1], [2, 5.1]],
    }
    assert [line.get_ydata().tolist() for line in middle.lines] == [[0] * 3, pytest.approx([0.1] * 3)]
    assert [bar.get_height() for bar in bottom.patches] == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    assert [tick.get_text() for tick in bottom.get_xticklabels()] == ["1 –\n9", "10 –\n99", "100 –\n999"]
    assert texts(figure.legends[0]) == list(lines(top))


def test_a_bin_that_a_run_does_not_have_is_left_out():
    analysis = example(2)
    analysis["runs"][0]["by_frequency"] = analysis["runs"][0]["by_frequency"][1:]
    top, middle, bottom = plots.plot_losses(analysis, "by_frequency", "the word").axes
    assert [len(line.get_xdata()) for line in top.lines] == [2, 3]
    assert [line.get_xdata().tolist() for line in middle.lines] == [[1, 2], [1, 2]]
    assert bottom.patches[0].get_height() == 0


def test_contexts_are_drawn_in_order():
    figure = plots.plot_contexts(example(2))
    drawn = lines(figure.axes[0])
    assert drawn["a_run_with_a_long_name_1"] == [[0, 101], [32, 69]]
    assert texts(figure.legends[0])[-1] == "64 tokens at a time"


def test_lengths_with_one_context_are_drawn_in_order():
    analysis = example(2)
    for number, run in enumerate(analysis["runs"]):
        run["contexts"] = [{"length": n, "context": 0, "perplexity": 900 / n + number} for n in (128, 64, 256)]
    figure = plots.plot_contexts(analysis)
    points = [[n, 900 / n + 1] for n in (64, 128, 256)]
    assert lines(figure.axes[0])["a_run_with_a_long_name_1"] == points
    assert figure.axes[0].get_xlabel() == "tokens of a window"


def test_eight_runs_are_told_apart_and_fit():
    analysis = example(8)
    for figure in (
        plots.plot_losses(analysis, "by_previous", "the previous word"),
        plots.plot_contexts(analysis),
        plots.plot_positions(analysis),
    ):
        styles = {(line.get_color(), line.get_marker()) for line in figure.axes[0].lines[:8]}
        assert len(styles) == 8
        with plt.rc_context(STYLE):
            figure.set_layout_engine("constrained")
            figure.canvas.draw()
        box = figure.legends[0].get_window_extent()
        assert 0 <= box.x0 and box.x1 <= figure.bbox.x1
        assert not any(box.overlaps(axes.get_tightbbox()) for axes in figure.axes)


def test_validations_have_a_line_for_each_run():
    analysis = example(3)
    analysis["runs"][1]["validations"] = []
    first, last = plots.plot_validations(analysis).axes[0].lines
    assert first.get_xydata().tolist() == [[100, 4], [200, 3]] and last.get_ydata().tolist() == [6, 5]


def test_perplexities_stand_side_by_side():
    axes = plots.plot_perplexity(example(2)).axes[0]
    assert [[bar.get_width() for bar in bars] for bars in axes.containers] == [[100, 101], [110, 108]]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        "a_run_with_a_long_name_0\ntail_dropout=0.0",
        "a_run_with_a_long_name_1\ntail_dropout=0.1",
    ]


def test_perplexity_against_the_one_number_that_differs():
    figure = plots.plot_flag(example(3, values=["0.3", "0.1", "0.2"]))
    assert lines(figure.axes[0]) == {
        "validation": [[0.1, 101], [0.2, 102], [0.3, 100]],
        "test": [[0.1, 108], [0.2, 106], [0.3, 110]],
    }
    assert figure.axes[0].get_xscale() == "linear"
    assert plots.plot_flag(example(3, values=["16", "32", "128"])).axes[0].get_xscale() == "log"


@pytest.mark.parametrize(
    "analysis", [example(2, ("dim", "seed")), example(1, ()), example(2, ("cutoffs",), ["8", "8,12"])]
)
def test_there_is_no_such_picture_otherwise(analysis):
    assert plots.numbers(analysis) is None


def test_the_right_word_by_its_position():
    figure = plots.plot_positions(example(2))
    (axes,) = figure.axes
    assert lines(axes) == {
        "a_run_with_a_long_name_0 (100.00)": [[1, 0.5], [3, 0.75]],
        "a_run_with_a_long_name_1 (101.00)": [[1, 0.5], [3, 0.5]],
    }
    assert axes.get_title() == "Probability of the correct word by position after The, valid"


def test_the_gain_over_the_baseline_in_each_bucket():
    """The gain is the log-probability of a run minus that of the baseline; the baseline has no line of its own."""
    analysis = example(3)
    analysis["baseline"] = analysis["runs"][1]["name"]
    figure = plots.plot_gains(analysis)
    best, last, zero = figure.axes[0].lines
    assert best.get_xydata().tolist() == [[place, pytest.approx(-place / 4)] for place in range(1, 26)]
    assert last.get_ydata().tolist() == pytest.approx([place / 4 for place in range(1, 26)])
    assert zero.get_ydata() == [0, 0] and len(texts(figure.legends[0])) == 2
    ticks = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert ticks == ["1\n400", "5\n80", "9\n44", "13\n30", "17\n23", "21\n19", "25\n16"]


def test_pictures_of_a_baseline_and_without_contexts(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "draw", lambda plot, path: plot())
    analysis = example(2)
    analysis["baseline"] = "runs/a_run_with_a_long_name_0"
    analysis["runs"][0]["name"] = analysis["baseline"]
    for run in analysis["runs"]:
        run["contexts"] = run["validations"] = []
    drawn = [path.stem for path in plots.draw_analysis(analysis, tmp_path)]
    assert drawn[2:4] == ["perplexity", "gain_over_a_run_with_a_long_name_0"]


def test_a_run_without_the_is_left_out_and_keeps_the_styles_of_the_others():
    analysis = example(3)
    before = plots.plot_positions(analysis).axes[0].lines[2].get_color()
    analysis["runs"][1]["by_position"] = []
    first, last = plots.plot_positions(analysis).axes[0].lines
    assert last.get_color() == before and last.get_ydata().tolist() == [0.5, 0.25]


def test_words_of_each_length_have_a_line_and_runs_a_panel():
    figure = plots.plot_lengths(example(3, measure=CHARACTERS))
    first, second, third, empty = figure.axes
    assert lines(second) == {
        "2 letters": [[1, 0.5], [2, 0.75], [3, 1.0]],
        "4 letters": [[1, 0.25], [2, 0.5], [3, 0.5], [4, 0.75], [5, 0.5]],
    }
    assert third.get_title() == "a_run_with_a_long_name_2 (1.4500)" and not empty.get_visible()
    assert texts(figure.legends[0]) == ["2 letters", "4 letters"]
    with plt.rc_context(STYLE):
        figure.set_layout_engine("constrained")
        figure.canvas.draw()
    boxes = [axes.get_tightbbox() for axes in (first, second, third)]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert not any(figure.legends[0].get_window_extent().overlaps(box) for box in boxes)


def test_characters_are_measured_in_bits():
    analysis = example(2, measure=CHARACTERS)
    top, _, shares = plots.plot_losses(analysis, "by_frequency", "the character").axes
    assert list(lines(top)) == ["a_run_with_a_long_name_0 (1.2500)", "a_run_with_a_long_name_1 (1.3500)"]
    assert (top.get_ylabel(), shares.get_ylabel()) == ("loss (nats per character)", "share of characters")
    (axes,) = plots.plot_contexts(analysis).axes
    assert lines(axes)["a_run_with_a_long_name_0"] == [[0, 2.0], [32, pytest.approx(1.68)]]
    assert (axes.get_title(), axes.get_ylabel()) == ("Bits by context, valid", "bits per character")
    (axes,) = plots.plot_perplexity(analysis).axes
    assert [[bar.get_width() for bar in bars] for bars in axes.containers] == [[1.25, 1.35], [1.5, 1.5]]
    assert [text.get_text() for text in axes.texts] == ["1.2500", "1.3500", "1.5000", "1.5000"]
    assert axes.get_xlabel() == "bits per character"
    (axes,) = plots.plot_flag(analysis).axes
    assert lines(axes)["validation"] == [[0.0, 1.25], [0.1, 1.35]] and axes.get_ylabel() == "bits per character"
    (axes,) = plots.plot_positions(analysis).axes
    assert axes.get_title() == "Probability of the correct character by position in the word, valid"


@pytest.mark.parametrize(
    "measure, key, names",
    [
        (WORDS, "by_length", ["perplexity", "perplexity_by_tail_dropout", "probability_by_position"]),
        (CHARACTERS, "nothing", ["bits", "bits_by_tail_dropout", "probability_by_position", "probability_by_length"]),
        (WORDS, "by_position", ["perplexity", "perplexity_by_tail_dropout", "probability_by_length"]),
    ],
)
def test_pictures_are_named_after_what_they_show(tmp_path, monkeypatch, measure, key, names):
    monkeypatch.setattr(plots, "draw", lambda plot, path: plot())
    analysis = example(2, measure=measure)
    for run in analysis["runs"]:
        run[key] = []
    drawn = [path.stem for path in plots.draw_analysis(analysis, tmp_path)]
    assert drawn == ["loss_by_frequency", "loss_by_previous", "contexts", "validations", *names]
