import os

import keras

from keras_adaptive.data import Subwords, Vocabulary
from keras_adaptive.export.checks import check_dtype, check_finite_weights, check_folder, check_vocabulary
from keras_adaptive.export.graph_text import GraphText
from keras_adaptive.export.served_model import ServedModel
from keras_adaptive.files import complete_or_absent
from keras_adaptive.models import LanguageModel
from keras_adaptive.models.reading import reading_of


def export_saved_model(
    model: LanguageModel,
    vocabulary: Vocabulary,
    folder: str | os.PathLike,
    tokenizer: str = "whitespace",
    subwords: Subwords | None = None,
    max_length: int = 2048,
    dtype: str = "float32",
    *,
    window: int | None = None,
    context: int | None = None,
) -> None:
    """Writes a SavedModel that takes text and that TensorFlow loads without Keras and without this package.

    See `ServedModel` for its signatures `score` (the default), `next_words`, `generate` and `log_probs`. Each weight is
    stored once, in `dtype`. The optimizer is not stored. The folder appears complete or not at all. The function needs
    Keras on TensorFlow, which can load a `.keras` file of any backend.

    Args:
        model: A `LanguageModel`.
        vocabulary: Its `Vocabulary`.
        folder: Folder to write to. TensorFlow Serving expects a number as its last part.
        tokenizer: Name of the tokenizer of the corpus, in `TOKENIZERS`.
        subwords: The `Subwords` of the corpus; None for a corpus of words.
        max_length: Largest number of tokens of a line including its `</s>`; longer lines are an error.
        window, context: As in `TextModel`: the windows in which attention reads long lines.
        dtype: "float32" or "bfloat16", for the weights and the matrix products. Probabilities are always float32.

    Raises:
        ValueError: If the backend is not TensorFlow, the folder is not empty, the vocabulary has another size than the
            model, `dtype` is not supported, `max_length`, `window` or `context` is out of its range, or a weight is
            not finite. Nothing is written in these cases.
        OSError: If the folder cannot be written.

    Example:

    ```python
    model = keras.saving.load_model("runs/books/best.keras")
    export_saved_model(model, Vocabulary.load("runs/books/vocabulary.txt"), "exports/books/1")
    served = tf.saved_model.load("exports/books/1")  # keep it: the signatures do not keep its variables alive
    served.score(["It was the best of times"])["perplexity"]
    ```
    """
    check_export(folder)
    check_vocabulary(vocabulary, model)
    check_dtype(dtype)
    if not 1 <= max_length < 2**31:
        raise ValueError(f"`max_length` must be at least 1 and below 2^31. Received: max_length={max_length}.")
    check_finite_weights(model.weights)
    reading = reading_of(model, window, context)
    import tensorflow as tf

    model, text = in_dtype(with_output_for_inference(model), dtype), GraphText(vocabulary, tokenizer, subwords)
    module = tf.Module()
    module.weights = [variable.value for variable in model.weights]
    module.tables = text.tables
    functions = ServedModel(model, text, max_length, reading).functions()
    for name, function in functions.items():
        setattr(module, name, function)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)  # serving needs no gradients
    with complete_or_absent(folder) as new:
        try:
            tf.saved_model.save(module, str(new), {**functions, "serving_default": functions["score"]}, options)
        except tf.errors.OpError as error:  # TensorFlow reports a full disk as exhausted resources
            raise OSError(f"{folder} cannot be written ({error.message}). Free space, or pass another.") from error


def check_export(folder: str | os.PathLike) -> None:
    """Checks that a SavedModel can be made, and that `folder` is new or empty."""
    if keras.config.backend() != "tensorflow":
        raise ValueError(
            "A SavedModel is exported by Keras on TensorFlow: set KERAS_BACKEND=tensorflow and load the model there. "
            f"Received: KERAS_BACKEND={keras.config.backend()}."
        )
    check_folder(folder)


def with_output_for_inference(model):
    """Returns the model with precomputed vectors in its output layer. Its input still reads any word by its bytes."""
    word_output = model.word_output.for_inference()
    if word_output is model.word_output:
        return model
    return LanguageModel(model.word_input, model.body, word_output, trained_length=model.trained_length)


def in_dtype(model, dtype):
    """Returns the model under another dtype policy: the model itself, or a copy with the same weights."""
    if model.body.dtype_policy.name == dtype:
        return model
    copy = LanguageModel.from_config(_with_policy(model.get_config(), dtype))
    for new, old in zip(copy.weights, model.weights, strict=True):
        new.assign(old.value)
    return copy


def _with_policy(config, dtype):
    """Returns a config in which every dtype policy is replaced."""
    if isinstance(config, list):
        return [_with_policy(part, dtype) for part in config]
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "DTypePolicy":
        return {**config, "config": {"name": dtype}}
    return {key: _with_policy(part, dtype) for key, part in config.items()}
