"""The options of Keras' optimizers that the steps of this package implement."""

import functools
import inspect
from collections.abc import Callable

import keras

OPTIONS = {
    *("name", "learning_rate", "weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "loss_scale_factor"),
    *("use_ema", "ema_momentum", "ema_overwrite_frequency", "gradient_accumulation_steps"),
    *("beta_1", "beta_2", "epsilon", "amsgrad", "momentum", "nesterov", "initial_accumulator_value"),
}


def has_known_options(optimizer: keras.optimizers.Optimizer) -> bool:
    """Returns whether Keras gives an optimizer only options that steps other than its own take into account.

    An option that a new version of Keras adds to a class is unknown, whatever its value. Such an optimizer takes the
    steps of Keras. The arguments of constructors are compared, because a config cannot be read while a step is traced.
    """
    bases = [base for base in type(optimizer).__mro__ if base.__module__.startswith("keras.")]
    return all(_arguments(vars(base)["__init__"]) <= OPTIONS for base in bases if "__init__" in vars(base))


@functools.cache
def _arguments(constructor: Callable) -> set[str]:
    _, *parameters = inspect.signature(constructor).parameters.values()
    several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return {parameter.name for parameter in parameters if parameter.kind not in several}
