import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

from scripts.benchmarks import plot
from tests.support import programs

pytestmark = pytest.mark.once

BACKENDS = ("tensorflow", "jax", "torch")
PICTURES = ["loss.png", "loss_rows.png"]


def seconds(median):
    return {"median": median, "low": median / 2, "high": 1.5 * median, "repeats": 7}


def loss_case(rows=2048, tail_share=0.25, ours=0.6, peer=1.0, floor=0.3):
    times = {"ours": ours, "torch adaptive": peer, "floor": floor}
    figures = {name: {"seconds": seconds(time)} for name, time in times.items()}
    figures["ours"]["mebibytes"], figures["torch adaptive"]["mebibytes"] = 100 + rows / 100, rows / 2
    shares = [1 - tail_share, 0.75 * tail_share, 0.25 * tail_share]
    return {"rows": rows, "tail_share": tail_share, "shares": shares, "candidates": figures}


def results(backend, dtype="float32", **content):
    sizes = {"vocabulary_size": 267744, "dim": 1024, "batch_size": 8, "length": 128}
    settings = {"backend": backend, "dtype": dtype, **sizes}
    return {"machine": {"device": "processor", "cores": 2}, "settings": settings, **content}


def loss_results(backend, *cases, dtype="float32"):
    return results(backend, dtype, cases=list(cases))


@pytest.fixture
def folder(tmp_path):
    for backend in BACKENDS:
        files = {
            f"loss_{backend}": loss_results(backend, loss_case()),
            f"loss_{backend}_bfloat16": loss_results(backend, loss_case(), dtype="mixed_bfloat16"),
            f"loss_{backend}_rows": loss_results(backend, *(loss_case(rows=rows) for rows in (512, 2048))),
        }
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def heights(bars):
    return [bar.get_height() for bar in bars]


def spans(bars):
    """Ends of the thin lines on bars."""
    return [segment[:, 1].tolist() for segment in bars.errorbar.lines[2][0].get_segments()]


def lines(axes):
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines}


def test_every_picture_is_drawn_into_the_folder(folder, capsys):
    assert plot.plot_benchmarks(folder) == [folder / picture for picture in PICTURES]
    assert "drawn without" not in capsys.readouterr().out
    for picture in PICTURES:
        image = plt.imread(folder / picture)
        assert image.shape[0] > 200 and image.shape[1] > 1000
        assert len(np.unique(image[..., 0])) > 20  # of red


def test_what_is_not_there_is_named_and_left_out(folder, capsys):
    missing = ["loss_jax_bfloat16.json", *(f"loss_{backend}_rows.json" for backend in BACKENDS)]
    for name in missing:
        (folder / name).unlink()
    assert [path.name for path in plot.plot_benchmarks(folder)] == PICTURES[:-1]
    printed = capsys.readouterr().out.splitlines()
    assert f"{folder / 'loss.png'}: drawn without {missing[0]}" in printed
    assert f"{folder / 'loss_rows.png'}: not drawn, there is no {', '.join(missing[1:])}" in printed


def test_files_of_other_pictures_do_not_count(folder):
    for file in folder.iterdir():
        if file.name != "loss_torch.json":
            file.unlink()
    for name in ("loss_torch_full.json", "generation_torch.json", "partial_step_torch.json"):
        (folder / name).write_text("{}")
    assert [path.name for path in plot.plot_benchmarks(folder)] == ["loss.png"]


def test_loss_is_relative_to_the_peer_of_its_own_run():
    axes = plot.plot_loss(
        [
            loss_results("jax", loss_case(ours=1.0, peer=2.0, floor=0.8)),
            loss_results("jax", loss_case(ours=1.0, peer=4.0, floor=0.6), dtype="mixed_bfloat16"),
            loss_results("torch", loss_case(ours=6.0, peer=5.0, floor=4.0)),
        ]
    ).axes[0]
    ours, peer, floor = axes.containers[1::2]  # every other one is the thin lines of the next
    assert heights(ours) == pytest.approx([0.5, 0.25, 1.2])
    assert heights(peer) == [1, 1, 1]
    assert heights(floor) == pytest.approx([0.4, 0.15, 0.8])
    assert np.ravel(spans(ours)) == pytest.approx([0.25, 0.75, 0.125, 0.375, 0.6, 1.8])
    labels = [tick.get_text() for tick in axes.get_xticklabels()]
    assert labels == ["JAX\nfloat32", "JAX\nbfloat16", "PyTorch\nfloat32"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "ours",
        "PyTorch's adaptive softmax",
        "matrix products alone",
    ]
    assert axes.lines[-1].get_ydata() == [1, 1]


def test_rows_show_time_and_memory():
    cases = [loss_case(rows=rows, ours=rows / 1000, peer=rows / 500) for rows in (2000, 1000)]  # in any order
    time, memory = plot.plot_rows([loss_results("jax", *cases), loss_results("torch", cases[0])]).axes
    assert lines(time) == {
        "ours, JAX run": [[1000, 1], [2000, 2]],
        "PyTorch's adaptive softmax, JAX run": [[1000, 2], [2000, 4]],
        "ours, PyTorch run": [[2000, 2]],
        "PyTorch's adaptive softmax, PyTorch run": [[2000, 4]],
    }
    assert lines(memory)["ours, JAX run"] == [[1000, 110], [2000, 120]]
    assert lines(memory)["PyTorch's adaptive softmax, JAX run"] == [[1000, 500], [2000, 1000]]
    for axes in (time, memory):
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1,000", "2,000"]


def test_memory_that_was_not_measured_is_left_out(folder):
    for backend in BACKENDS:
        cases = [loss_case(rows=rows) for rows in (512, 2048)]
        for case in cases:
            del case["candidates"]["ours"]["mebibytes"], case["candidates"]["torch adaptive"]["mebibytes"]
        (folder / f"loss_{backend}_rows.json").write_text(json.dumps(loss_results(backend, *cases)))
    assert folder / "loss_rows.png" in plot.plot_benchmarks(folder)


def test_title_says_where_files_differ():
    one, other = loss_results("jax", loss_case(512), loss_case(2048)), loss_results("torch", loss_case(2048))
    assert plot.conditions([one, other, one]).splitlines() == [
        "512 – 2,048 hidden states of dimension 1,024, 267,744 words"
        " / 2,048 hidden states of dimension 1,024, 267,744 words",
        "processor, 2 cores",
    ]


@pytest.mark.parametrize("text", ['{"settings": ', "{}", json.dumps(loss_results("jax", {"candidates": {}}))])
def test_a_file_of_another_form_is_named(tmp_path, text):
    (tmp_path / "loss_jax.json").write_text(text)
    with pytest.raises(ValueError, match=r"loss\.png: loss_jax\.json must be as the benchmarks write"):
        plot.plot_benchmarks(tmp_path)


@pytest.mark.processes
def test_the_command(tmp_path):
    (tmp_path / "loss_torch.json").write_text(json.dumps(loss_results("torch", loss_case())))
    done = programs.run("-m", "scripts.benchmarks.plot", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "loss.png").exists()


@pytest.mark.processes
def test_the_command_says_in_one_line_that_there_is_nothing(tmp_path):
    done = programs.run("-m", "scripts.benchmarks.plot", tmp_path)
    assert done.returncode == 1
    assert "holds no results such as loss_torch.json" in done.stderr
    assert f"scripts.benchmarks.loss --backend=torch --results={tmp_path / 'loss_torch.json'}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
