import zipfile

import numpy as np
import pytest
from keras import ops

from keras_adaptive.data import prepare
from scripts.experiments import ablated_nplm
from scripts.experiments.ablated_nplm import AblatedNPLM
from tests.support.programs import call
from trainers.experiments.parts import PARTS
from trainers.experiments.run_folder import RunFolder

pytestmark = pytest.mark.once

SIZES = {"num_layers": 3, "ffn_dim": 8, "num_local": 2, "num_global": 1, "global_window": 3}


def body(without):
    layer = AblatedNPLM(**SIZES, without=without)
    layer.build((None, None, 4))
    for weight in layer.weights:
        if "kernel" in weight.name or "bias" in weight.name:
            weight.assign(np.zeros(weight.shape, "float32"))
    return layer


def test_a_layer_without_residual_connections_forgets_its_input():
    """If the branches return 0, only the sum of the global blocks, also 0, is left."""
    x = np.random.default_rng(1).normal(size=(2, 6, 4)).astype("float32")
    assert not ops.any(body("residual")(x))
    assert ops.any(body("norm")(x))


def test_a_layer_without_norm_layers_has_no_weights_of_them_and_keeps_its_scale():
    layer, x = body("norm"), np.random.default_rng(1).normal(size=(2, 6, 4)).astype("float32")
    assert not [weight.path for weight in layer.weights if "gamma" in weight.path or "beta" in weight.path]
    np.testing.assert_allclose(ops.convert_to_numpy(layer(3 * x)), ops.convert_to_numpy(3 * layer(x)), rtol=1e-5)


@pytest.mark.parametrize("without", ablated_nplm.CHOICES)
def test_it_trains_and_resumes(without, tmp_path, monkeypatch):
    monkeypatch.setitem(PARTS["body"], "nplm", PARTS["body"]["nplm"])
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("a b c d a b a c b\n" * 20)
    prepare(tmp_path, tmp_path / "data", min_count=1)
    sizes = "--body=nplm --num_blocks=2 --dim=8 --ffn_dim=8 --num_local=2 --length=4 --batch_size=2 --cutoffs=4"
    steps = "--updates=2 --evaluate_every=2 --warmup=1 --notensorboard"
    folders = [f"--data_dir={tmp_path}/data", f"--run_dir={tmp_path}/run"]
    for _ in range(2):
        call(ablated_nplm, f"--without={without}", *sizes.split(), *steps.split(), *folders)
    with zipfile.ZipFile(RunFolder(tmp_path / "run").model_file("best")) as file:
        assert f'"without": "{without}"' in file.read("config.json").decode()
