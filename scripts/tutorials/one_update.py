"""Tutorial 4: one update of the paper's model from first principles, in plain Keras operations.

    python -m scripts.tutorials.one_update

docs/one_update.md explains the file from top to bottom. It imports nothing of the package, whose layers compute the
same update in less memory and time.
"""

import keras
import numpy as np
from keras import ops


def embed(ids, tables, projections):
    """Returns the vectors (batch, length, dim) of ids. Every band has a table and a projection."""
    vectors, first = 0.0, 0
    for table, projection in zip(tables, projections):
        inside = (ids >= first) & (ids < first + table.shape[0])
        rows = ops.take(table, ops.where(inside, ids - first, 0), axis=0)  # (batch, length, dim of the band)
        vectors = vectors + ops.where(inside[..., None], ops.matmul(rows, projection), 0.0)
        first += table.shape[0]
    return vectors


def positions(length, dim, first=2):
    """Returns the sinusoidal position vectors (length, dim)."""
    frequencies = 10_000.0 ** (-np.arange(dim // 2) / (dim // 2 - 1))
    angles = (np.arange(length) + first)[:, None] * frequencies
    return ops.convert_to_tensor(np.concatenate([np.sin(angles), np.cos(angles)], axis=1), "float32")


def linear(x, kernel, bias):
    return ops.matmul(x, kernel) + bias


def normalize(x, scale, offset):
    """Returns vectors of mean 0 and variance 1, times a scale, plus an offset."""
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    return centered * ops.rsqrt(ops.mean(centered**2, axis=-1, keepdims=True) + 1e-5) * scale + offset


def attend(x, block, heads):
    """Returns a mean of earlier values for every position, weighted by the softmax of query · key."""
    batch, length, dim = x.shape

    def divided(name):
        return ops.reshape(linear(x, *block[name]), (batch, length, heads, dim // heads))

    scores = ops.einsum("bqhd,bkhd->bhqk", divided("query"), divided("key")) * (dim // heads) ** -0.5
    scores = ops.where(np.tri(length, dtype=bool), scores, -1e9)  # no position sees a later one
    mixed = ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores), divided("value"))
    return linear(ops.reshape(mixed, (batch, length, dim)), *block["out"])


def transform(x, block, heads):
    """Returns the output of a pre-norm block: attention, then a feed-forward layer, each added to its input."""
    x = x + attend(normalize(x, *block["attention_norm"]), block, heads)
    inner = ops.relu(linear(normalize(x, *block["ffn_norm"]), *block["ffn_in"]))
    return x + linear(inner, *block["ffn_out"])


def log_probabilities(hidden, tables, projections, classes):
    """Returns log p (batch, length, words): the head, and every tail as the product of its class and the word in it."""
    head, *tails = tables
    logits = ops.matmul(hidden, ops.transpose(ops.concatenate([head, classes])))
    of_head = ops.log_softmax(logits)
    parts = [of_head[..., : head.shape[0]]]
    for tail, (table, projection) in enumerate(zip(tails, projections[1:])):
        narrow = ops.matmul(hidden, ops.transpose(projection))  # (batch, length, dim of the band)
        of_class = of_head[..., head.shape[0] + tail, None]
        parts.append(of_class + ops.log_softmax(ops.matmul(narrow, ops.transpose(table))))
    return ops.concatenate(parts, axis=-1)


def mean_loss(weights, ids, targets, counts, heads):
    """Returns the mean of −log p(target) over the targets, weighted by `counts` (batch, length): 0 for padding."""
    tables, projections = weights["tables"], weights["projections"]
    x = embed(ids, tables, projections)
    x = x * x.shape[-1] ** 0.5 + positions(*x.shape[1:])
    for block in weights["blocks"]:
        x = transform(x, block, heads)
    log_probs = log_probabilities(x, tables, projections, weights["classes"])
    nll = -ops.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0]
    return ops.sum(counts * nll) / ops.sum(counts)


def value_and_gradients(function, weights):
    """Returns `function(weights)` and its gradients, which every backend computes in a way of its own."""
    if keras.config.backend() == "jax":
        import jax

        return jax.value_and_grad(function)(weights)
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(weights)
            value = function(weights)
        return value, keras.tree.map_structure(tf.convert_to_tensor, tape.gradient(value, weights))
    import torch

    weights = keras.tree.map_structure(lambda weight: weight.detach().requires_grad_(), weights)
    value = function(weights)
    gradients = torch.autograd.grad(value, keras.tree.flatten(weights))
    return value.detach(), keras.tree.pack_sequence_as(weights, gradients)


def clipped(gradients, bound):
    """Returns the gradients, scaled to a common norm of at most `bound`, and the norm before."""
    norm = ops.sqrt(sum(ops.sum(gradient**2) for gradient in keras.tree.flatten(gradients)))
    factor = bound / ops.maximum(norm, bound)
    return keras.tree.map_structure(lambda gradient: gradient * factor, gradients), norm


def nesterov(weights, gradients, momentums, rate, momentum):
    """Returns the weights and the momentums after a step of Nesterov's accelerated gradient."""
    change = keras.tree.map_structure
    momentums = change(lambda gradient, old: momentum * old + gradient, gradients, momentums)
    steps = change(lambda gradient, new: momentum * new + gradient, gradients, momentums)
    return change(lambda weight, step: weight - rate * step, weights, steps), momentums


def update(weights, momentums, batch, heads, rate=1.0, momentum=0.99, bound=0.1):
    """Returns the weights and the momentums after one update, its loss, and the norm of its gradients."""
    loss, gradients = value_and_gradients(lambda weights: mean_loss(weights, *batch, heads), weights)
    gradients, norm = clipped(gradients, bound)
    weights, momentums = nesterov(weights, gradients, momentums, rate, momentum)
    return weights, momentums, loss, norm


def new_weights(words, cutoffs, dim, ffn_dim, num_blocks=1, factor=4):
    """Returns random weights: nested dictionaries and lists of tensors."""
    random = np.random.default_rng(0)

    def matrix(rows, columns):
        return random.normal(0.0, columns**-0.5, (rows, columns))

    sizes = np.diff([0, *cutoffs, words])
    dims = [dim // factor**band for band in range(len(sizes))]
    tables = [matrix(size, narrow) for size, narrow in zip(sizes, dims)]
    projections = [matrix(narrow, dim) for narrow in dims]
    shapes = {"query": (dim, dim), "key": (dim, dim), "value": (dim, dim), "out": (dim, dim)}
    shapes |= {"ffn_in": (dim, ffn_dim), "ffn_out": (ffn_dim, dim)}
    norms = {name: (np.ones(dim), np.zeros(dim)) for name in ("attention_norm", "ffn_norm")}
    blocks = [
        norms | {name: (matrix(*shape), np.zeros(shape[1])) for name, shape in shapes.items()}
        for _ in range(num_blocks)
    ]
    arrays = {"tables": tables, "projections": projections, "blocks": blocks, "classes": matrix(len(cutoffs), dim)}
    return keras.tree.map_structure(lambda array: ops.convert_to_tensor(array, "float32"), arrays)


def main(words=1_000, cutoffs=(100, 400), dim=64, updates=20):
    text = ops.convert_to_tensor(np.random.default_rng(1).zipf(1.3, (16, 33)) % words, "int32")
    counts = ops.ones((16, 32))  # weight 0 would leave out padding
    batch = text[:, :-1], text[:, 1:], counts
    weights = new_weights(words, cutoffs, dim, ffn_dim=4 * dim)
    momentums = keras.tree.map_structure(ops.zeros_like, weights)
    losses = []
    for number in range(updates):
        weights, momentums, loss, norm = update(weights, momentums, batch, heads=4)
        losses.append(float(loss))
        print(f"update {number + 1}: loss {losses[-1]:.4f} nats, norm of the gradients {float(norm):.3f}")
    return losses


if __name__ == "__main__":
    main()
