"""Exports for LiteRT against the live model, step by step."""

import json

import keras
import numpy as np
import pytest

from keras_adaptive.models.reading import reading_of
from tests.support.backends import BACKEND
from tests.support.exported_models import CODEC, LENGTH, MODELS, REFUSED_BY_LITERT
from tests.support.refusals import refused
from tests.support.tiny import VOCABULARY, language_model

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow writes this format")
IDS = np.random.default_rng(1).integers(0, VOCABULARY, LENGTH).astype("int32")


@pytest.mark.parametrize("name", ["input char_cnn", "body lstm projected", "body transformer_xl windows"])
def test_steps_answer_as_the_model(name, tmp_path):
    from keras_adaptive.export.litert import _answers, export_litert

    model, sizes = MODELS[name](), []
    expected = keras.ops.convert_to_numpy(model.for_inference().log_probs(IDS[None]))[0]
    for dtype, error in (("float32", 1e-4), ("int8", 0.5)):
        export_litert(model, CODEC.vocabulary, tmp_path / dtype, dtype)
        converted = (tmp_path / dtype / "model.tflite").read_bytes()
        np.testing.assert_allclose(_answers(converted, IDS), expected, atol=error)
        sizes.append(len(converted))
    lines = (tmp_path / "int8" / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split(" ")[0] for line in lines] == CODEC.vocabulary.words[4:]
    assert json.loads((tmp_path / "int8" / "reading.json").read_text(encoding="utf-8")).keys() == {"window", "context"}


def test_a_long_text_is_read_as_docs_exports_says(tmp_path):
    """A window of five tokens, three of them context, begins again after four."""
    from keras_adaptive.export.litert import _answers, export_litert

    model, ids = MODELS["body transformer"](), np.random.default_rng(2).integers(0, VOCABULARY, 14).astype("int32")
    export_litert(model, CODEC.vocabulary, tmp_path / "new", window=5)
    converted = (tmp_path / "new" / "model.tflite").read_bytes()
    about = json.loads((tmp_path / "new" / "reading.json").read_text(encoding="utf-8"))
    block, first, found = about["window"] - about["context"], 0, []
    for place in range(len(ids)):
        if place > about["context"] and place % block == 0:
            first = place - about["context"]
        found.append(_answers(converted, ids[first : place + 1])[-1])
    reading = reading_of(model, 5)
    expected = [model.log_probs(ids[None, reading.begin(place) : place + 1])[0, -1] for place in range(len(ids))]
    np.testing.assert_allclose(found, np.array(expected), atol=1e-4)
    assert first > 0


def test_what_litert_lacks_is_refused(tmp_path):
    from keras_adaptive.export.litert import export_litert

    for name in sorted(REFUSED_BY_LITERT):
        refused(
            export_litert, MODELS[name](), CODEC.vocabulary, tmp_path / "new", match="LiteRT cannot hold this model"
        )
    quantized = language_model()
    quantized.quantize("int8")
    refused(export_litert, quantized, CODEC.vocabulary, tmp_path / "new", match="needs weights in floats")
    other = language_model()
    refused(
        export_litert, other, CODEC.vocabulary, tmp_path / "new", dtype="int4", match="`dtype` must be float32 or int8"
    )
    assert not (tmp_path / "new").exists()
