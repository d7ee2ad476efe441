"""A corpus of several files trains as one stream, and begins with whole data or not at all."""

import numpy as np
import pytest

from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.shards import DAMAGES, damage
from tests.support.text import prepared
from trainers import train

pytestmark = pytest.mark.once

TINY = ["--dim=8", "--num_heads=2", "--ffn_dim=8", "--num_blocks=1", "--cutoffs=", "--length=8", "--batch_size=4"]


def test_shards_train(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("keras_adaptive.data.preparation.prepare._PART", 50)
    random = np.random.default_rng(1)
    corpus = prepared(tmp_path, "".join(f"w{a} w{b} x\n" for a, b in random.integers(0, 9, (30, 2))))
    run = tmp_path / "run"
    call(train, *TINY, "--updates=2", "--evaluate_every=2", f"--data_dir={corpus.data_dir}", f"--run_dir={run}")
    assert len(corpus.metadata["splits"]["train"]["shards"]["tokens"]) == 5
    assert f"through {len(corpus.tokens('train'))} tokens" in capsys.readouterr().out
    assert train.best_loss(run / "log.jsonl") < 10


@pytest.mark.parametrize("name", ["train-00001-of-00003.tokens", "valid.tokens"])
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_shard_is_named_before_training_starts(tmp_path, monkeypatch, name, how):
    monkeypatch.setattr("keras_adaptive.data.preparation.prepare._PART", 50)
    line, run = "the cat sat on the mat\n", tmp_path / "run"
    shard = prepared(tmp_path, line * 2, train=line * 6).data_dir / name
    damage(shard, how)
    run.mkdir()
    (run / "flags.txt").write_text("--dim=8\n")
    flags = [f"--data_dir={shard.parent}", f"--run_dir={run}", "--length=8", "--updates=100"]
    refused(train, *flags, match=f"{name} .*{DAMAGES[how]}")
    assert [path.name for path in run.iterdir()] == ["flags.txt"] and (run / "flags.txt").read_text() == "--dim=8\n"
