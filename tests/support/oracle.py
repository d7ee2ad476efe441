"""The formulas in NumPy float64, written for reading: what every layer and backend is held against."""

import math

import numpy as np


def log_softmax(logits):
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def gradients(function, arrays):
    """The gradients of `function(*arrays)`, a formula of this module, with respect to every number of every array.

    By complex steps: the imaginary part of f(x + i·h) is h·f'(x), without a difference that would lose digits.
    """
    arrays = [np.array(array, "complex128") for array in arrays]
    results = [np.zeros(array.shape) for array in arrays]
    for array, gradient in zip(arrays, results):
        for place in np.ndindex(array.shape):
            array[place] += 1e-30j
            gradient[place] = function(*arrays).imag / 1e-30
            array[place] = array[place].real
    return results


def linear_cross_entropy(x, table, targets, weights, extra_logits=None, bias=None, excluded=None):
    """Σ weight · −log softmax([x·tableᵀ + bias ; extra])[target] over the rows with a target, and its gradients.

    The column `excluded[row]` of the table, if it is not −1, is not in the softmax of the row.
    """
    x, table, weights = (np.asarray(array, np.result_type(array, "float64")) for array in (x, table, weights))
    logits = x @ table.T if bias is None else x @ table.T + np.asarray(bias, "float64")
    if excluded is not None:
        rows = np.flatnonzero(np.asarray(excluded) >= 0)
        logits[rows, np.asarray(excluded)[rows]] = -np.inf
    if extra_logits is not None:
        logits = np.concatenate([logits, extra_logits], axis=1)
    log_probs = log_softmax(logits)
    inside = (targets >= 0) & (targets < logits.shape[1])
    weights, rows = np.where(inside, weights, 0.0), np.arange(len(x))
    picks = np.where(inside, targets, 0)
    d_logits = np.exp(log_probs)
    d_logits[rows, picks] -= 1.0
    d_logits *= weights[:, None]
    words = d_logits[:, : len(table)]
    gradients = [words @ table, words.T @ x, *([] if extra_logits is None else [d_logits[:, len(table) :]])]
    gradients += [] if bias is None else [words.sum(axis=0)]
    return -np.sum(weights * log_probs[rows, picks]), gradients


def adaptive_embedding(ids, tables, projections):
    """The word vectors of `ids`, one by one."""
    starts = np.cumsum([0, *map(len, tables)])
    vectors = []
    for word in np.ravel(ids):
        band = int(np.searchsorted(starts, word, side="right")) - 1
        vectors.append(tables[band][word - starts[band]] @ projections[band])
    return np.reshape(vectors, (*np.shape(ids), projections[0].shape[1]))


def adaptive_log_probs(hidden, tables, projections, class_table=None, biases=None, class_bias=0.0):
    """log p of every word, as the product of its band's probability and its own within the band."""
    scores = [
        (hidden if projection is None else hidden @ projection) @ table.T + bias
        for table, projection, bias in zip(tables, projections, biases or [0.0] * len(tables), strict=True)
    ]
    if class_table is None:
        return log_softmax(scores[0])
    head = log_softmax(np.concatenate([scores[0], hidden @ class_table.T + class_bias], axis=-1))
    size = len(tables[0])
    tails = [log_softmax(score) + head[..., size + i, None] for i, score in enumerate(scores[1:])]
    return np.concatenate([head[..., :size], *tails], axis=-1)


