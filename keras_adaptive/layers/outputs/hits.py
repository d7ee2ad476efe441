"""Which targets are the most probable words of their rows, for the accuracy in training; without gradients."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_adaptive.ops.active_rows import update_rows
from keras_adaptive.ops.word_ids import word_ids


class Term(NamedTuple):
    """Arguments of `linear_cross_entropy` for one band of an adaptive softmax, except for the weights."""

    x: Any
    table: Any
    targets: Any
    extra_logits: Any = None
    chunk_rows: Any = None
    bias: Any = None


def hits_of_bands(terms, bests):
    """Returns which targets of an adaptive softmax are the most probable words, from the pass of the loss.

    Within its band a target is compared in that pass, and a word of a tail with the head too. Only the other tails are
    left. A tail is computed for a row only if the tail as a whole is more probable than the target, which is then the
    best of all words so far.

    Args:
        terms: List of a `Term` for each band, the head first.
        bests: List of the `Best` of each.

    Returns:
        (rows,) float32: 1 if the target is the most probable word, else 0. Among equally probable words, the one with
        the smallest id counts as the most probable.
    """
    head, *tails = bests
    log_probs = -sum(best.nll for best in bests)
    above_head = ops.cast(head.log_probs < log_probs, "float32")  # a word of the head wins a tie, by its smaller id
    hits = head.hits + sum(best.hits * above_head for best in tails)
    for tail, term in enumerate(terms[1:]):
        x, table, bias = (None if part is None else ops.stop_gradient(part) for part in (term.x, term.table, term.bias))

        def unless_beaten(x, column, log_probs, comes_first, hits, table=table, bias=bias):
            logits = ops.cast(ops.matmul(x, ops.transpose(ops.cast(table, x.dtype))), "float32")
            best = ops.max(ops.log_softmax(logits if bias is None else logits + bias), axis=1) + column
            return [ops.where((best > log_probs) | (best == log_probs) & comes_first, 0.0, hits)]

        column = head.extra_log_probs[:, tail]
        targets_after = sum(ops.cast(later.targets >= 0, "int32") for later in terms[tail + 2 :])
        comes_first = ops.broadcast_to(targets_after, ops.shape(column)) > 0
        active = (hits > 0) & (term.targets < 0) & (column >= log_probs)
        inputs = [x, column, log_probs, comes_first, hits]
        (hits,) = update_rows(unless_beaten, active, inputs, [hits], table.shape[0])
    return hits


def hits_by_top_k(output, hidden, targets):
    """Returns which targets are the most probable words of any output, in a pass of its own.

    The best word alone is found faster than the rank, for which all words are compared with the target.
    """

    def compare(rows, targets):
        log_probs, ids = output.top_k(rows, 1)
        return [(ids[:, 0] == targets) & ~ops.isnan(log_probs[:, 0])]

    constants = [(variable, ops.stop_gradient(variable.value)) for variable in output.variables]
    rows = ops.reshape(ops.stop_gradient(hidden), [-1, hidden.shape[-1]])
    ids = ops.reshape(word_ids(targets, output.vocabulary_size), [-1])
    with keras.StatelessScope(state_mapping=constants):  # JAX cannot differentiate the loops
        (best,) = update_rows(compare, ids >= 0, [rows, ids], [ids < ids], output.boundaries[1])
    return ops.reshape(best, ops.shape(targets))
