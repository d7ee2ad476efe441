"""The matrix products that a model cannot do without, as a floor of its time."""

import itertools

import numpy as np
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS


def gradients(shapes, dtype):
    """Returns a function that computes products x·kernel of pairs of shapes, and gradients, compiled as in training.

    Every product is its own upstream gradient, so that it is computed in spite of optimizing compilers.
    """
    import keras
    from keras import ops

    from keras_adaptive.backend.products import matmul

    random, dtype = np.random.default_rng(0), keras.dtype_policies.get(dtype).compute_dtype
    normal = lambda shape: random.standard_normal(shape, "float32")  # noqa: E731
    factors = [[keras.Variable(normal(shape), dtype=dtype, trainable=False) for shape in pair] for pair in shapes]

    def of_pair(x, kernel):
        multiply = matmul if len(x.shape) == len(kernel.shape) == 2 else ops.matmul  # as the layers do
        product = multiply(x, kernel)
        return multiply(product, ops.swapaxes(kernel, -1, -2)), multiply(ops.swapaxes(x, -1, -2), product)

    def function():
        return [of_pair(*map(ops.convert_to_tensor, pair)) for pair in factors]

    return common.compiled_step(function, [variable for pair in factors for variable in pair])


def band_counts(ids):
    """Returns a list with the number of ids in every band of --cutoffs."""
    return np.histogram(ids, (0, *common.cutoffs(), FLAGS.vocabulary_size))[0].tolist()


def of_loss(targets, dim, factor=4):
    """Returns the shapes, for `gradients`, of the products of an adaptive softmax with the given targets."""
    edges, counts = (0, *common.cutoffs(), FLAGS.vocabulary_size), band_counts(targets)
    shapes = [((targets.size, dim), (dim, edges[1]))]
    for band, (low, high) in enumerate(itertools.pairwise(edges)):
        if band and counts[band]:
            narrow = dim // factor**band
            shapes += [((counts[band], dim), (dim, narrow)), ((counts[band], narrow), (narrow, high - low))]
    return shapes


def of_step(tokens, targets):
    """Returns the shapes of all matrix products of a step: of adaptive embedding, blocks and word loss."""
    rows, dim, heads = tokens.size, FLAGS.dim, FLAGS.num_heads
    scores, mixed = (FLAGS.batch_size * heads, FLAGS.length, FLAGS.length), (FLAGS.length, dim // heads)
    shapes = [((count, dim // 4**band), (dim // 4**band, dim)) for band, count in enumerate(band_counts(tokens))]
    shapes += of_loss(targets, dim)
    for _ in range(FLAGS.num_blocks):
        shapes += [((rows, dim), (dim, dim))] * 4  # queries, keys, values and outputs
        shapes += [((*scores[:1], *mixed), (*scores[:1], *mixed[::-1])), (scores, (*scores[:1], *mixed))]
        shapes += [((rows, dim), (dim, FLAGS.ffn_dim)), ((rows, FLAGS.ffn_dim), (FLAGS.ffn_dim, dim))]
    return shapes
