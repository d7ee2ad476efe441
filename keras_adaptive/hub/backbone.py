import os
from typing import Any, NoReturn

import keras
import keras_hub

from keras_adaptive.backend.checks import non_finite
from keras_adaptive.backend.unallocated import check_memory, unallocated
from keras_adaptive.export.saved_model import in_dtype
from keras_adaptive.files import reading
from keras_adaptive.hub.presets import MEND, from_safe_preset
from keras_adaptive.models import LanguageModel


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AdaptiveBackbone(keras_hub.models.Backbone):
    """KerasHub backbone around a `LanguageModel`: from token ids to hidden states.

    The backbone owns all weights of the language model, including the weights of its output layer, because the output
    may be tied to the input.

    Args:
        language_model: A `LanguageModel`.
        dtype: Dtype policy. A policy other than the language model's copies the model. Optional.
        **kwargs: `name` and `trainable`, as in KerasHub.

    Call arguments:
        inputs: Dict of `token_ids` and `padding_mask`, both (batch, length). The mask is ignored, because the model is
            causal and padding follows the text.

    Output shape:
        (batch, length, dim).

    Example:

    >>> backbone = AdaptiveBackbone(transformer_lm(100, dim=16, num_blocks=1, num_heads=2, ffn_dim=32, cutoffs=(20,)))
    >>> ids = np.array([[2, 7, 9, 1]])
    >>> backbone({"token_ids": ids, "padding_mask": ids != 1}).shape
    (1, 4, 16)
    """

    def __init__(self, language_model: LanguageModel, dtype: Any = None, **kwargs: Any) -> None:
        if dtype is not None:
            language_model = in_dtype(language_model, keras.dtype_policies.get(dtype).name)
        self.language_model = language_model
        self.token_embedding = language_model.word_input
        inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ("token_ids", "padding_mask")}
        hidden = language_model(inputs["token_ids"])
        super().__init__(inputs=inputs, outputs=hidden, dtype=language_model.dtype_policy, **kwargs)

    @property
    def vocabulary_size(self) -> int:
        """Number of ids in the output."""
        return self.language_model.vocabulary_size

    from_preset = from_safe_preset(keras_hub.models.Backbone, "config.json")

    def quantize(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises `NotImplementedError`: the backbone would lose track of its weights."""
        raise NotImplementedError(
            'An AdaptiveBackbone cannot be quantized: quantize its language model before, by `quantize("int8")`.'
        )

    def enable_lora(self, rank: int, target_layer_names: Any = None) -> None:
        """Raises `NotImplementedError`: the language model would lose track of its weights."""
        raise NotImplementedError(
            "An AdaptiveBackbone has no LoRA. Freeze parts of it instead, such as "
            "`backbone.language_model.word_input.trainable = False`."
        )

    def save_weights(self, filepath: str | os.PathLike, **kwargs: Any) -> None:
        keras.saving.save_weights(self, filepath, objects_to_skip=self._training_objects(), **kwargs)

    def load_weights(self, filepath: str | os.PathLike, **kwargs: Any) -> None:
        with reading(filepath, "the weights of this backbone", MEND):
            keras.saving.load_weights(self, filepath, objects_to_skip=self._training_objects(), **kwargs)
            if weight := non_finite(self.weights):
                raise ValueError(f"the weight {weight} is not finite, or its square is not")

    def _training_objects(self) -> list[Any]:
        """Returns the optimizer and metrics of a compiled language model, which a preset leaves out."""
        return [getattr(self.language_model, "optimizer", None), *self.language_model.metrics]

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "language_model": keras.saving.serialize_keras_object(self.language_model)}
        if config["trainable"]:
            del config["trainable"]  # setting it would make frozen parts trainable
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "AdaptiveBackbone":
        uncompiled = {**config["language_model"], "compile_config": None}
        described = unallocated(lambda: keras.saving.deserialize_keras_object(uncompiled))
        check_memory(described, "take a smaller model, or a machine with more memory.")
        language_model = keras.saving.deserialize_keras_object(config["language_model"])
        return super().from_config({**config, "language_model": language_model})
