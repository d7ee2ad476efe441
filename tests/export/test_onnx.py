"""Exports for ONNX Runtime against the live model: log-probabilities, costs of texts, bytes and names."""

import keras
import numpy as np
import pytest

from keras_adaptive.export import export_onnx
from keras_adaptive.export.onnx import graph as graphs
from keras_adaptive.export.onnx.graph import Graph, Value
from keras_adaptive.special_words import EOS
from tests.support.exported_models import CODEC, LENGTH, MODELS, REFUSED, refused_models
from tests.support.tiny import VOCABULARY, WORDS, language_model

pytestmark = pytest.mark.once

LENGTHS = np.array([LENGTH - 4, 0, LENGTH, 1])


def session(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def texts(seed=1):
    return np.random.default_rng(seed).integers(0, VOCABULARY, (len(LENGTHS), LENGTH))


def costs(model, x, lengths):
    """Returns −log p of each text and its end, from the live model."""
    ids = np.insert(x, 0, EOS, axis=1)
    targets = np.append(x, x[:, :1], axis=1)
    targets[np.arange(len(x)), lengths] = EOS
    nll = keras.ops.convert_to_numpy(model.for_inference().nll(ids.astype("int32"), targets.astype("int32")))
    return (nll * (np.arange(LENGTH + 1) <= lengths[:, None])).sum(1)


@pytest.mark.parametrize("name", sorted(MODELS.keys() - REFUSED))
def test_answers_are_those_of_the_model(name, tmp_path):
    import onnx

    model, ids = MODELS[name](), texts()
    export_onnx(model, CODEC, tmp_path / "new")
    for path in (tmp_path / "new").glob("*.onnx"):
        onnx.checker.check_model(path, full_check=True)
    (log_probs,) = session(tmp_path / "new" / "log_probs.onnx").run(None, {"token_ids": ids})
    expected = keras.ops.convert_to_numpy(model.for_inference().log_probs(ids.astype("int32")))
    np.testing.assert_allclose(log_probs, expected, atol=1e-4)
    (nll,) = session(tmp_path / "new" / "nll.onnx").run(None, {"x": ids, "x_lens": LENGTHS})
    np.testing.assert_allclose(nll, costs(model, ids, LENGTHS), atol=1e-4)


def test_the_graphs_have_the_names_of_icefall(tmp_path):
    export_onnx(language_model(), CODEC, tmp_path / "new")
    scorer, reader = (session(tmp_path / "new" / name) for name in ("nll.onnx", "log_probs.onnx"))
    described = [
        [(value.name, value.type, value.shape) for value in (*graph.get_inputs(), *graph.get_outputs())]
        for graph in (scorer, reader)
    ]
    assert described == [
        [("x", "tensor(int64)", ["N", "L"]), ("x_lens", "tensor(int64)", ["N"]), ("nll", "tensor(float)", ["N"])],
        [
            ("token_ids", "tensor(int64)", ["batch", "length"]),
            ("log_probs", "tensor(float)", ["batch", "length", VOCABULARY]),
        ],
    ]
    facts = scorer.get_modelmeta().custom_metadata_map
    names = ("model_type", "version", "sos_id", "eos_id", "vocab_size")
    assert [facts[name] for name in names] == ["rnnlm", "1", str(EOS), str(EOS), str(VOCABULARY)]
    lines = (tmp_path / "new" / "tokens.txt").read_text(encoding="utf-8").splitlines()
    assert lines == [f"{word} {number}" for number, word in enumerate(WORDS)]
    (nll,) = scorer.run(None, {"x": np.zeros((2, 0), "int64"), "x_lens": np.zeros(2, "int64")})
    assert nll.shape == (2,) and nll[0] == nll[1] > 0


@pytest.mark.parametrize("name", ["tied, head projected", "tied bands of a table", "body lstm projected", "body qrnn"])
def test_bytes_keep_the_answers_nearly(name, tmp_path):
    model, x = MODELS[name](), texts()
    export_onnx(model, CODEC, tmp_path / "new", dtype="int8")
    scorer = session(tmp_path / "new" / "nll.onnx")
    (nll,) = scorer.run(None, {"x": x, "x_lens": LENGTHS})
    np.testing.assert_allclose(nll, costs(model, x, LENGTHS), rtol=0.02)
    alone = [scorer.run(None, {"x": x[row, None], "x_lens": LENGTHS[row, None]})[0][0] for row in range(len(x))]
    np.testing.assert_allclose(nll, alone, rtol=1e-5)  # a text has its cost in any batch


@pytest.mark.parametrize("int8, most, largest", [(False, 1e-6, 10**9), (True, 0.01, 10**9), (False, 1e-6, 1000)])
def test_the_products_of_a_matrix(int8, most, largest, tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "LARGEST_FILE", largest)
    rng = np.random.default_rng(0)
    array = (rng.standard_normal((300, 64)) * np.exp(rng.standard_normal((300, 1)))).astype("float32")
    array[5] = 0
    graph, numbers = Graph(int8), np.arange(300)[::-7]
    matrix, x = graph.matrix(array), Value(graph, "x")
    assert graph.matrix(array) is matrix
    rows = matrix.lookup(x)
    outputs = {"rows": (rows, ["n", 64]), "products": (matrix.product(rows, 3, 200), ["n", 197])}
    graph.save(tmp_path / "new.onnx", {"x": ["n"]}, outputs, {})
    rows, products = session(tmp_path / "new.onnx").run(None, {"x": numbers})
    expected = array[numbers], array[numbers] @ array[3:200].T
    scales = [np.linalg.norm(array[numbers], axis=1)[:, None], 1]
    scales[1] = scales[0] * np.linalg.norm(array[3:200], axis=1)
    for got, exact, scale in zip((rows, products), expected, scales):
        assert (np.abs(got - exact) <= most * 2 * scale).all()
    (graph_file, *beside) = sorted(tmp_path.iterdir())
    assert [path.name for path in beside] == ([] if largest > 1000 else ["new.onnx.data"])
    size = (beside or [graph_file])[0].stat().st_size
    assert size == pytest.approx(array.size * (1 if int8 else 4), abs=5000)  # the matrix is stored once


def test_wrong_arguments_are_refused(tmp_path, monkeypatch):
    for model, named in refused_models():
        with pytest.raises(ValueError, match=f"Received: {named}, which it lacks"):
            export_onnx(model, CODEC, tmp_path / "new")
    with pytest.raises(ValueError, match="`dtype` must be float32 or int8. Received: dtype='bfloat16'"):
        export_onnx(language_model(), CODEC, tmp_path / "new", dtype="bfloat16")
    with pytest.raises(ValueError, match="`codec` must have the 24 words of the model"):
        export_onnx(language_model(24), CODEC, tmp_path / "new")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "keras_adaptive\[onnx\]"'):
        export_onnx(language_model(), CODEC, tmp_path / "new")
    assert not list(tmp_path.iterdir())
