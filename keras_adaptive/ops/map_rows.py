"""Functions of single rows, applied to the active rows of a batch, with exact gradients."""

import functools

import keras
from keras import ops

from keras_adaptive.backend.custom_vjp import custom_vjp, is_float, vjp
from keras_adaptive.backend.dynamic_shapes import has_dynamic_shapes
from keras_adaptive.ops.active_rows import over_active_rows


def map_rows(cases, inputs, weights, width, in_chunks=False, saved=()):
    """Computes `function(*input rows, *weights)` for the active rows; other rows are 0 and cost nothing.

    The cases share weights and are processed one after the other, so that rows of different kinds (words of different
    lengths) can have functions of different static shapes. Under torch, and under TensorFlow without XLA, the shapes
    are dynamic: all rows of a case are computed at once, and the usual gradients are exact. XLA needs static shapes:
    each case is computed in chunks, and the backward pass computes each chunk again, except for what its function
    saves, so that the number of chunks can be a run-time value.

    Args:
        cases: List of `(function, active, chunk_rows)`: a function of tensors with any number of rows and of the
            weights, a bool tensor (rows,) of its active rows, and the number of rows per chunk. No row may be active in
            two cases.
        inputs: List of tensors of `rows` rows, float or int.
        weights: List of float tensors.
        width: Width of the rows that the functions return.
        in_chunks: Whether the rows of a case are divided into chunks everywhere, for functions whose intermediate
            arrays are much larger than their inputs and outputs.
        saved: List of the `(columns, dtype)` of each array that the functions save for the backward pass under XLA, one
            row per input row; empty for plain functions. A function that saves has two more methods. Its method
            `save(*input rows, *weights)` returns the values and the list of arrays. Its method
            `from_saved(arrays, *input rows, *weights)` is differentiated in place of the function.

    Returns:
        (rows, width) float32, differentiable once with respect to the float inputs and the weights.
    """
    functions, masks, sizes = zip(*cases)
    if keras.config.backend() == "torch":
        return _torch(functions, masks, inputs, weights, width, sizes if in_chunks else None)
    if has_dynamic_shapes() and not in_chunks:
        return _tensorflow(functions, masks, inputs, weights, width)
    ends = (len(inputs), len(inputs) + len(weights))

    def parts(tensors):
        return tensors[: ends[0]], tensors[ends[0] : ends[1]], zip(functions, tensors[ends[1] :], sizes)

    def forward(*tensors):
        inputs, weights, cases = parts(tensors)
        shapes = [(width, "float32"), *saved]
        outputs = [ops.zeros((ops.shape(inputs[0])[0], columns), dtype) for columns, dtype in shapes]
        for function, active, chunk_rows in cases:
            body = _forward(function, weights, saved)
            outputs, _ = over_active_rows(body, active, inputs, outputs, [], chunk_rows)
        return outputs[0], (tensors, outputs[1:])

    def backward(residuals, upstream):
        tensors, arrays = residuals
        inputs, weights, cases = parts(tensors)
        of_inputs = [ops.zeros(ops.shape(tensor), "float32") for tensor in inputs if is_float(tensor)]
        of_weights = [ops.zeros(weight.shape, "float32") for weight in weights]
        for function, active, chunk_rows in cases:
            rows, body = (*inputs, *arrays, upstream), _backward(function, weights, len(inputs))
            of_inputs, of_weights = over_active_rows(body, active, rows, of_inputs, of_weights, chunk_rows)
        remaining = iter((*of_inputs, *of_weights))
        gradients = [ops.cast(next(remaining), t.dtype) if is_float(t) else None for t in (*inputs, *weights)]
        return gradients + [None] * len(masks)

    return custom_vjp(forward, backward)(*inputs, *weights, *masks)


def _forward(function, weights, saved):
    def body(rows, live, carry):
        values, arrays = function.save(*rows, *weights) if saved else (function(*rows, *weights), [])
        return [values, *arrays], carry

    return body


def _backward(function, weights, count):
    def body(rows, live, carry):
        *rows, upstream = rows
        rows, arrays = rows[:count], rows[count:]
        upstream = ops.where(live[:, None], upstream, 0.0)  # rows that pad the chunk are copies
        again = functools.partial(function.from_saved, arrays) if arrays else function
        gradients = vjp(again, (*rows, *weights), upstream)
        of_rows = [gradient for row, gradient in zip(rows, gradients) if is_float(row)]
        of_weights = gradients[len(rows) :]
        return of_rows, [total + ops.cast(gradient, "float32") for total, gradient in zip(carry, of_weights)]

    return body


def _torch(functions, masks, inputs, weights, width, sizes=None):
    import torch

    places = [active.nonzero()[:, 0] for active in masks]
    parts = [index.split(size) for index, size in zip(places, sizes or [len(inputs[0]) + 1] * len(places))]
    work = [(function, index) for function, part in zip(functions, parts) for index in part if len(index)]
    results = [function(*(tensor[index] for tensor in inputs), *weights).float() for function, index in work]
    outputs = torch.zeros(len(inputs[0]), width, device=inputs[0].device)
    return outputs.index_copy(0, torch.cat(places), torch.cat(results)) if work else outputs


def _tensorflow(functions, masks, inputs, weights, width):
    import tensorflow as tf

    places = [refuse_xla(tf.where(active)[:, 0]) for active in masks]
    shape = tf.shape(inputs[0], out_type="int64")[0], width
    work = [pair for pair in zip(functions, places) if pair[1].shape[0] != 0]  # eager Keras refuses empty arrays
    if not work:
        return tf.zeros(shape)
    results = [function(*(tf.gather(tensor, index) for tensor in inputs), *weights) for function, index in work]
    results = tf.concat([tf.cast(result, "float32") for result in results], axis=0)
    outputs = tf.scatter_nd(tf.concat([index for _, index in work], axis=0)[:, None], results, shape)
    return tf.ensure_shape(outputs, (inputs[0].shape[0], width))


def refuse_xla(index):
    """Returns distinct indices unchanged, by an operation of TensorFlow that XLA cannot compile.

    XLA may compile a graph that was traced without it. It would give `tf.where` a static size and return wrong values.
    With this operation it raises an error instead.
    """
    import tensorflow as tf

    return tf.unique_with_counts(index).y
