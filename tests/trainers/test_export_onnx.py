"""`export --format=onnx` of a run, in this process: its answers, and flags of other formats."""

import numpy as np
import onnxruntime
import pytest

import keras_adaptive
from tests.support.programs import call
from tests.support.refusals import refused
from trainers import export

pytestmark = pytest.mark.once


def test_an_exported_run_scores_as_python(trained, tmp_path, capsys):
    call(export, f"--run_dir={trained}", f"--export_dir={tmp_path}/new", "--format=onnx")
    assert f"parameters in float32 to {tmp_path}/new" in capsys.readouterr().out
    lines, lm = ["w1 w2 qqq", "", "w3\u00a0w1"], keras_adaptive.load(trained)
    rows = [line.split() for line in (tmp_path / "new" / "tokens.txt").read_text(encoding="utf-8").splitlines()]
    ids = {word: int(number) for word, number in rows}
    x = np.zeros((3, 3), "int64")
    for row, line in zip(x, lines):
        row[: len(line.split())] = [ids.get(word, ids["<unk>"]) for word in line.split()]
    session = onnxruntime.InferenceSession(tmp_path / "new" / "nll.onnx")
    (nll,) = session.run(None, {"x": x, "x_lens": np.array([3, 0, 2])})
    assert nll.tolist() == pytest.approx([-sum(record["log_probs"]) for record in lm.score(lines)], abs=1e-4)


@pytest.mark.parametrize(
    "format, flag, message",
    [
        ("huggingface", "--max_length=9", "--max_length belongs to --format=saved_model: omit it"),
        ("huggingface", "--context=2", "--context belongs to --format=saved_model or litert: omit it"),
        ("onnx", "--window=9", "--window belongs to --format=saved_model or huggingface or litert: omit it"),
        ("onnx", "--dtype=bfloat16", "--format=onnx must have --dtype=float32 or int8"),
        ("huggingface", "--dtype=int8", "--format=huggingface must have --dtype=float32 or bfloat16"),
    ],
)
def test_flags_of_another_format_are_refused(format, flag, message, trained, tmp_path):
    arguments = (f"--run_dir={trained}", f"--export_dir={tmp_path}/new", f"--format={format}", flag)
    refused(export, *arguments, match=message)
    assert not (tmp_path / "new").exists()
