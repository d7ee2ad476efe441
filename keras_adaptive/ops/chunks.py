"""Sizes of chunks, by backend and kind of device: the only place that holds such numbers."""

from typing import NamedTuple

import keras
from keras import ops

from keras_adaptive.backend.accelerator import on_accelerator
from keras_adaptive.typing import Tensor


class ChunkSizes(NamedTuple):
    """Sizes of chunks on one kind of device, for one backend.

    Attributes:
        logit_bytes: Memory of the float32 logits of a chunk of a word loss.
        min_rows: Smallest number of rows of such a chunk, since smaller matrix products are slow.
        max_rows: Largest number of rows of such a chunk.
        rows_by_dim: A chunk with gradients has at least this number of rows for each dimension of the vectors. Every
            chunk reads the whole table. If it computes a gradient (columns, dim), too, that a separate pass adds to a
            sum, fewer rows would make that pass too large a part of the time, and the gradient larger than the logits.
        most_logit_bytes: Memory of the logits above which that number of rows is not kept.
        tail_chunks: A tail has at least this number of chunks per batch, since few of the rows belong to the tail.
        block_bytes: Memory of the float32 logits that torch computes at a time for a chunk in bfloat16.
        rows_first: Chunk size from which products are faster with the rows of the logits first, under JAX.
        context_rows: Smallest number of rows of a product of the local blocks of a concatenated context.
        queries: Smallest number of queries of a block of attention without a window.
        window_queries: Smallest number of queries of a block of windowed attention.
        short_keys: Largest number of keys for which separate bfloat16 products are faster than torch's fused attention.
        convolved_words: Number of words whose bytes are convolved together with static shapes.
        highway_words: Number of words in the highway layers of a `CharCNN` with static shapes.
        spelled_words: Number of words that an LSTM spells together with static shapes.
        tree_rows: Largest number of hidden states for which an LSTM spells the whole vocabulary together.
        tree_bytes: Memory of the widest step through the prefixes of the vocabulary.
    """

    logit_bytes: int
    min_rows: int = 16
    max_rows: int = 1024
    rows_by_dim: float = 0.5
    most_logit_bytes: int = 128 * 2**20
    tail_chunks: int = 32
    block_bytes: int = 4 * 2**20
    rows_first: int = 256
    context_rows: int = 1024
    queries: int = 128
    window_queries: int = 16
    short_keys: int = 512
    convolved_words: int = 64
    highway_words: int = 256
    spelled_words: int = 128
    tree_rows: int = 512
    tree_bytes: int = 64 * 2**20


# Measured on two CPU cores with the programs of docs/benchmarks.md: `loss`, `concatenation` and `generated_word`. The
# defaults of the class are those of all backends. TensorFlow holds more arrays as large as the logits at a time than
# the others; torch adds the gradient of a chunk in place, by the product itself.
CPU = {
    "tensorflow": ChunkSizes(logit_bytes=40 * 2**20),
    "jax": ChunkSizes(logit_bytes=60 * 2**20, context_rows=64, queries=64),
    "torch": ChunkSizes(logit_bytes=64 * 2**20, rows_by_dim=0, context_rows=2048),
}

# Derived, not measured, from the data sheet of an H100: 132 processors, 80 GB of memory at 3 TB/s, and about
# 400 TFLOP/s of bfloat16 products. docs/gpu.md tells how to measure them.
ACCELERATOR = ChunkSizes(
    most_logit_bytes=2**30,
    logit_bytes=512 * 2**20,  # a head of 20,000 words has 6,700 rows; the three arrays of that size fit in 2 % of 80 GB
    min_rows=256,  # two rows of tiles of 128, so that even a small table occupies all processors
    max_rows=16_384,  # a whole batch of the paper's WikiText-103 model on one GPU, in chunks if the table is large
    # Adding up gradients takes the time of the products of 270 rows; logits take no more memory than it. Measured on an
    # H200, a Gemma 3 of one layer, dimension 1,024, 262,144 words in bfloat16: chunks of 512, 1,024, 2,048 and 4,096
    # rows take 49, 41, 38 and 38 ms under JAX, and 92, 93, 89 and 83 ms under torch.
    rows_by_dim=1,
    tail_chunks=8,  # the tails of WikiText-103 have an eighth of the targets each, which is then one chunk
    block_bytes=512 * 2**20,  # a whole chunk
    rows_first=0,  # the other order pays on a CPU only
    context_rows=8192,  # 64 rows of tiles; 15 blocks of 410 numbers take 200 MB
    queries=1024,  # a whole text of the usual length
    window_queries=128,  # one tile
    short_keys=0,  # the fused kernel is always faster
    convolved_words=2048,  # words of 20 bytes and 2,048 filters take 340 MB
    highway_words=8192,  # 64 rows of tiles
    spelled_words=4096,  # a step of an LSTM of 512 units takes 32 MB
    tree_rows=4096,
    tree_bytes=512 * 2**20,
)


def chunk_sizes() -> ChunkSizes:
    """Returns the sizes of chunks for the backend and the kind of its device."""
    return ACCELERATOR if on_accelerator() else CPU[keras.config.backend()]


def default_chunk_rows(rows: int | None, columns: int, dim: int = 0) -> int:
    """Returns the number of rows whose float32 logits take the `logit_bytes` of the device, for chunks of equal size.

    The batch is divided into equal chunks of a multiple of 8 rows, because with static shapes a partial last chunk
    costs as much as a full one. The number of rows of the batch may be unknown; `dim` is 0 without gradients.
    """
    sizes = chunk_sizes()
    most_rows = sizes.most_logit_bytes // (4 * columns)
    least = max(sizes.min_rows, min(int(sizes.rows_by_dim * dim), most_rows))
    most = min(max(sizes.logit_bytes // (4 * columns), least), sizes.max_rows)
    if rows:
        most = -(-rows // -(-rows // most))
    return -(-most // 8) * 8


def tail_chunk_rows(x: Tensor, columns: int) -> int | Tensor:
    """Returns the number of rows per chunk of a tail, a tensor if the number of rows is known only at run time.

    The last chunk of a tail is padded, except under torch, so that large chunks would mostly consist of padding.
    """
    most, rows, sizes = default_chunk_rows(None, columns), ops.shape(x)[0], chunk_sizes()
    if keras.config.backend() == "torch":
        return most
    share = -(-rows // sizes.tail_chunks)
    if isinstance(rows, int):
        return min(most, max(share, sizes.min_rows))
    return ops.minimum(most, ops.maximum(share, sizes.min_rows))
