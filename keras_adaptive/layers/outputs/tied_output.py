from typing import Any, Self

import keras

from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.typing import Tensor


class TiedOutput(Output):
    """Base class of output layers that can share the variables of an embedding, which files then store once.

    A copy of a functional model, made by `clone_model`, `from_config`, `model_from_json` or `load_model`, ties its
    output to its own embedding: to the layer of the same name and class among the layers that compute the hidden
    states. `trainable = False` freezes the variables of the output only, not the embedding.

    Args:
        tied_to: One of the `tied_classes`, an `Input`, or `None`.

    Raises:
        ValueError: If `tied_to` is another layer, such as a `keras.layers.Embedding`.
    """

    tied_classes: tuple[type, ...] = (Input,)
    _tied_kind = (
        "an input layer of keras_adaptive: embed words by `WordEmbedding(vocabulary_size, output_dim)` or "
        "`AdaptiveEmbedding`, and pass that layer"
    )

    def __init__(self, *, tied_to: keras.layers.Layer | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if tied_to is not None and not isinstance(tied_to, self.tied_classes):
            raise ValueError(f"`tied_to` must be {self._tied_kind}. Received: a {type(tied_to).__name__}.")
        self.tied_to = tied_to
        self._seeks_tie = False  # whether `tied_to` comes from a config and may be a copy of a layer of the model

    @property
    def trainable(self) -> bool:
        """Whether the layer's own variables are trainable. Tied variables follow the embedding."""
        return super().trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        tied = getattr(self, "tied_to", None)  # not set yet in the constructor of `keras.layers.Layer`
        before = [] if tied is None else [(part, part.trainable) for part in (tied, *tied.variables)]
        keras.layers.Layer.trainable.fset(self, value)  # sets `tied_to` too, which Keras tracks as a sub-layer
        for part, trainable in before:
            part.trainable = trainable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._find_tie(args[0] if args else kwargs.get("hidden"))
        return super().__call__(*args, **kwargs)

    def attach(self, hidden: Tensor) -> None:
        self._find_tie(hidden)
        super().attach(hidden)

    def _find_tie(self, hidden):
        """Replaces a `tied_to` that comes from a config by the embedding that computes the symbolic `hidden`.

        Keras makes every layer of a copied model from its own config, before the layers are called. `tied_to` is then a
        second copy of the embedding that the model uses. During `load_model` both are the same layer.
        """
        if not self._seeks_tie:
            return
        for layer in upstream_layers(hidden):
            if type(layer) is type(self.tied_to) and layer.name == self.tied_to.name:
                self._seeks_tie = False
                if layer is not self.tied_to:
                    self._tracker.replace_tracked_value("layers", self.tied_to, layer)
                    self.tied_to = layer
                    if self.built:
                        self._post_build()  # makes torch list the layer's parameters again
                return

    def get_config(self) -> dict[str, Any]:
        tied_to = None if self.tied_to is None else keras.saving.serialize_keras_object(self.tied_to)
        return {**super().get_config(), "tied_to": tied_to}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        tied_to = config.get("tied_to")
        if not isinstance(tied_to, dict):
            return super().from_config(config)
        layer = super().from_config({**config, "tied_to": keras.saving.deserialize_keras_object(tied_to)})
        layer._seeks_tie = True
        return layer


def upstream_layers(tensor):
    """Yields every layer that computes the symbolic `tensor`, nearest first, including layers of nested models.

    Keras records the operation and the call that computed a symbolic tensor. An array yields nothing.
    """
    tensors, seen = [tensor], set()
    while tensors:
        operation, call, _ = getattr(tensors.pop(0), "_keras_history", (None, None, None))
        if operation is None or (id(operation), call) in seen:
            continue
        seen.add((id(operation), call))
        yield from with_nested(operation)
        tensors.extend(operation._inbound_nodes[call].input_tensors)


def with_nested(layer):
    """Yields a layer and, if it is a model, the layers in it."""
    yield layer
    for nested in getattr(layer, "layers", ()):
        yield from with_nested(nested)
