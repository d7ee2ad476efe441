"""Large-vocabulary language models in Keras 3: adaptive inputs, adaptive softmax and their baselines.

Importing the package registers its classes with Keras. It must be imported before `keras.saving.load_model` reads a
model that uses them. The parts that hold such classes are imported at once, the others when they are first used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from keras_adaptive.installed_backend import choose_backend as _choose_backend

_choose_backend()  # before Keras is imported

from keras_adaptive import layers as layers  # noqa: E402
from keras_adaptive import losses as losses  # noqa: E402
from keras_adaptive import metrics as metrics  # noqa: E402
from keras_adaptive import models as models  # noqa: E402
from keras_adaptive import ops as ops  # noqa: E402
from keras_adaptive import optimizers as optimizers  # noqa: E402
from keras_adaptive.models import without_logits as without_logits  # noqa: E402

if TYPE_CHECKING:  # `__getattr__` imports these when they are first used: they take most of the time of this package
    from keras_adaptive import callbacks as callbacks
    from keras_adaptive import data as data
    from keras_adaptive import distribution as distribution
    from keras_adaptive import evaluation as evaluation
    from keras_adaptive import export as export
    from keras_adaptive import fairseq as fairseq
    from keras_adaptive import hub as hub
    from keras_adaptive import text as text
    from keras_adaptive import transfo_xl as transfo_xl
    from keras_adaptive.text import load as load

_LATER = {"callbacks", "data", "distribution", "evaluation", "export", "fairseq", "hub", "text", "transfo_xl"}
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name == "load":
        return _import_module("keras_adaptive.text").load
    if name in _LATER:
        return _import_module(f"keras_adaptive.{name}")
    raise AttributeError(f"module 'keras_adaptive' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "load"})
