import os
from pathlib import Path

from keras_adaptive.checkpoints.safetensors import save_safetensors
from keras_adaptive.data import TextCodec
from keras_adaptive.export.checks import check_dtype, check_finite_weights, check_folder, check_vocabulary
from keras_adaptive.export.huggingface import pure_torch
from keras_adaptive.export.huggingface.model_card import model_card
from keras_adaptive.export.huggingface.tokenizer_files import tokenizer_config, tokenizer_json
from keras_adaptive.export.parts import parts_of
from keras_adaptive.files import check_new_folder, complete_or_absent, json_text
from keras_adaptive.models import LanguageModel
from keras_adaptive.models.reading import reading_of
from keras_adaptive.special_words import EOS, PAD, UNK

MODULE = "modeling_keras_adaptive"


def export_huggingface(
    model: LanguageModel,
    codec: TextCodec,
    folder: str | os.PathLike,
    *,
    dtype: str = "float32",
    window: int | None = None,
    facts: dict[str, str] | None = None,
) -> None:
    """Writes a folder that the package transformers loads without Keras and without this package.

    With `trust_remote_code=True`, `AutoModelForCausalLM.from_pretrained(folder)` returns a PyTorch model whose logits
    are log-probabilities, and `AutoTokenizer.from_pretrained(folder)` a fast tokenizer with the ids of the run. The
    folder contains the modules of the model as Python files, each weight once, and a model card. It appears complete or
    not at all. Any backend can write it.

    The tokenizer begins a text with `</s>`, as every line of the training text begins. A line break is `</s>`, so that
    a text with a line break at its end is scored as `TextModel.score` does.

    Args:
        model: A `LanguageModel`.
        codec: Its `TextCodec`.
        folder: Folder to write.
        dtype: "float32" or "bfloat16", for the weights and the matrix products. Log-probabilities are always float32.
        window: Largest number of tokens of a text that tools should read at once, by default that of `reading_of`.
            Optional.
        facts: Lines of the model card, names and values as text. Optional.

    Raises:
        ValueError: If a layer of the model has no PyTorch module, the vocabulary has another size than the model, the
            folder is not empty, `dtype` or `window` is not supported, or a weight is not finite. Nothing is written in
            these cases.
        OSError: If the folder cannot be written.

    Example:

    ```python
    lm = keras_adaptive.load("runs/books")
    export_huggingface(lm.trained, lm.codec, "exports/books")
    ```
    """
    check_new_folder(folder)
    check_folder(folder)
    check_vocabulary(codec.vocabulary, model, "codec")
    check_dtype(dtype)
    check_finite_weights(model.weights)
    longest, parts = reading_of(model, window).window, parts_of(model)
    weights = {f"{name}.{inner}": array for name, part in parts.items() for inner, array in part.weights.items()}
    config = model_config({name: part.config for name, part in parts.items()}, model.vocabulary_size, longest, dtype)
    generation = {"bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": PAD, "suppress_tokens": [UNK]}
    with complete_or_absent(folder) as new:
        for path in Path(pure_torch.__file__).parent.glob("*.py"):
            if path.name != "__init__.py":
                (new / path.name).write_bytes(path.read_bytes())
        save_safetensors(new / "model.safetensors", weights, dtype)
        for name, contents in {
            "config.json": config,
            "generation_config.json": generation,
            "tokenizer.json": tokenizer_json(codec),
            "tokenizer_config.json": tokenizer_config(longest),
        }.items():
            (new / name).write_text(json_text(contents, ensure_ascii=False), encoding="utf-8")
        (new / "README.md").write_text(model_card(model, codec, facts or {}), encoding="utf-8")


def model_config(parts: dict[str, dict], vocabulary_size: int, longest: int | None, dtype: str) -> dict:
    """Returns the contents of `config.json`."""
    body = parts["body"]
    layers = body.get("layers") or [block for block in body["blocks"] if block.get("mixer", block) is not None]
    return {
        "model_type": "keras_adaptive",
        "architectures": ["AdaptiveForCausalLM"],
        "auto_map": {"AutoConfig": f"{MODULE}.AdaptiveConfig", "AutoModelForCausalLM": f"{MODULE}.AdaptiveForCausalLM"},
        "vocab_size": vocabulary_size,
        "num_hidden_layers": len(layers),  # with a cache
        **({} if longest is None else {"max_position_embeddings": longest}),
        "bos_token_id": EOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "tie_word_embeddings": False,  # what is shared is stored once
        "dtype": dtype,
        **parts,
    }