def positions(length, dim, first=2):
    frequencies = [math.exp(-k * math.log(10000.0) / (dim // 2 - 1)) for k in range(dim // 2)]
    angles = np.outer(np.arange(length) + first, frequencies)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def layer_norm(x, scale, shift):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * scale + shift


def attention(x, weights, heads):
    """Each position of each sequence attends to itself and to those before it."""
    query, key, value = (x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"] for name in ("query", "key", "value"))
    size = x.shape[-1] // heads
    mixed = np.zeros_like(x)
    for row, i, head in np.ndindex(*x.shape[:2], heads):
        part = slice(head * size, (head + 1) * size)
        scores = key[row, : i + 1, part] @ query[row, i, part] / math.sqrt(size)
        mixed[row, i, part] = np.exp(log_softmax(scores)) @ value[row, : i + 1, part]
    return mixed @ weights["out/kernel"] + weights["out/bias"]


def windowed_attention(query, key, value, window, slopes=0.0):
    """Each query sees its own key and the window − 1 before it; all arrays are (batch, length, heads, head_dim).

    Scores lose the distance in tokens times the slope of their head.
    """
    distance = np.subtract.outer(np.arange(query.shape[1]), np.arange(key.shape[1]))
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) - np.reshape(slopes, (-1, 1, 1)) * distance
    probabilities = np.exp(log_softmax(np.where((distance >= 0) & (distance < window), scores, -1e9)))
    return np.einsum("bhqk,bkhd->bqhd", probabilities, value)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "relu_squared": lambda x: np.maximum(x, 0.0) ** 2,
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def block(x, weights, heads, activation="relu", normalize_first=True):
    def norm(name, x, applied):
        return layer_norm(x, weights[f"{name}/gamma"], weights[f"{name}/beta"]) if applied else x

    x = x + attention(norm("attention_norm", x, normalize_first), weights, heads)
    x = norm("attention_norm", x, not normalize_first)
    inner = norm("ffn_norm", x, normalize_first) @ weights["ffn_in/kernel"] + weights["ffn_in/bias"]
    x = x + ACTIVATIONS[activation](inner) @ weights["ffn_out/kernel"] + weights["ffn_out/bias"]
    return norm("ffn_norm", x, not normalize_first)


def decoder(x, blocks, heads, projection=None, first_position=2):
    """The outputs [input of the first block, of block 1, of block 2, …] of a pre-norm decoder."""
    dim = x.shape[-1] if projection is None else projection.shape[1]
    x = x * math.sqrt(dim)
    x = x if projection is None else x @ projection
    outputs = [x + positions(x.shape[1], dim, first_position)]
    for weights in blocks:
        outputs.append(block(outputs[-1], weights, heads))
    return outputs


def char_cnn(word, weights, highways, max_bytes, padding=0.0):
    """The vector of one word (bytes), over all of its `max_bytes` slots; `weights` in the order of the layer."""
    count = (len(weights) - 4 - 2 * highways) // 2
    table, _, kernels, biases = weights[0], weights[1], weights[2 : 2 + count], weights[2 + count : 2 + 2 * count]
    *highway_weights, projection, projection_bias = weights[2 + 2 * count :]
    slots = np.zeros((max_bytes, table.shape[1]), table.dtype) + padding
    for slot, byte in enumerate(word[:max_bytes]):
        slots[slot] = table[byte + 1]
    features = []
    for kernel, bias in zip(kernels, biases, strict=True):
        width = len(kernel)
        windows = [np.tensordot(slots[s : s + width], kernel, 2) + bias for s in range(max_bytes - width + 1)]
        features.append(np.maximum(np.max(windows, axis=0), 0.0))
    x = np.concatenate(features)
    for kernel, bias in zip(highway_weights[::2], highway_weights[1::2], strict=True):
        value, gate = np.split(x @ kernel + bias, 2)
        gate = 1 / (1 + np.exp(-gate))
        x = gate * x + (1 - gate) * np.maximum(value, 0.0)
    return x @ projection + projection_bias


def char_lstm(hidden, symbols, weights):
    """The log-probability of a word, given as the numbers of its symbols, after one hidden state."""
    table, kernel, recurrent_kernel, bias, logits_kernel, logits_bias = weights
    total, h, c, before = 0.0, np.zeros((1, len(recurrent_kernel))), np.zeros((1, len(recurrent_kernel))), 0
    for symbol in symbols:
        x = np.concatenate([hidden, table[before]])[None, None]
        _, h, c = lstm(x, kernel, recurrent_kernel, bias, h, c)
        logits = (h @ logits_kernel + logits_bias)[0]
        total += logits[symbol] - np.log(np.exp(logits).sum())
        before = symbol + 1
    return total


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, kernel, recurrent_kernel, bias, h, c, projection=None):
    """(outputs, h, c) of an LSTM over the second axis of x; the gates i, f, g, o in the columns of the weights."""
    outputs = []
    for step in np.moveaxis(x, 1, 0):
        i, f, g, o = np.split(step @ kernel + h @ recurrent_kernel + bias, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        h = h if projection is None else h @ projection
        outputs.append(h)
    return np.stack(outputs, axis=1), h, c


def qrnn(x, kernel, bias, c, last=None):
    """(outputs, the state after them) of a QRNN layer with an output gate; with the `last` input, of window 2."""
    source = x if last is None else np.concatenate([x, np.concatenate([last[:, None], x[:, :-1]], axis=1)], axis=-1)
    z, f, o = np.split(source @ kernel + bias, 3, axis=-1)
    cells = forget_mult(np.tanh(z), sigmoid(f), c)
    return sigmoid(o) * cells, (cells[:, -1],) if last is None else (cells[:, -1], x[:, -1])


def forget_mult(z, f, c):
    """The cells of every step, along the second axis."""
    cells = []
    for value, share in zip(np.moveaxis(z, 1, 0), np.moveaxis(f, 1, 0), strict=True):
        c = share * value + (1 - share) * c
        cells.append(c)
    return np.stack(cells, axis=1)


def _sampled_logits(x, table, bias, targets, sampled):
    """The corrected logits of the targets (rows,) and of the noise (rows, samples)."""
    ids, target_counts, counts = sampled
    own = np.sum(x * table[targets], axis=1) + bias[targets] - np.log(target_counts)
    return own, x @ table[ids].T + bias[ids] - np.log(counts)


def sampled_cross_entropy(x, table, bias, targets, weights, sampled):
    """Σ weight · −log softmax over each target and the noise words but itself; rows with a target below 0 add none."""
    own, noise = _sampled_logits(x, table, bias, targets, sampled)
    total = 0.0
    for row in np.flatnonzero(targets >= 0):
        logits = np.append(noise[row, sampled[0] != targets[row]], own[row])
        total = total - weights[row] * log_softmax(logits)[-1]
    return total


def noise_contrastive_loss(x, table, bias, targets, weights, sampled):
    """Σ weight · (log(1 + exp(−s[target])) + Σ log(1 + exp(s[noise]))); rows with a target below 0 add nothing."""
    own, noise = _sampled_logits(x, table, bias, targets, sampled)
    losses = _softplus(-own) + _softplus(noise).sum(axis=1)
    return np.sum(np.where(targets >= 0, weights, 0.0) * losses)


def sampled_binary_cross_entropy(x, table, bias, targets, weights, sampled, target_weight=1.0):
    """Σ weight · (target_weight · log(1 + exp(−s[target])) + Σ log(1 + exp(s[noise]))) over noise but the target."""
    own, noise = _sampled_logits(x, table, bias, targets, sampled)
    others = np.asarray(sampled[0])[None] != np.asarray(targets)[:, None]
    losses = target_weight * _softplus(-own) + np.sum(others * _softplus(noise), axis=1)
    return np.sum(np.where(targets >= 0, weights, 0.0) * losses)


def corrected_log_q(x, table, bias, targets, weights, sampled):
    """Σ weight · (1 − P) · (log Σ exp(s − log count) over noise but the target, minus s[target]); 1 − P is constant."""
    uncorrected = sampled[0], np.ones(len(targets)), sampled[2]
    own, noise = _sampled_logits(x, table, bias, targets, uncorrected)
    total = 0.0
    for row in np.flatnonzero(targets >= 0):
        others = np.sum(np.exp(noise[row, sampled[0] != targets[row]]))
        probability = np.exp(own[row].real) / (np.exp(own[row].real) + others.real)
        total = total + weights[row] * (1 - probability) * (np.log(others) - own[row])
    return total


def _softplus(x):
    positive = np.where(x.real > 0, x, 0.0)
    return positive + np.log1p(np.exp(np.where(x.real > 0, -x, x)))


def context_blocks(x, num_local, filters=()):
    """[Local blocks x_t, x_{t−1}, …, then Σ_d filter[d]·x_{t−d} of every filter]; before the first token there is 0."""
    one_token = np.eye(num_local)
    blocks = []
    for weights in (*one_token, *filters):
        block = np.zeros_like(x)
        for t in range(x.shape[1]):
            for distance in range(min(t + 1, len(weights))):
                block[:, t] += weights[distance] * x[:, t - distance]
        blocks.append(block)
    return blocks


def context_product(x, kernel, bias, filters=(), num_local=1, before=0):
    """The product of the concatenated blocks, the sum of all blocks and, with filters, that of the filters' blocks."""
    blocks = [block[:, before:] for block in context_blocks(x, num_local, filters)]
    product = np.concatenate(blocks, axis=-1) @ kernel + bias
    return (product, sum(blocks)) if len(filters) == 0 else (product, sum(blocks), sum(blocks[num_local:]))


def context_concatenation(x, num_local, filters, weights):
    """y and the sum of the global blocks; `weights` has one or two pairs (kernel, bias), then those of the norm."""
    product, total, *global_sum = context_product(x, *weights[0], filters, num_local)
    branch = np.maximum(product, 0.0)
    for kernel, bias in weights[1:-1]:
        branch = branch @ kernel + bias
    return layer_norm(total + branch, *weights[-1]), global_sum[0] if global_sum else 0.0
