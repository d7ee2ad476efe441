import keras

from keras_adaptive.layers.outputs.output import Output


class TiedOutput(Output):
    """Base class of outputs that can use the variables of an embedding, which files then hold once.

    A copy of a functional model, made by `clone_model`, `from_config`, `model_from_json` or `load_model`, ties its
    output to its embedding: to the layer of the same name and class among the layers that compute the hidden states.
    `trainable = False` freezes the output's own variables and leaves the embedding as it is.

    Args:
        tied_to: An `Input`, or `None`.
    """

    def __init__(self, *, tied_to, **kwargs):
        super().__init__(**kwargs)
        self.tied_to = tied_to
        self._seeks_tie = False  # whether `tied_to` was made from a config, and may be a copy of a layer of the model

    @property
    def trainable(self):
        """Whether the layer's own variables are trained. Tied variables follow the embedding."""
        return super().trainable

    @trainable.setter
    def trainable(self, value):
        tied = getattr(self, "tied_to", None)  # which the constructor of Keras' layer does not know yet
        before = [] if tied is None else [(part, part.trainable) for part in (tied, *tied.variables)]
        keras.layers.Layer.trainable.fset(self, value)  # sets `tied_to` too, which Keras takes for a part
        for part, trainable in before:
            part.trainable = trainable

    def __call__(self, *args, **kwargs):
        self._find_tie(args[0] if args else kwargs.get("hidden"))
        return super().__call__(*args, **kwargs)

    def attach(self, hidden):
        self._find_tie(hidden)
        super().attach(hidden)

    def _find_tie(self, hidden):
        """Replaces a `tied_to` that was made from a config by the layer that the symbolic `hidden` comes from.

        Keras makes every layer of a copied model from its own config, before the layers are called. `tied_to` is then a
        second copy, beside the copy that the model uses. Within `load_model` both are one layer already.
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
                        self._post_build()  # torch lists the variables that are the layer's parameters
                return

    def get_config(self):
        tied_to = None if self.tied_to is None else keras.saving.serialize_keras_object(self.tied_to)
        return {**super().get_config(), "tied_to": tied_to}

    @classmethod
    def from_config(cls, config):
        tied_to = config.get("tied_to")
        if not isinstance(tied_to, dict):
            return cls(**config)
        layer = cls(**{**config, "tied_to": keras.saving.deserialize_keras_object(tied_to)})
        layer._seeks_tie = True
        return layer


def upstream_layers(tensor):
    """Yields every layer that computes the symbolic `tensor`, layers of nested models too, nearest first.

    Keras records the operation and the call that made a symbolic tensor. An array yields nothing.
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
