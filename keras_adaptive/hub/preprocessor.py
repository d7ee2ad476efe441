from typing import Any

import keras
import keras_hub

from keras_adaptive.hub.backbone import AdaptiveBackbone
from keras_adaptive.hub.presets import from_safe_preset
from keras_adaptive.hub.tokenizer import AdaptiveTokenizer

LONGEST = 1 << 20  # tokens of a row


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AdaptiveCausalLMPreprocessor(keras_hub.models.CausalLMPreprocessor):
    """KerasHub preprocessor of an `AdaptiveCausalLM`: from strings to token ids, targets and weights.

    A string is one line. As in the training of this package, its row is `</s>`, the tokens, and `</s>` as the last
    target. As elsewhere in KerasHub, a text is cut after `sequence_length` tokens.

    Args:
        tokenizer: An `AdaptiveTokenizer`.
        sequence_length: Number of tokens of a row, at most 1,048,576.
        add_start_token: Whether `</s>` precedes the text.
        add_end_token: Whether `</s>` follows the text.
        **kwargs: As in `keras_hub.models.CausalLMPreprocessor`.

    Call arguments:
        x: A string, a list of strings, or a string tensor (batch,), also within a `tf.data` pipeline.
        sequence_length: Number of tokens of a row, which replaces the layer's. Optional.

    Returns:
        `({"token_ids", "padding_mask"}, targets, weights)`, each (batch, sequence_length).

    Example:

    >>> tokenizer = AdaptiveTokenizer(TextCodec(Vocabulary.from_counts({"the": 9, "cat": 2})))
    >>> preprocessor = AdaptiveCausalLMPreprocessor(tokenizer, sequence_length=5)
    >>> inputs, targets, weights = preprocessor(["the cat"])
    >>> for tensor in (inputs["token_ids"], targets, weights):
    ...     print(keras.ops.convert_to_numpy(tensor).tolist())
    [[2, 4, 5, 2, 1]]
    [[4, 5, 2, 1, 1]]
    [[True, True, True, False, False]]
    """

    backbone_cls = AdaptiveBackbone
    tokenizer_cls = AdaptiveTokenizer
    from_preset = from_safe_preset(keras_hub.models.CausalLMPreprocessor, "preprocessor.json", "tokenizer.json")

    def __init__(self, tokenizer: AdaptiveTokenizer, sequence_length: int = 1024, **kwargs: Any) -> None:
        if not isinstance(tokenizer, AdaptiveTokenizer):
            raise ValueError(f"`tokenizer` must be an AdaptiveTokenizer. Received: a {type(tokenizer).__name__}.")
        if type(sequence_length) is not int or not 1 <= sequence_length <= LONGEST:
            raise ValueError(
                f"`sequence_length` must be a whole number from 1 to {LONGEST:,}. "
                f"Received: sequence_length={sequence_length!r}."
            )
        super().__init__(tokenizer, sequence_length, **kwargs)
