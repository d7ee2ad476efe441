"""`export --format=huggingface` of a run, in this process: its answers and its model card."""

import json

import pytest
from tokenizers import Tokenizer

import keras_adaptive
from tests.support.programs import call
from tests.support.transformers import load_exported
from trainers import export

pytestmark = pytest.mark.once


def test_an_exported_run_scores_as_python(trained, tmp_path, capsys):
    import torch

    call(export, f"--run_dir={trained}", f"--export_dir={tmp_path}/new", "--format=huggingface")
    assert f"parameters in float32 to {tmp_path}/new" in capsys.readouterr().out
    lines, lm = ["w1 w2 qqq", "", "w3\u00a0w1"], keras_adaptive.load(trained)
    tokenizer, model = Tokenizer.from_file(f"{tmp_path}/new/tokenizer.json"), load_exported(tmp_path / "new")
    for line, record in zip(lines, lm.score(lines)):
        ids = torch.tensor([tokenizer.encode(f"{line}\n").ids])
        with torch.no_grad():
            log_probs = model(ids).logits[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
        assert log_probs.tolist() == pytest.approx(record["log_probs"], abs=1e-4)
    config = json.loads((tmp_path / "new" / "config.json").read_text(encoding="utf-8"))
    assert config["max_position_embeddings"] == lm.reading.window
    card, log = (path.read_text(encoding="utf-8") for path in (tmp_path / "new/README.md", trained / "log.jsonl"))
    best = min(json.loads(line)["val_perplexity"] for line in log.splitlines() if "val_perplexity" in line)
    assert f"| validation | perplexity {best:.2f} per word |" in card
