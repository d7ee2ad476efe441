"""The examples of docs/hub.md, run as they stand there."""

import numpy as np
import pytest

from keras_adaptive.data import TextCodec, Vocabulary
from tests.support.pages import examples
from tests.support.tiny import language_model

pytest.importorskip("keras_hub")

from keras_adaptive.hub import AdaptiveCausalLM, AdaptiveTokenizer  # noqa: E402

pytestmark = pytest.mark.once


def run(number):
    names = {}
    exec(compile(examples("docs/hub.md")[number], "docs/hub.md", "exec"), names)
    return names


def test_a_run_becomes_a_preset(tmp_path, monkeypatch):
    words, folder = Vocabulary.from_counts({"it": 9, "was": 8, "the": 7}, multiple_of=1), tmp_path / "runs/mine"
    folder.mkdir(parents=True)
    AdaptiveTokenizer(TextCodec(words)).save_assets(folder)
    language_model(len(words)).save(folder / "best.keras")
    monkeypatch.chdir(tmp_path)
    names = run(0)
    assert names["text"].startswith("<unk> was")
    assert names["perplexity"] == pytest.approx(np.exp(names["loss"]), rel=1e-4)
    assert type(names["again"]) is AdaptiveCausalLM


def test_a_model_of_ones_own():
    names = run(1)
    inputs, targets = (names[name] for name in ("inputs", "targets"))
    places = np.asarray(names["weights"]).sum()
    alone = names["model"].nll(np.array(inputs["token_ids"])[:, :places], np.array(targets)[:, :places])
    assert names["bits"] == pytest.approx(alone.sum() / np.log(2), rel=1e-4)
