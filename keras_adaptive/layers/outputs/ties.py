"""Search upstream of a symbolic tensor, in which a copied output finds its copied embedding."""


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
        yield from _with_nested(operation)
        tensors.extend(operation._inbound_nodes[call].input_tensors)


def _with_nested(layer):
    yield layer
    for nested in getattr(layer, "layers", ()):
        yield from _with_nested(nested)
