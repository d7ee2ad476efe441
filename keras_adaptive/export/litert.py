import json
import os
import tempfile
import warnings

import keras
import numpy as np

from keras_adaptive.data import Vocabulary
from keras_adaptive.export.checks import check_dtype, check_finite_weights, check_vocabulary
from keras_adaptive.export.saved_model import check_export
from keras_adaptive.files import complete_or_absent
from keras_adaptive.layers.quantizable import check_floats
from keras_adaptive.models import LanguageModel
from keras_adaptive.models.reading import reading_of


def export_litert(
    model: LanguageModel,
    vocabulary: Vocabulary,
    folder: str | os.PathLike,
    dtype: str = "float32",
    *,
    window: int | None = None,
    context: int | None = None,
) -> None:
    """Writes a model for LiteRT (TensorFlow Lite), which reads a text one word at a time.

    The function needs Keras on TensorFlow, which can load a `.keras` file of any backend. The folder appears complete
    or not at all. It holds

    - `model.tflite` with the signature `step`: from `token`, int32 (1,), and the state before it, to `log_probs`,
      float32 (vocabulary,), of the next word, and the state after it. The tensors of the state have the names
      `state_0`, `state_1`, … on both sides. The state before a text is zeros;
    - `vocabulary.txt`, a line `word count` for each word in the order of the ids, which begin with 4: the ids of `<s>`,
      `<pad>`, `</s>` and `<unk>` are 0 to 3;
    - `reading.json`: `window`, the number of tokens that a state holds, or null for any number, and `context`. As in
      Python, a new window begins at every token whose number, counted from 0, is above `context` and a multiple of
      `window` - `context`. It begins with zeros and reads the last `context` tokens again.

    Args:
        model: A `LanguageModel`. Vectors that it computes from characters become a table of the vocabulary.
        vocabulary: Its `Vocabulary`.
        folder: New or empty folder.
        dtype: "float32", whose log-probabilities are those of the model, or "int8", a quarter of the size: LiteRT then
            multiplies bytes, with a scale for each matrix.
        window, context: As in `TextModel`. Optional.

    Raises:
        ValueError: If the backend is not TensorFlow, the folder is not empty, the vocabulary has another size than the
            model, `dtype`, `window` or `context` is out of range, a weight is not finite or is quantized already, or
            LiteRT has no form of a layer, which the message names. Nothing is written in these cases.
        OSError: If the folder cannot be written.

    Example:

    ```python
    lm = keras_adaptive.load("runs/books")
    export_litert(lm.trained, lm.codec.vocabulary, "exports/books", dtype="int8")
    ```
    """
    check_export(folder)
    check_vocabulary(vocabulary, model)
    check_dtype(dtype, ("float32", "int8"))
    check_floats(model, "The export for LiteRT")
    check_finite_weights(model.weights)
    reading = reading_of(model, window, context)
    model = model.for_inference()
    converted = _converted(model, reading.window, dtype)
    with complete_or_absent(folder) as new:
        (new / "model.tflite").write_bytes(converted)
        vocabulary.save(new / "vocabulary.txt")
        about = {"window": reading.window, "context": reading.context}
        (new / "reading.json").write_text(json.dumps(about), encoding="utf-8")


def _converted(model, capacity, dtype):
    """Returns the bytes of a model of one signature, `step`, after comparing the float one with `model`."""
    import tensorflow as tf

    state = model.body.initial_state(1, capacity)
    flat = keras.tree.flatten(state)
    names = [f"state_{number}" for number in range(len(flat))]

    def step(token, **states):
        before = keras.tree.pack_sequence_as(state, [states[name] for name in names])
        hidden, after = model.body.step(model.word_input(token[None]), before)
        after = [tf.reshape(new, old.shape) for new, old in zip(keras.tree.flatten(after), flat)]
        return {"log_probs": model.word_output.log_probs(hidden)[0, 0], **dict(zip(names, after))}

    module = tf.Module()
    module.weights = [variable.value for variable in model.weights]
    module.step = tf.function(step, autograph=False)
    specs = {name: tf.TensorSpec(tensor.shape, tensor.dtype, name) for name, tensor in zip(names, flat)}
    signature = module.step.get_concrete_function(token=tf.TensorSpec([1], tf.int32, "token"), **specs)
    with tempfile.TemporaryDirectory() as saved:
        tf.saved_model.save(module, saved, {"step": signature})
        try:
            converted = _convert(saved)
        except Exception as error:  # the converter raises an error of its own for an operation it has no form of
            raise _refused(model, "it has no form of an operation") from error
        tokens = np.arange(min(4, capacity or 4), dtype="int32") % model.vocabulary_size
        if not np.allclose(_answers(converted, tokens), model.log_probs(tokens[None])[0], atol=1e-3):
            raise _refused(model, "its answers differ from those of the model")
        return converted if dtype == "float32" else _convert(saved, quantized=True)


def _convert(saved, quantized=False):
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=["step"])
    if quantized:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        # Words that are read and words that are predicted share a table only if the whole table has one scale.
        converter._experimental_disable_per_channel = True
        converter._experimental_disable_per_channel_quantization_for_dense_layers = True
    return converter.convert()


def _answers(converted, tokens):
    """Returns the log-probabilities (tokens, vocabulary) of a converted model, one step after the other."""
    import tensorflow as tf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorFlow, which will leave its interpreter to ai-edge-litert
        step = tf.lite.Interpreter(model_content=converted).get_signature_runner("step")
    inputs = {name: np.zeros(about["shape"], about["dtype"]) for name, about in step.get_input_details().items()}
    rows = []
    for token in tokens:
        inputs = step(**{**inputs, "token": token[None]})
        rows.append(inputs.pop("log_probs"))
    return np.array(rows)


def _refused(model, reason):
    names = ", ".join(type(part).__name__ for part in (model.word_input, model.body, model.word_output))
    return ValueError(f"LiteRT cannot hold this model, since {reason}: export a SavedModel. Received: {names}.")
