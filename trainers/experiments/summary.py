"""Estimates the size of a model, by part, and the memory of training it, without allocating either."""

import math

import keras
import numpy as np

from keras_adaptive.backend.sparse.tables import row_tables
from keras_adaptive.backend.unallocated import number_of_values
from keras_adaptive.data import SPECIAL_WORDS, Vocabulary


def print_summary(model, optimizer, batch_size, length, micro_batches):
    """Prints the parameters of each part and the estimated memory of an update, whose rows have `length` tokens."""
    counts = parameters(model)
    for name, count in {**counts, "all": sum(counts.values())}.items():
        print(f"{name:20} {count:15,}")
    tokens = batch_size * length // micro_batches
    print(f"\nEstimated memory of training, {model.dtype_policy.name}, {tokens:,} tokens at a time:")
    estimate = memory(model, optimizer, tokens, length, micro_batches)
    for name, size in {**estimate, "all": sum(estimate.values())}.items():
        print(f"{name:20} {size / 2**20:11,.0f} MiB")


def stand_in(size):
    """Returns a vocabulary of `size` words with counts after Zipf's law, for a model without a corpus."""
    words = [*SPECIAL_WORDS, *(f"word{i}" for i in range(size - len(SPECIAL_WORDS)))]
    return Vocabulary(words, 10**9 // np.arange(1, size + 1))


def parameters(model):
    """Returns `{part: number}` in the order of the model. Shared variables are counted in the first part."""
    parts = {"input": model.word_input, "body": model.body, "output": model.word_output}
    counted, counts = set(), {}
    for name, part in parts.items():
        new = [variable for variable in part.trainable_variables if id(variable) not in counted]
        counted.update(map(id, new))
        counts[name] = number_of_values(new)
    return counts


def memory(model, optimizer, tokens, length, micro_batches):
    """Returns `{name: bytes}` of an update: weights, gradients, optimizer, activations and logits.

    The logits of a chunk, their exponentials and their gradients are held at the same time, in float32.
    """
    weights = 4 * sum(parameters(model).values())
    size = 4 if model.dtype_policy.compute_dtype == "float32" else 2
    return {
        "weights": weights,
        "gradients": gradient_bytes(model, optimizer, tokens, micro_batches),
        "optimizer": weights * slots(optimizer),
        "activations": tokens * model.body.activations_per_token(length) * size,
        "logits of a chunk": 3 * 4 * model.word_output.logits_in_training(tokens),
    }


def gradient_bytes(model, optimizer, tokens, micro_batches):
    """Returns the size of the gradients in bytes. Tables that are updated by rows have gradients of the rows read.

    The gradients of micro-batches are accumulated. Rows are read for each token and each noise word, and then summed.
    """
    tables = row_tables((model.word_input, model.word_output), model.trainable_variables, optimizer)
    by_rows = set(map(id, tables))
    dense = number_of_values(variable for variable in model.trainable_variables if id(variable) not in by_rows)
    rows = 2 * micro_batches * (tokens + model.word_output.num_samples)
    return 4 * (dense * min(micro_batches, 2) + sum(rows * math.prod(table.shape[1:]) for table in tables))


def slots(optimizer):
    """Returns the number of values that an optimizer keeps per weight. It is found by building a copy."""
    copy, size = type(optimizer).from_config(optimizer.get_config()), 1000
    copy.build([keras.Variable(np.zeros(size))])
    return number_of_values(copy.variables) // size
