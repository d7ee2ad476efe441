"""KerasHub classes around a `LanguageModel`: backbone, tokenizer, preprocessor and `CausalLM`.

Importing this package imports KerasHub and registers the classes, so that `keras_hub.models.CausalLM.from_preset` finds
them. The rest of `keras_adaptive` does not need KerasHub.
"""

try:
    import keras_hub as keras_hub
except ModuleNotFoundError as error:
    if error.name != "keras_hub":
        raise
    message = 'keras_adaptive.hub needs KerasHub: pip install "keras_adaptive[hub]"'
    raise ModuleNotFoundError(message, name="keras_hub") from None

from keras_adaptive.hub.backbone import AdaptiveBackbone as AdaptiveBackbone
from keras_adaptive.hub.causal_lm import AdaptiveCausalLM as AdaptiveCausalLM
from keras_adaptive.hub.preprocessor import AdaptiveCausalLMPreprocessor as AdaptiveCausalLMPreprocessor
from keras_adaptive.hub.tokenizer import AdaptiveTokenizer as AdaptiveTokenizer
