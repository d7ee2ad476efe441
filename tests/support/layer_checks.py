"""What every layer must do, whatever it computes: `check_layer`."""

import json

import keras
import numpy as np

from keras_adaptive.layers import Output
from tests.support.backends import MODES, compiled, numpy, runner
from tests.support.closeness import all_equal
from tests.support.tiny import saved_and_loaded
from tests.support.weights import randomize

POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")


def check_layer(make, inputs, tmp_path):
    """Checks the contract of Keras' layers.

    - The configuration, and a file, give the same layer again.
    - The shape and dtype of a symbolic call are those of an eager call, under every policy, and are the compute dtype,
      except for log-probabilities, which are float32.
    - A training step lowers the loss and changes every weight.

    Args:
        make: `make(**kwargs)` returns the layer; `dtype` is among the keyword arguments.
        inputs: NumPy array that the layer is called with, the batch first.
        tmp_path: folder to write in.
    """
    for policy in POLICIES:
        _check_shapes_and_dtypes(make(dtype=policy), inputs)
    _check_config(make, inputs, tmp_path)
    _check_training(make(dtype="float32"), inputs)


def _symbolic(inputs, shape):
    return keras.Input(shape, dtype=inputs.dtype)


def _check_shapes_and_dtypes(layer, inputs):
    layer.build(inputs.shape)
    output = compiled(layer, MODES[0])(keras.ops.convert_to_tensor(inputs))
    shape, dtype = tuple(output.shape), keras.backend.standardize_dtype(output.dtype)
    assert dtype == ("float32" if isinstance(layer, Output) else layer.compute_dtype)
    assert {variable.dtype for variable in layer.trainable_variables} <= {"float32"}
    rest, unknown = inputs.shape[1:], (None, *inputs.shape[2:])
    for symbol in (_symbolic(inputs, rest), _symbolic(inputs, unknown), keras.KerasTensor(inputs.shape, inputs.dtype)):
        for answer in (layer(symbol), layer.compute_output_spec(symbol)):
            assert answer.dtype == dtype
            assert tuple(answer.shape) == (*symbol.shape[:2], *shape[2:])
    assert np.isfinite(numpy(keras.ops.cast(output, "float32"))).all()


def _check_config(make, inputs, tmp_path):
    layer = make(dtype="float32", name="layer_of_this_name")
    symbol = _symbolic(inputs, inputs.shape[1:])
    model = keras.Model(symbol, layer(symbol))
    randomize(layer)
    expected = runner(layer)(inputs)

    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    copy = keras.saving.deserialize_keras_object(serialized)
    assert type(copy) is type(layer) and copy.name == layer.name
    assert _as_written(copy) == _as_written(layer)
    assert copy.built and len(copy.variables) == len(layer.variables)  # each is made once
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(runner(copy)(inputs), expected)

    loaded = saved_and_loaded(model, tmp_path / "model.keras")
    assert _as_written(loaded.get_layer(layer.name)) == _as_written(layer)
    all_equal(loaded.get_weights(), model.get_weights())


def _as_written(layer):
    """The configuration as it stands in a file, which has lists for tuples."""
    return json.loads(json.dumps(layer.get_config()))


def _check_training(layer, inputs):
    symbol = _symbolic(inputs, inputs.shape[1:])
    model = keras.Model(symbol, layer(symbol))
    randomize(layer)
    if not layer.trainable_variables:
        return
    model.compile(keras.optimizers.SGD(1e-2), loss="mse")
    before = [numpy(variable.value).copy() for variable in layer.trainable_variables]
    targets = np.zeros((len(inputs), *model.output_shape[1:]), "float32")
    first, second = (float(model.train_on_batch(inputs, targets)) for _ in range(2))
    assert second < first
    for variable, old in zip(layer.trainable_variables, before, strict=True):
        # A key's bias moves all scores of a query alike, and no probability.
        assert np.any(numpy(variable.value) != old) or variable.path.endswith("key/bias"), variable.path
