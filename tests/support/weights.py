"""The weights of layers: by name, as float64 arrays for the oracle, and under the names of the published code."""

import keras
import numpy as np

from tests.support import oracle
from tests.support.backends import weight_gradients


def value(variable):
    return np.asarray(keras.ops.convert_to_numpy(variable.value), "float64")


def values(layer):
    """Returns the weights of a layer."""
    return [value(variable) for variable in layer.weights]


def block_variables(block):
    """The variables of a TransformerBlock by the names that tests/oracle.py uses."""
    attention = block.attention
    parts = {name: getattr(attention, name) for name in ("query", "key", "value", "out")}
    parts |= {"ffn_in": block.ffn_in, "ffn_out": block.ffn_out}
    named = {f"{name}/{kind}": getattr(part, kind) for name, part in parts.items() for kind in ("kernel", "bias")}
    norms = {"attention_norm": block.attention_norm, "ffn_norm": block.ffn_norm}
    return named | {f"{name}/{kind}": getattr(norm, kind) for name, norm in norms.items() for kind in ("gamma", "beta")}


def block_weights(block):
    return {name: value(variable) for name, variable in block_variables(block).items()}


def softmax_weights(softmax, read=value):
    """Returns the arguments of `oracle.adaptive_log_probs` after `hidden`; `read` maps a variable to its array."""
    bands = len(softmax.boundaries) - 1
    split = lambda array: np.split(array, softmax.boundaries[1:-1])  # noqa: E731
    projections = [None if own is None else read(own) for own in softmax.projections]
    if len(softmax.tables) == bands:
        tables = [read(table) for table in softmax.tables]
        projects_head = isinstance(softmax.tie_projections, tuple)
        for band in range(0 if projects_head else 1, bands):
            if projections[band] is None:
                projections[band] = read(softmax.tied_to.projections[band]).T
    else:  # the bands are slices of one table
        tables = split(read(softmax.tables[0]))
    classes, class_bias = (None if one is None else read(one) for one in (softmax.class_table, softmax.class_bias))
    if isinstance(softmax.tie_projections, tuple):
        classes = classes @ projections[0].T  # they read the projected hidden states
    biases = None if softmax.bias is None else split(read(softmax.bias))
    return tables, projections, classes, biases, 0.0 if class_bias is None else class_bias


def exact_log_probs(softmax, hidden, read=value):
    """Returns log p of every word in float64."""
    return oracle.adaptive_log_probs(hidden.astype(np.result_type(hidden, "float64")), *softmax_weights(softmax, read))


def embedding_weights(embedding, read=value):
    """Returns the arguments of `oracle.adaptive_embedding` after `ids`; `read` maps a variable to its array."""
    return [read(table) for table in embedding.tables], [read(projection) for projection in embedding.projections]


def randomize(layer, seed=0):
    """Gives every weight a random value, biases and norms too, the same on every backend; returns the layer."""
    random = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        size = 1.0 if len(variable.shape) < 2 else variable.shape[-1] ** -0.5
        variable.assign(random.normal(0.0, size, variable.shape))
    return layer


def built(layer, dim=None, seed=0):
    """Builds a layer of vectors of `dim` numbers, or of ids, and gives it random weights; returns the layer."""
    layer.build((None, None) if dim is None else (None, None, dim))
    return randomize(layer, seed)


PUBLISHED_BLOCK = {"ffn_in": "fc1", "ffn_out": "fc2", "ffn_norm": "final_layer_norm"}  # by our names
PUBLISHED_BLOCK |= {"attention_norm": "self_attn_layer_norm", "query": "self_attn.q_proj", "key": "self_attn.k_proj"}
PUBLISHED_BLOCK |= {"value": "self_attn.v_proj", "out": "self_attn.out_proj"}
PUBLISHED_KINDS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}


def published(embedding, softmax, body=None, prefix=""):
    """[(variable, how to read it from the published arrays: `read(arrays, kind)` with kind "param" or "grad…")]."""
    pairs = []

    def add(variable, name, change=np.asarray):
        pairs.append((variable, lambda arrays, kind: change(arrays[f"{kind}/{prefix}{name}"])))

    for band, (table, projection) in enumerate(zip(embedding.tables, embedding.projections, strict=True)):
        add(table, f"embed_tokens.embeddings.{band}.0.weight")
        add(projection, f"embed_tokens.embeddings.{band}.1.weight", np.transpose)
    head = softmax.tables[0].shape[0]
    if softmax.tied_to is not None:
        add(softmax.class_table, "adaptive_softmax.head.class_proj.weight")
    else:
        add(softmax.tables[0], "adaptive_softmax.head.weight", lambda array: array[:head])
        add(softmax.class_table, "adaptive_softmax.head.weight", lambda array: array[head:])
        for tail in range(softmax.tails):
            add(softmax.projections[tail + 1], f"adaptive_softmax.tail.{tail}.0.weight", np.transpose)
            add(softmax.tables[tail + 1], f"adaptive_softmax.tail.{tail}.2.weight")
    for number, one in enumerate(body.blocks if body is not None else ()):
        for ours, variable in block_variables(one).items():
            part, kind = ours.split("/")
            name = f"layers.{number}.{PUBLISHED_BLOCK[part]}.{PUBLISHED_KINDS[kind]}"
            add(variable, name, np.transpose if kind == "kernel" else np.asarray)
    return pairs


def published_ids(arrays):
    """Returns the tokens and the targets of published arrays; padding is 1."""
    return [arrays[f"in/{name}"].astype("int32") for name in ("src_tokens", "targets")]


def check_published_gradients(model, arrays, pairs):
    """Compares the loss of a model with the published one, and its gradients with those of `[(variable, array)]`."""
    tokens, targets = published_ids(arrays)
    weights = (targets != 1).astype("float32")
    assert len(pairs) == len(model.trainable_variables)
    loss = lambda: model.word_output.total_nll(model(tokens), targets, weights)  # noqa: E731
    value, gradients = weight_gradients(loss, [variable for variable, _ in pairs])
    np.testing.assert_allclose(value, arrays["out/loss_sum"], rtol=1e-5)
    for (variable, expected), gradient in zip(pairs, gradients, strict=True):
        # A key's bias moves all scores of a query alike: its gradient is 0 but for rounding.
        scale = np.abs(expected).max() if not variable.path.endswith("key/bias") else 1.0
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-4 * scale, err_msg=variable.path)
    return gradients
