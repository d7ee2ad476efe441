"""Maps the tensors of a published state dict to the variables of a model, in both directions."""

from typing import Any

from keras_adaptive.checkpoints.tensors import TensorMapping
from keras_adaptive.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    CausalAttention,
    CharCNN,
    LearnedPositions,
    TransformerDecoder,
    WordEmbedding,
)
from keras_adaptive.models import LanguageModel


def table(model):
    """Returns every `TensorMapping` of a `LanguageModel`. Tensors that input and output share have several names."""
    parts = _words_in(model.word_input), _body(model.body), _words_out(model.word_output)
    return [tensor._replace(name=f"decoder.{tensor.name}") for part in parts for tensor in part]


def _words_in(layer):
    return INPUTS[type(layer)](layer)


def _adaptive_embedding(layer):
    for band, (words, projection) in enumerate(zip(layer.tables, layer.projections)):
        yield TensorMapping(f"embed_tokens.embeddings.{band}.0.weight", [words])
        yield TensorMapping(f"embed_tokens.embeddings.{band}.1.weight", [projection], True)


def _word_embedding(layer):
    yield TensorMapping("embed_tokens.weight", layer.tables)


def _char_cnn(layer):
    yield TensorMapping("embed_tokens.char_embeddings.weight", [layer.table])
    yield TensorMapping("embed_tokens.symbol_embeddings", [layer.symbols])
    convolutions = [pair for pair in zip(layer.kernels, layer.biases) if pair[1].shape[0]]
    for number, (kernel, bias) in enumerate(convolutions):
        yield from _affine(f"embed_tokens.convolutions.{number}", kernel, bias)
    for number, (kernel, bias) in enumerate(zip(layer.highway_kernels, layer.highway_biases)):
        yield from _affine(f"embed_tokens.highway.layers.{number}", kernel, bias)
    yield from _affine("embed_tokens.projection", layer.projection, layer.projection_bias)


INPUTS = {AdaptiveEmbedding: _adaptive_embedding, WordEmbedding: _word_embedding, CharCNN: _char_cnn}


def _body(body):
    if body.projection is not None:
        yield TensorMapping("project_in_dim.weight", [body.projection.kernel], True)
    if isinstance(body.positions, LearnedPositions):
        yield TensorMapping("embed_positions.weight", [body.positions.table])
    if body.input_norm is not None:
        yield from _norm("layernorm_embedding", body.input_norm)
    for number, block in enumerate(body.blocks):
        name = f"layers.{number}"
        for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "out")):
            dense = getattr(block.attention, ours)
            yield from _affine(f"{name}.self_attn.{theirs}_proj", dense.kernel, dense.bias)
        yield from _norm(f"{name}.self_attn_layer_norm", block.attention_norm)
        yield from _affine(f"{name}.fc1", block.ffn_in.kernel, block.ffn_in.bias)
        yield from _affine(f"{name}.fc2", block.ffn_out.kernel, block.ffn_out.bias)
        yield from _norm(f"{name}.final_layer_norm", block.ffn_norm)
    if body.final_norm is not None:
        yield from _norm("layer_norm", body.final_norm)
    if body.output_projection is not None:
        yield TensorMapping("project_out_dim.weight", [body.output_projection.kernel], True)


def _affine(name, kernel, bias):
    yield TensorMapping(f"{name}.weight", [kernel], True)
    yield TensorMapping(f"{name}.bias", [bias])


def _norm(name, layer):
    yield TensorMapping(f"{name}.weight", [layer.gamma])
    yield TensorMapping(f"{name}.bias", [layer.beta])


def _words_out(softmax):
    if not softmax.tails:
        yield TensorMapping("output_projection.weight", softmax.tables, optional=softmax.tied_to is not None)
        return
    head, *tails = softmax.tables
    if softmax.tied_to is None:
        yield TensorMapping("adaptive_softmax.head.weight", [head, softmax.class_table])
    else:
        yield TensorMapping("adaptive_softmax.head.word_proj.weight", [head])
        yield TensorMapping("adaptive_softmax.head.class_proj.weight", [softmax.class_table])
    for tail, words in enumerate(tails):
        untied = softmax.projections[tail + 1]
        # A tied projection has the layout of the input, an untied one the layout of a linear layer of the output.
        projection = softmax.tied_to.projections[tail + 1] if untied is None else untied
        yield TensorMapping(f"adaptive_softmax.tail.{tail}.0.weight", [projection], True)
        yield TensorMapping(f"adaptive_softmax.tail.{tail}.2.weight", [words])


