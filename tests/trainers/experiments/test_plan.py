"""The plan for several devices against what was measured: a small training, and the bytes of real strategies."""

import json

import keras
import numpy as np
import pytest

from keras_adaptive.backend.unallocated import unallocated
from keras_adaptive.models import transformer_lm
from keras_adaptive.optimizers import NAG
from scripts.tables.results import read
from tests.support.programs import ROOT, call
from trainers import train
from trainers.experiments import plan

pytestmark = pytest.mark.once
STRATEGIES = {"jax_data_parallel": False, "torch_ddp": False, "jax_model_parallel": True}  # whether tables are divided
SMALL = dict(num_blocks=1, dim=8, num_heads=1, ffn_dim=8, cutoffs=(20,))


@pytest.mark.parametrize("name", STRATEGIES)
def test_bytes_are_those_that_strategies_sent_and_held(name):
    results = read(f"benchmarks/scaling_{name}")
    settings, optimizer = results["settings"], NAG(1e-3, momentum=0.99)
    sizes = {size: settings[size] for size in ("num_blocks", "dim", "num_heads", "ffn_dim")}
    words, cutoffs = settings["vocabulary_size"], tuple(map(int, settings["cutoffs"]))
    model = unallocated(lambda: transformer_lm(words, cutoffs=cutoffs, **sizes))
    for case in results["cases"]:
        devices, rows = case["devices"], settings["rows"] * case["replicas"]
        sharing = devices if STRATEGIES[name] else 1
        made = plan.plan_of(model, optimizer, np.ones(words), (rows, settings["length"], 1), devices, sharing)
        assert made.sent == pytest.approx(case["sent_bytes_of_a_device"], rel=0.02)
        held = made.memory["weights"] + made.memory["optimizer"]
        assert held == pytest.approx(case["state_bytes_of_a_device"], abs=1000)  # the optimizer counts updates


def test_memory_of_one_device_is_that_of_a_training():
    model, optimizer = transformer_lm(100, **SMALL), keras.optimizers.Adam(0.1)
    batch = np.ones((4, 6), "int32")
    model.compile(optimizer)
    model.train_on_batch(batch, batch)
    one = plan.plans(model, optimizer, np.ones(100), 4, 6, 1)[0]
    size = {
        name: sum(4 * int(np.prod(variable.shape)) for variable in variables)
        for name, variables in {"weights": model.trainable_variables, "optimizer": optimizer.variables}.items()
    }
    assert one.memory["weights"] == one.memory["gradients"] == size["weights"]
    assert one.memory["optimizer"] == pytest.approx(size["optimizer"], abs=100)
    assert one.sent == 0 and one.tokens_per_second(500, 1e9) == 500


def test_the_speed_follows_from_a_measured_run_and_the_network(tmp_path, capsys):
    records = [{"update": 1, "tokens_per_second": rate} for rate in (10, 1000, 3000)] + [{"val_loss": 1.0}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert plan.measured_rate(tmp_path / "log.jsonl") == 1000
    assert plan.measured_rate(tmp_path / "none.jsonl") is None
    flags = "--vocabulary_size=800 --cutoffs=80 --dim=8 --num_heads=1 --num_blocks=1 --batch_size=64 --length=8"
    call(train, "--summary", *flags.split(), f"--run_dir={tmp_path}")
    printed = capsys.readouterr().out
    rows = {line[:24].strip(): line[24:].split() for line in printed.splitlines()}
    assert rows["devices"] == ["1", "8", "8", "64", "64"]
    one, eight, *_ = (int(cell.replace(",", "")) for cell in rows["tokens/s at 25 GB/s"])
    assert one == 1000 and 7000 < eight <= 8000
    divided = (int(cell.replace(",", "")) for cell in rows["tokens/s at 25 GB/s"][2::2])
    assert all(1000 * groups >= speed for groups, speed in zip((1, 8), divided))  # 8 devices compute the same tokens
    assert "Dividing the word tables among 8 devices saves 0 MiB" in printed


@pytest.mark.parametrize("name, words", [("wikitext103_adp_t", 267_744), ("billion_word_adp", 793_472)])
def test_the_plans_of_the_documentation_are_current(name, words, tmp_path, capsys):
    """Plans from the speed of one accelerator that the benchmarks measured."""
    training = read("gpu/nvidia_h200")["backends"]["torch"]["training in bfloat16"]["candidates"]["ours"]
    (tmp_path / "log.jsonl").write_text(json.dumps({"tokens_per_second": training["tokens_per_second"]}) + "\n")
    call(train, f"--flagfile=configs/{name}.flags", f"--vocabulary_size={words}", "--summary", f"--run_dir={tmp_path}")
    printed = capsys.readouterr().out
    assert printed[printed.index("Plan of updates") :] in (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
