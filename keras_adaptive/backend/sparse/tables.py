"""Word tables whose gradients are computed, summed and applied row by row."""

from keras_adaptive.backend.optimizer_step import updates_rows
from keras_adaptive.backend.replicas import sum_over_replicas
from keras_adaptive.backend.sparse.gradients import RowGradient, summed_by_row


def row_tables(layers, trainable, optimizer):
    """Returns the trainable variables that a training step differentiates and updates by rows.

    These are the `row_variables` of the `Input` and `Output` layers that no other of them reads as a whole, if the
    optimizer can update single rows. Tables with a regularizer are excluded, because it depends on all rows.
    """
    if not updates_rows(optimizer):
        return []
    by_rows = {id(variable) for layer in layers for variable in layer.row_variables}
    for layer in layers:
        by_rows -= set(map(id, layer.tables)) - set(map(id, layer.row_variables))
    return [variable for variable in trainable if id(variable) in by_rows and variable.regularizer is None]


def summed_gradients(gradients, scalars):
    """Returns the gradients and the scalars, summed over all replicas; row gradients are summed by row."""
    places = [place for place, gradient in enumerate(gradients) if not isinstance(gradient, RowGradient)]
    sums = sum_over_replicas([*scalars, *(gradients[place] for place in places)])
    dense = dict(zip(places, sums[len(scalars) :]))
    summed = [dense[i] if i in dense else summed_by_row(gradient) for i, gradient in enumerate(gradients)]
    return summed, sums[: len(scalars)]
