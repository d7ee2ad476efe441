"""The parts of a model, as exports build them again: the arguments of PyTorch modules, and their weights by name."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_adaptive.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    CausalAttention,
    ContextConcatenation,
    LearnedPositions,
    LSTMDecoder,
    NPLMDecoder,
    PositionInfusedAttention,
    QRNNDecoder,
    RelativeAttention,
    SampledSoftmax,
    SinusoidalPositions,
    TransformerBlock,
    TransformerDecoder,
    WordEmbedding,
)
from keras_adaptive.layers.quantizable import check_floats
from keras_adaptive.models import LanguageModel


class Part(NamedTuple):
    """A module of `pure_torch`.

    Attributes:
        config: Keyword arguments of its constructor.
        weights: NumPy arrays of its parameters by name.
    """

    config: dict[str, Any]
    weights: dict[str, np.ndarray]


def parts_of(model: LanguageModel) -> dict[str, Part]:
    """Returns the `Part`s of a model: `word_input`, `body` and `word_output`.

    Vectors that a layer computes from the characters of words are computed once, and become a table.

    Raises:
        ValueError: If exports do not know a layer.
    """
    if not isinstance(model, LanguageModel):
        raise _refused("model", model)
    check_floats(model, "This export")
    word_output = model.word_output.for_inference()  # before the vectors of an input that cannot be exported anyway
    _check(word_output, "output", (AdaptiveSoftmax, SampledSoftmax))
    _check(model.body, "body", BODIES)
    word_input = model.word_input.for_inference()
    _check(word_input, "input", (AdaptiveEmbedding, WordEmbedding))
    return {
        "word_input": _embedding(word_input),
        "body": BODIES[type(model.body)](model.body, word_input.output_dim),
        "word_output": _softmax(word_output, word_input),
    }


def _check(layer, role, known):
    if type(layer) not in known:
        raise _refused(role, layer)


def _refused(role, layer):
    return ValueError(
        f"`model` must have parts that this export knows. Received: the {role} {type(layer).__name__}, which it "
        "lacks. Export a SavedModel, which holds every part."
    )


def _array(variable):
    return np.asarray(ops.convert_to_numpy(variable.value), "float32")


def _named(**weights):
    """Returns `{"name.inner": array}` for dicts of arrays, and `{"name": array}` for variables, without `None`."""
    named = {}
    for name, value in weights.items():
        if isinstance(value, dict):
            named |= {f"{name}.{inner}": array for inner, array in value.items()}
        elif value is not None:
            named[name] = _array(value)
    return named


def _numbered(parts):
    """Returns the weights of several modules under their numbers."""
    return {f"{number}.{name}": array for number, part in enumerate(parts) for name, array in part.items()}


def _linear(layer):
    """Returns the weights of a linear layer, whose matrix torch holds transposed; none for no layer."""
    if layer is None:
        return {}
    bias = {"bias": _array(layer.bias)} if layer.use_bias else {}
    return {"weight": _array(layer.kernel).T, **bias}


def _norm(layer):
    return {} if layer is None else {"weight": _array(layer.gamma), "bias": _array(layer.beta)}


def _embedding(layer):
    config = {
        "boundaries": list(layer.boundaries),
        "dimensions": [table.shape[1] for table in layer.tables],
        "output_dim": layer.output_dim,
        "projects": bool(layer.projections),
    }
    tables, projections = (list(map(_array, variables)) for variables in (layer.tables, layer.projections))
    return Part(config, _named(tables=dict(_by_number(tables)), projections=dict(_by_number(projections))))


def _by_number(arrays):
    return ((str(number), array) for number, array in enumerate(arrays) if array is not None)


def _softmax(layer, word_input):
    tied = [layer.tied_to is word_input and is_tied for is_tied in layer._tied_projections]
    tables = [] if layer.tied_to is word_input else list(map(_array, layer.tables))
    projections = [None if matrix is None else _array(matrix) for matrix in layer.projections]
    for band, is_tied in enumerate(layer._tied_projections):
        if is_tied and not tied[band]:  # to an embedding that is not the input of the model
            projections[band] = _array(layer.tied_to.projections[band]).T
    config = {
        "boundaries": list(layer.boundaries),
        "tables": [array.shape for array in tables],
        "projections": [None if array is None else array.shape for array in projections],
        "tied": tied,
        "class_dim": None if layer.class_table is None else layer.class_table.shape[1],
        "use_bias": layer.bias is not None,
        "projects_head": layer._projects_head,
        "soft_cap": layer._soft_cap,
    }
    weights = _named(
        tables=dict(_by_number(tables)),
        projections=dict(_by_number(projections)),
        class_table=layer.class_table,
        bias=layer.bias,
        class_bias=layer.class_bias,
    )
    return Part(config, weights)


def _transformer(body, input_dim):
    blocks = _blocks(body.blocks, body.dim)
    config = {
        "kind": "transformer",
        "input_dim": input_dim,
        "dim": body.dim,
        "output_dim": body.output_dim,
        "blocks": [block.config for block in blocks],
        "scale": body.dim**0.5 if body.scale_input else 1.0,
        "positions": None,
        "input_norm": body.input_norm is not None,
        "final_norm": body.final_norm is not None,
    }
    table = None
    if body.positions is not None:
        _check(body.positions, "layer of positions", (SinusoidalPositions, LearnedPositions))
        table = getattr(body.positions, "table", None)
        number = {} if table is None else {"number": table.shape[0]}
        config["positions"] = {"first": body.positions.first_position, **number}
    weights = _named(
        projection=_linear(body.projection),
        positions=table,
        input_norm=_norm(body.input_norm),
        final_norm=_norm(body.final_norm),
        blocks=_numbered(block.weights for block in blocks),
        output_projection=_linear(body.output_projection),
    )
    return Part(config, weights)


def _nplm(body, input_dim):
    blocks = _blocks([body.concatenation, *body.blocks], input_dim)
    config = {"kind": "nplm", "input_dim": input_dim, "blocks": [block.config for block in blocks]}
    weights = _named(blocks=_numbered(block.weights for block in blocks))
    return Part({**config, "scale": input_dim**0.5}, weights)


def _blocks(layers, dim):
    """Returns the `Part`s of blocks. Layers with a cache are numbered."""
    parts, number = [], 0
    for layer in layers:
        _check(layer, "block", (TransformerBlock, ContextConcatenation))
        part = _concatenation(layer, dim, number) if type(layer) is ContextConcatenation else _block(layer, number)
        number += part.config.get("mixer", layer) is not None
        parts.append(part)
    return parts


def _block(block, number):
    mixer = Part(None, {}) if block.attention is None else _mixer(block.attention, number)
    config = {
        "ffn_dim": block.ffn_dim,
        "activation": block.activation,
        "normalize_first": block.normalize_first,
        "mixer": mixer.config,
    }
    weights = _named(
        mixer=mixer.weights,
        mixer_norm=_norm(block.attention_norm),
        ffn_norm=_norm(block.ffn_norm),
        ffn_in=_linear(block.ffn_in),
        ffn_out=_linear(block.ffn_out),
    )
    return Part(config, weights)


def _mixer(mixer, number):
    _check(mixer, "mixing layer", MIXERS)
    kind, *names = MIXERS[type(mixer)]
    config = {"kind": kind, "layer": number, "num_heads": mixer.num_heads}
    weights = _named(**{name: _linear(getattr(mixer, name)) for name in ("query", "key", "value", "out")})
    if kind == "relative":
        lender = mixer._lender()  # blocks may share these vectors; the export has a copy for each
        weights |= _named(relative=_linear(mixer.relative), content_bias=lender.content_bias)
        weights |= _named(position_bias=lender.position_bias)
    return Part({**config, **{name: getattr(mixer, name) for name in names}}, weights)


def _concatenation(layer, dim, number):
    filters = layer._filters()
    config = {
        "layer": number,
        "num_local": layer.num_local,
        "num_global": layer.num_global,
        "reach": layer.num_local if filters is None else int(filters.shape[1]),
        "hidden_dim": layer.hidden_dim,
        "normalize": layer.norm is not None,
    }
    weights = _named(hidden=_linear(layer.hidden), out=_linear(layer.out), norm=_norm(layer.norm))
    if filters is not None:
        weights["filters"] = np.asarray(ops.convert_to_numpy(filters), "float32")
    return Part(config, weights)


def _recurrent(body, input_dim):
    cell = CELLS[type(body)]
    layers = []
    for layer in body.recurrent_layers:
        layers.append(cell(layer, input_dim))
        input_dim = layer.output_dim
    config = {"kind": "recurrent", "cell": cell.__name__.strip("_"), "layers": [layer.config for layer in layers]}
    return Part(config, _named(layers=_numbered(layer.weights for layer in layers)))


def _lstm(layer, input_dim):
    config = {"input_dim": input_dim, "units": layer.units, "output_dim": layer.output_dim}
    weights = {
        "kernel.weight": _array(layer.kernel).T,
        "kernel.bias": _array(layer.bias),
        "recurrent.weight": _array(layer.recurrent_kernel).T,
    }
    projection = {} if layer.projection is None else {"projection.weight": _array(layer.projection).T}
    return Part({**config, "projects": bool(projection)}, {**weights, **projection})


def _qrnn(layer, input_dim):
    config = {"input_dim": input_dim, "units": layer.units, "window": layer.window, "rate": 1 - layer.zoneout}
    return Part(config, {"kernel.weight": _array(layer.kernel).T, "kernel.bias": _array(layer.bias)})


CELLS = {LSTMDecoder: _lstm, QRNNDecoder: _qrnn}
BODIES = {TransformerDecoder: _transformer, NPLMDecoder: _nplm, **dict.fromkeys(CELLS, _recurrent)}
MIXERS = {  # class: its kind, and the arguments that it passes on
    CausalAttention: ("causal", "use_bias", "window", "alibi"),
    RelativeAttention: ("relative", "memory_length", "segment_length", "clamp_length", "attend_empty"),
    PositionInfusedAttention: ("infused", "memory_length", "segment_length"),
}
