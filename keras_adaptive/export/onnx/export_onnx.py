import importlib.util
import os

from keras_adaptive.data import TextCodec
from keras_adaptive.export.checks import check_dtype, check_finite_weights, check_folder, check_vocabulary
from keras_adaptive.export.onnx.bodies import body
from keras_adaptive.export.onnx.graph import Graph, Value
from keras_adaptive.export.onnx.words import Embedding, Softmax
from keras_adaptive.export.parts import parts_of
from keras_adaptive.files import check_new_folder, complete_or_absent
from keras_adaptive.models import LanguageModel
from keras_adaptive.special_words import EOS


def export_onnx(model: LanguageModel, codec: TextCodec, folder: str | os.PathLike, *, dtype: str = "float32") -> None:
    """Writes a folder of graphs that ONNX Runtime runs without Keras and without this package.

    `log_probs.onnx` has the input `token_ids`, int64 (batch, length), and the output `log_probs`, float32 (batch,
    length, vocabulary): the exact log-probabilities of the word after each token. A text begins with `</s>`.

    `nll.onnx` has the form of icefall's language models, which sherpa-onnx reads. Its inputs are `x`, int64 (N, L), the
    words of N texts without `</s>`, padded on the right by any word, and `x_lens`, int64 (N,), their lengths. The
    output `nll`, float32 (N,), is −log p of each text and of the `</s>` at its end, in nats. A tail of an adaptive
    softmax is computed only for its own words.

    `tokens.txt` has a line `word id` for each word, the form of k2. The folder appears complete or not at all. Any
    backend can write it. Weights of more than 2 GB lie in files beside the graphs.

    Args:
        model: A `LanguageModel`.
        codec: Its `TextCodec`.
        folder: Folder to write.
        dtype: "float32", or "int8", which stores tables and matrices as bytes with a scale for each row. The vectors
            that are multiplied with them are rounded to bytes as well, each with its own scale.

    Raises:
        ModuleNotFoundError: If the package onnx is not installed.
        ValueError: If a layer of the model has no graph, the vocabulary has another size than the model, the folder is
            not empty, `dtype` is not supported, or a weight is not finite. Nothing is written in these cases.
        OSError: If the folder cannot be written.

    Example:

    ```python
    lm = keras_adaptive.load("runs/books")
    export_onnx(lm.trained, lm.codec, "exports/books")
    ```
    """
    if importlib.util.find_spec("onnx") is None:
        raise ModuleNotFoundError('`export_onnx` needs the package onnx: pip install "keras_adaptive[onnx]".')
    check_new_folder(folder)
    check_folder(folder)
    check_vocabulary(codec.vocabulary, model, "codec")
    check_dtype(dtype, ("float32", "int8"))
    check_finite_weights(model.weights)
    parts, size = parts_of(model), model.vocabulary_size
    facts = {"model_type": "rnnlm", "version": "1", "model_author": "keras_adaptive", "comment": "without state"}
    facts |= {"sos_id": str(EOS), "eos_id": str(EOS), "vocab_size": str(size), "tokenizer": codec.tokenizer}
    with complete_or_absent(folder) as new:
        graph = Graph(dtype == "int8")
        log_probs = _log_probs(graph, parts, Value(graph, "token_ids"))
        shape = ["batch", "length"]
        graph.save(new / "log_probs.onnx", {"token_ids": shape}, {"log_probs": (log_probs, [*shape, size])}, facts)
        graph = Graph(dtype == "int8")
        nll = _nll(graph, parts, Value(graph, "x"), Value(graph, "x_lens"))
        graph.save(new / "nll.onnx", {"x": ["N", "L"], "x_lens": ["N"]}, {"nll": (nll, ["N"])}, facts)
        lines = (f"{word} {number}\n" for number, word in enumerate(codec.vocabulary.words))
        (new / "tokens.txt").write_text("".join(lines), encoding="utf-8")


def _model(graph, parts, ids):
    """Returns the output layer and the hidden states of words (batch, length)."""
    word_input = Embedding(graph, parts["word_input"])
    return Softmax(graph, parts["word_output"], word_input), body(graph, word_input(ids), *parts["body"])


def _log_probs(graph, parts, ids):
    word_output, hidden = _model(graph, parts, ids)
    return word_output.log_probs(hidden)


def _nll(graph, parts, x, lengths):
    edge = graph.Expand(EOS, graph.Concat(graph.Shape(lengths), [1], axis=0))  # (N, 1)
    ids = graph.Concat(edge, x, axis=1)
    places, lengths = graph.range(graph.length(ids, 1)), graph.Unsqueeze(lengths, [1])
    targets = graph.Where(graph.Less(places, lengths), graph.Concat(x, edge, axis=1), EOS)
    rows = graph.numbers_of(graph.Reshape(graph.LessOrEqual(places, lengths), [-1]))  # without padding
    word_output, hidden = _model(graph, parts, ids)
    targets = graph.Reshape(targets, [-1])
    nll = word_output.nll(graph.Gather(graph.Flatten(hidden, axis=2), rows), graph.Gather(targets, rows))
    nll = graph.put_rows(graph.zeros(graph.length(targets, 0)), rows, nll)
    return graph.ReduceSum(graph.Reshape(nll, graph.Shape(ids)), [1], keepdims=0)
