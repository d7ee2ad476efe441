"""The tensors of a Transformer-XL: how they are read, and the variables that hold them."""

import os
from collections.abc import Iterator, Mapping

import numpy as np

from keras_adaptive.checkpoints.pickles import arrays, load_tensors
from keras_adaptive.checkpoints.safetensors import load_safetensors
from keras_adaptive.checkpoints.tensors import TensorMapping
from keras_adaptive.files import reading
from keras_adaptive.models import LanguageModel
from keras_adaptive.transfo_xl.words import NEVER, Words

BUFFER = "pos_emb.inv_freq"
OF_FIRST_BAND = ("word_emb.emb_layers.0.weight", "crit.out_layers.0.weight")


def read_weights(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns the weights in a pytorch_model.bin or a file of safetensors, float32 arrays by name.

    No code in the file is executed.

    Raises:
        ValueError: If the file contains other objects than tensors, or is damaged.
    """
    with reading(path, "a file of weights", "Download it again."):
        if os.fspath(path).endswith(".safetensors"):
            tensors = load_safetensors(path)
        else:
            contents = load_tensors(path)
            if not isinstance(contents, dict):
                raise ValueError("it must be a dict of tensors")
            tensors = dict(arrays(contents, os.path.getsize(path)))
        weights = {name.removeprefix("transformer."): array for name, array in tensors.items()}
    weights.pop(BUFFER, None)
    return weights


def arranged(weights: Mapping[str, np.ndarray], words: Words, bands: int) -> dict[str, np.ndarray]:
    """Returns the weights with the words in the order of the vocabulary, and the biases of all bands as one vector."""
    names = [f"crit.out_layers.{band}.bias" for band in range(bands)]
    weights = {name: words.rows(array) if name in OF_FIRST_BAND else array for name, array in weights.items()}
    if all(name in weights and weights[name].ndim == 1 for name in names):
        biases = np.concatenate([weights.pop(name) for name in names])
        weights["crit.out_layers.bias"] = words.rows(biases, missing=NEVER)
    return weights


def table(model: LanguageModel) -> Iterator[TensorMapping]:
    """Yields the `TensorMapping` of every tensor. Tensors that input and output share have two names."""
    words, softmax = model.word_input, model.word_output
    for band, (vectors, projection) in enumerate(zip(words.tables, words.projections)):
        yield TensorMapping(f"word_emb.emb_layers.{band}.weight", [vectors])
        yield TensorMapping(f"word_emb.emb_projs.{band}", [projection], True)
        yield TensorMapping(f"crit.out_layers.{band}.weight", [vectors], optional=True)
        if (own := softmax.projections[band]) is not None:
            yield TensorMapping(f"crit.out_projs.{band}", [own])
        else:
            yield TensorMapping(f"crit.out_projs.{band}", [projection], True, optional=True)
    yield TensorMapping("crit.out_layers.bias", [softmax.bias])
    yield TensorMapping("crit.cluster_weight", [softmax.class_table])
    yield TensorMapping("crit.cluster_bias", [softmax.class_bias])
    for number, block in enumerate(model.body.blocks):
        yield from _attention(f"layers.{number}.dec_attn", block.attention)
        yield from _norm(f"layers.{number}.dec_attn", block.attention_norm)
        for place, dense in ((0, block.ffn_in), (3, block.ffn_out)):
            yield TensorMapping(f"layers.{number}.pos_ff.CoreNet.{place}.weight", [dense.kernel], True)
            yield TensorMapping(f"layers.{number}.pos_ff.CoreNet.{place}.bias", [dense.bias])
        yield from _norm(f"layers.{number}.pos_ff", block.ffn_norm)


def _attention(name, attention):
    kernels = [dense.kernel for dense in (attention.query, attention.key, attention.value)]
    yield TensorMapping(f"{name}.qkv_net.weight", kernels, True)
    yield TensorMapping(f"{name}.o_net.weight", [attention.out.kernel], True)
    yield TensorMapping(f"{name}.r_net.weight", [attention.relative.kernel], True)
    yield TensorMapping(f"{name}.r_w_bias", [attention.content_bias])
    yield TensorMapping(f"{name}.r_r_bias", [attention.position_bias])


def _norm(name, layer):
    yield TensorMapping(f"{name}.layer_norm.weight", [layer.gamma])
    yield TensorMapping(f"{name}.layer_norm.bias", [layer.beta])
