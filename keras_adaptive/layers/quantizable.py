from typing import Any

import keras
from keras import ops

from keras_adaptive.ops.quantized_matrix import QuantizedMatrix, quantize
from keras_adaptive.typing import Shape, Tensor

MODES = {"int8": 8, "int4": 4}  # bits


class Quantizable(keras.layers.Layer):
    """Base class of layers whose matrices can be stored in 8 or 4 bits, as Keras' `quantize` does for other layers.

    Only the weights are quantized. They become floats when they are used: the rows of the ids, a band of words, a
    kernel. All losses and predictions are then computed as before, exactly for the rounded weights. The dtype policy of
    the layer, such as "int8_from_float32", says how its weights are stored. The config holds this policy, and the
    layers in a layer get it too. A quantized layer cannot be trained.

    A subclass lists the attributes that hold its matrices, creates these in `build` by `add_matrix`, and reads them
    through `ops.quantized_matrix.floats` or `rows_of`.

    Attributes:
        matrices: Names of attributes, each of which is a matrix, a list of matrices, or `None`.
    """

    matrices: tuple[str, ...] = ()

    def quantize(self, mode: str | None = None, type_check: bool = True, config: Any = None) -> None:
        """Stores the matrices of this layer, and of the layers in it, in 8 or 4 bits.

        Args:
            mode: "int8" or "int4".
            type_check: Not used; subclasses are quantized too.
            config: A `keras.quantizers.Int4QuantizationConfig` whose `block_size` is the number of columns that share a
                scale, 128 by default. In 8 bits a row shares one. Optional.

        Raises:
            ValueError: If the layer is not built or quantized already, the mode is another one, the `config` has a
                quantizer of its own, or a layer in this one has weights and is none of this package.
        """
        if mode not in MODES:
            raise ValueError(f"`mode` must be one of {list(MODES)}. Received: mode={mode!r}.")
        if getattr(config, "weight_quantizer", None) is not None:
            raise ValueError("`config` must have no `weight_quantizer`: leave it out. Received: one in `config`.")
        for layer in self._flatten_layers(include_self=False):
            if layer.weights and not isinstance(layer, Quantizable):
                raise ValueError(
                    "`quantize` needs layers that can store their weights in 8 or 4 bits. "
                    f"Received: a {type(layer).__name__} in a {type(self).__name__}."
                )
        prefix = mode if mode == "int8" else f"int4/{getattr(config, 'block_size', None) or -1}"
        for layer in self._flatten_layers():
            if isinstance(layer, Quantizable) and layer.quantization_mode is None:
                layer._store(f"{prefix}_from_{layer.dtype_policy.name}")

    def _store(self, policy):
        self._is_quantized = True  # Keras would otherwise quantize the layer again when its policy is set
        self.dtype_policy = policy
        self._tracker.unlock()
        for name in self.matrices:
            held = getattr(self, name)
            setattr(self, name, list(map(self._stored, held)) if isinstance(held, list) else self._stored(held))
        self._tracker.lock()

    def _stored(self, variable):
        if variable is None:
            return None
        array = ops.convert_to_numpy(ops.cast(variable, "float32"))
        self._untrack_variable(variable)
        matrix = self.add_matrix(array.shape, None, variable.name)
        for part, value in zip((matrix.values, matrix.scales), quantize(array, matrix.bits, matrix.block)):
            part.assign(value)
        return matrix

    def add_matrix(self, shape: Shape, initializer: Any, name: str, **kwargs: Any) -> Tensor | QuantizedMatrix:
        """Returns a new weight of two axes, which is a `QuantizedMatrix` if the dtype policy says so."""
        if self.quantization_mode is None:
            return self.add_weight(shape=shape, initializer=initializer, name=name, **kwargs)
        self._is_quantized = True
        (rows, columns), bits = shape, MODES[self.quantization_mode]
        block = getattr(self.dtype_policy, "block_size", -1)
        block = columns if block < 0 else min(block, columns)
        options = {"initializer": "zeros", "trainable": False, "autocast": False}
        width = columns if bits == 8 else -(-columns // 2)
        values = self.add_weight(shape=(rows, width), dtype="int8", name=name, **options)
        scales = self.add_weight(shape=(rows, -(-columns // block)), dtype="float16", name=f"{name}_scale", **options)
        return QuantizedMatrix(values, scales, columns=columns, bits=bits, block=block)

    def quantized_call(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


def check_floats(layer: keras.layers.Layer, name: str) -> None:
    """Raises a ValueError, which says what `name` is for, if weights in a layer or model are quantized."""
    for inner in layer._flatten_layers():
        if isinstance(inner, Quantizable) and inner.quantization_mode is not None:
            raise ValueError(
                f"{name} needs weights in floats: take the model from before `quantize`. "
                f"Received: a {type(inner).__name__} in {inner.quantization_mode}."
            )


def float_policy(layer: keras.layers.Layer) -> str:
    """Returns the name of the dtype policy of a layer, or of the floats that it was quantized from."""
    return layer.dtype_policy.name.rpartition("_from_")[2]
