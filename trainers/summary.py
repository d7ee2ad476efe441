"""What a model of the flags weighs: parameters by part, and the memory of training it, without allocating any."""

import math

import keras
from absl import flags

from keras_adaptive.data import SPECIAL_WORDS, Vocabulary
from keras_adaptive.ops.linear_cross_entropy import default_chunk_rows
from trainers import experiment

FLAGS = flags.FLAGS
SLOTS = {"nag": 1, "adam": 2}  # of an optimizer, each of the size of the weights


def print_summary(vocabulary):
    """Prints the parameters of each part and the estimated memory of an update."""
    with keras.StatelessScope(initialize_variables=False):
        model = experiment.build_model(vocabulary)
    for name, count in parameters(model).items():
        print(f"{name:20} {count:15,}")
    print(f"\nEstimated memory of training, {FLAGS.dtype}, {tokens_at_a_time():,} tokens at a time:")
    estimate = memory(model)
    for name, size in {**estimate, "all": sum(estimate.values())}.items():
        print(f"{name:20} {size / 2**20:11,.0f} MiB")


def stand_in(size):
    """A vocabulary of that many words, for models whose corpus is not there."""
    words = [*SPECIAL_WORDS, *(f"word{i}" for i in range(size - len(SPECIAL_WORDS)))]
    return Vocabulary(words, [0] * size)


def parameters(model):
    """`{part: number}` in the order of the model; what two parts share counts in the first."""
    parts = {"words in": model.word_input, "body": model.body, "words out": model.word_output}
    counted, counts = set(), {}
    for name, part in parts.items():
        new = [variable for variable in part.trainable_variables if id(variable) not in counted]
        counted.update(map(id, new))
        counts[name] = sum(math.prod(variable.shape) for variable in new)
    return {**counts, "all": sum(counts.values())}


def tokens_at_a_time():
    """Tokens of a micro-batch, padding included."""
    return FLAGS.batch_size * FLAGS.length // FLAGS.micro_batches


def memory(model):
    """`{what: bytes}` of an update: what the weights need, and what a block keeps for its backward pass."""
    weights = 4 * parameters(model)["all"]
    size = 4 if FLAGS.dtype == "float32" else 2
    return {
        "weights": weights,
        "gradients": weights * (2 if FLAGS.micro_batches > 1 else 1),
        "optimizer": weights * SLOTS[FLAGS.optimizer],
        "activations": FLAGS.num_blocks * tokens_at_a_time() * block_values() * size,
        "logits of a chunk": logits_bytes(model.word_output),
    }


def block_values():
    """Numbers that a block keeps per token: 10 vectors (norms, queries, keys, values, mixture, branches, sums), two
    rows of its feed-forward layer, two rows of attention of each head, and a mask where there is dropout."""
    masks = (2 * FLAGS.dim * (FLAGS.dropout > 0)) + FLAGS.ffn_dim * (FLAGS.relu_dropout > 0)
    rows = FLAGS.num_heads * FLAGS.length * (2 + (FLAGS.attention_dropout > 0))
    return 10 * FLAGS.dim + 2 * FLAGS.ffn_dim + rows + masks


def logits_bytes(word_output):
    """Logits, exponentials and slopes of the largest chunk."""
    shapes = [table.shape for table in word_output.tables]
    return max(3 * 4 * size * default_chunk_rows(tokens_at_a_time(), size, dim) for size, dim in shapes)