def to_state_dict(model: LanguageModel) -> dict[str, Any]:
    """Returns the weights of a language model as a state dict of fairseq's newest version, torch tensors by name.

    A model from `load_language_model` yields the numbers of its checkpoint. A tensor that input and output share has
    several names, as in fairseq. The body must be a `TransformerDecoder`.

    Raises:
        ValueError: If fairseq has no such model. The message names the reason.
        ModuleNotFoundError: If torch is not installed.

    Example:

    >>> state = to_state_dict(transformer_lm(50, num_blocks=1, dim=8, ffn_dim=16, num_heads=2, cutoffs=(10,)))
    >>> tuple(state["decoder.layers.0.fc1.weight"].shape)
    (16, 8)
    """
    import torch

    _check_expressible(model)
    state, shared = dict(_buffers(model)), {}
    for tensor in table(model):
        key = tensor.transposed, *map(id, tensor.variables)
        if key not in shared:
            shared[key] = torch.from_numpy(tensor.join())
        state[tensor.name] = shared[key]
    if isinstance(model.word_input, CharCNN) and model.word_input.zero_padding:
        state["decoder.embed_tokens.char_embeddings.weight"][0] = 0  # fairseq reads this row
    return state


def _buffers(model):
    """Yields the names and values of the buffers that fairseq expects."""
    import torch

    yield "decoder.version", torch.tensor([3.0])  # version 3 introduced the final LayerNorm
    if isinstance(model.word_input, AdaptiveEmbedding):
        yield "decoder.embed_tokens._float_tensor", torch.zeros(1)
    if model.word_output.tails:
        yield "decoder.adaptive_softmax.version", torch.tensor([1])
        if model.word_output.tied_to is not None:
            yield "decoder.adaptive_softmax.head._float_tensor", torch.zeros(1)


def _check_expressible(model):
    word_input, body, word_output = model.word_input, model.body, model.word_output
    if type(body) is not TransformerDecoder:
        raise ValueError(f"fairseq has no model with body={type(body).__name__}: its weights cannot be written for it.")
    if type(word_output) is not AdaptiveSoftmax:
        name = type(word_output).__name__
        raise ValueError(f"fairseq has no model with word_output={name}: its weights cannot be written for it.")
    first_position = 2 if body.positions is None else body.positions.first_position
    attentions = [getattr(block, "attention", block) for block in body.blocks]
    mixers = {type(attention).__name__ for attention in attentions} - {CausalAttention.__name__}
    windows = {str(window) for attention in attentions if (window := getattr(attention, "window", None)) is not None}
    reasons = {
        f"word_input={type(word_input).__name__}": type(word_input) not in INPUTS,
        f"first_position={first_position}": first_position != 2,
        f"mixer={', '.join(sorted(mixers))}": bool(mixers),
        f"window={', '.join(sorted(windows))}": bool(windows),
        "positions=alibi": any(getattr(attention, "alibi", False) for attention in attentions),
        "attention without biases": not all(getattr(attention, "use_bias", True) for attention in attentions),
        f"max_bytes={word_input.max_bytes}": word_input.max_bytes not in (None, 50),
        "word_markers=True": getattr(word_input, "word_markers", False),
        "tied words of another dimension than the hidden states": word_output.projections[0] is not None,
        "a projection of its own for the head": isinstance(word_output.tie_projections, tuple),
        "use_bias=True": word_output.use_bias,
        "tails that are slices of one table": len(word_output.tables) <= word_output.tails,
    }
    given = [reason for reason, holds in reasons.items() if holds]
    if given:
        raise ValueError(f"fairseq has no model with {', '.join(given)}: its weights cannot be written for it.")
