import os

import keras

from keras_adaptive.export.graph_text import GraphText
from keras_adaptive.export.served_model import ServedModel
from keras_adaptive.files import complete_or_absent
from keras_adaptive.models import LanguageModel


def export_saved_model(
    model, vocabulary, folder, tokenizer="whitespace", subwords=None, max_length=2048, dtype="float32"
):
    """Writes a SavedModel that TensorFlow loads without Keras and without this package: text in, answers out.

    `ServedModel` says what its signatures `score`, `next_words`, `generate` and `log_probs` take and return; `score`
    is also the default one. Each weight is stored once, in `dtype`, and no optimizer. The folder appears complete or
    not at all. Needs Keras on TensorFlow, to which a `.keras` file of any backend can be loaded.

    Args:
        model: A `LanguageModel`.
        vocabulary: Its `Vocabulary`.
        folder: Where to write; a server of TensorFlow expects a number as its last part.
        tokenizer: The name of the tokenizer of its corpus, in `TOKENIZERS`.
        subwords: The `Subwords` of its corpus, None for a corpus of words.
        max_length: Tokens that a line may have with its `</s>`; longer ones are an error. At most as many as a model of
            learned positions has.
        dtype: "float32" or "bfloat16", of the weights and of the products; probabilities are float32 in either.

    Raises:
        ValueError: On another backend, a folder that is not empty, a vocabulary of another size, another dtype or a
            `max_length` below 1; nothing is written then.

    Example:

    ```python
    model = keras.saving.load_model("runs/books/best.keras")
    export_saved_model(model, Vocabulary.load("runs/books/vocabulary.txt"), "exports/books/1")
    served = tf.saved_model.load("exports/books/1")  # keep it: the signatures do not keep its variables alive
    served.score(["It was the best of times"])["perplexity"]
    ```
    """
    if keras.config.backend() != "tensorflow":
        raise ValueError(
            "A SavedModel is made with Keras on TensorFlow: set KERAS_BACKEND=tensorflow and load the model there. "
            f"Received: {keras.config.backend()}."
        )
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise ValueError(f"{folder} exists and is not empty: remove it, or export to another folder.")
    if len(vocabulary) != model.vocabulary_size:
        raise ValueError(
            f"`vocabulary` must be that of the model, of {model.vocabulary_size} words. Received: {len(vocabulary)}."
        )
    if dtype not in ("float32", "bfloat16"):
        raise ValueError(f"`dtype` must be float32 or bfloat16. Received: {dtype!r}.")
    if max_length < 1:
        raise ValueError(f"`max_length` must be at least 1. Received: {max_length}.")
    import tensorflow as tf

    model, text = in_dtype(model, dtype), GraphText(vocabulary, tokenizer, subwords)
    module = tf.Module()
    module.weights = [variable.value for variable in model.weights]
    module.tables = text.tables
    longest = model.body.max_length or max_length
    functions = ServedModel(model, text, min(max_length, longest)).functions()
    for name, function in functions.items():
        setattr(module, name, function)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)  # it answers and does not train
    with complete_or_absent(folder) as new:
        tf.saved_model.save(module, str(new), {**functions, "serving_default": functions["score"]}, options)


def in_dtype(model, dtype):
    """The model with all layers of another dtype policy: itself, or a copy with its weights."""
    if model.body.dtype_policy.name == dtype:
        return model
    copy = LanguageModel.from_config(_with_policy(model.get_config(), dtype))
    for new, old in zip(copy.weights, model.weights, strict=True):
        new.assign(old.value)
    return copy


def _with_policy(config, dtype):
    """A config with every dtype policy in it replaced."""
    if isinstance(config, list):
        return [_with_policy(part, dtype) for part in config]
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "DTypePolicy":
        return {**config, "config": {"name": dtype}}
    return {key: _with_policy(part, dtype) for key, part in config.items()}
