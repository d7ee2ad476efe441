"""Whether the sizes of arrays may depend on values."""

import keras


def has_dynamic_shapes():
    """Returns whether sizes may depend on values in the program that runs or is traced: XLA needs static shapes."""
    if keras.config.backend() != "tensorflow":
        return keras.config.backend() == "torch"
    import tensorflow as tf

    return tf.__internal__.get_enclosing_xla_context() is None
