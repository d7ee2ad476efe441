"""Value and gradients of a function of variables, on every backend."""

import keras
from keras import ops

from keras_adaptive.backend.sparse.gradients import RowReader


def value_and_gradients(function, arguments, trainable, others, tables=()):
    """Differentiates a float scalar with respect to variables.

    Under JAX, the function must be called inside the `StatelessScope` of a step. The scope keeps the values that
    `function` assigns to variables of `others`, such as the seeds of dropout.

    Args:
        function: A function that returns `(value, auxiliary)`: a float scalar and a nested structure of tensors,
            through which no gradient flows.
        arguments: The arguments of `function`.
        trainable: The variables to differentiate with respect to.
        others: All other variables that `function` may assign to.
        tables: The trainable variables that are differentiated by rows. `function` must read them by `take_rows`.

    Returns:
        `((value, auxiliary), gradients)` with one gradient per trainable variable. The gradient of a table is a
        `RowGradient`, whose ids may repeat. All other gradients are dense, for embeddings too, so that norms and sums
        have the same meaning on every backend; they are zero where the value does not depend on the variable. The
        gradients share no memory with other tensors, so that torch may write into them.

    Raises:
        ValueError: If the value depends on a table in another way than by `take_rows`.
    """
    by_rows = set(map(id, tables))
    dense = [variable for variable in trainable if id(variable) not in by_rows]
    differentiate = _BACKENDS[keras.config.backend()]
    result, of_dense, of_tables = differentiate(lambda: function(*arguments), dense, list(tables), others)
    gradients = dict(zip(map(id, [*dense, *tables]), [*of_dense, *of_tables], strict=True))
    return result, [gradients[id(variable)] for variable in trainable]


def _tensorflow(function, trainable, tables, others):
    import tensorflow as tf

    def watch(rows, number):
        tape.watch(rows)
        return rows

    reader = RowReader(tables, watch)
    with tf.GradientTape() as tape, reader.reading():
        value, auxiliary = function()
    variables, whole = ([variable.value for variable in group] for group in (trainable, tables))
    gradients, of_rows, of_whole = tape.gradient(value, [variables, reader.rows, whole])
    _check_read_by_rows(tables, of_whole)
    gradients = [tf.zeros_like(v) if g is None else tf.convert_to_tensor(g) for v, g in zip(variables, gradients)]
    of_rows = [tf.zeros_like(rows) if g is None else g for rows, g in zip(reader.rows, of_rows)]
    return (value, auxiliary), gradients, reader.gradients(reader.ids, of_rows)


def _torch(function, trainable, tables, others):
    """Differentiates by rows wherever `take_rows` reads, because autograd would make dense gradients on a CPU."""
    import torch

    dense = {id(variable): place for place, variable in enumerate(trainable) if variable.value.device.type == "cpu"}
    others = [trainable[place] for place in dense.values()]
    reader = RowReader(tables, lambda rows, number: rows.detach().requires_grad_(), others)
    with reader.reading():
        value, auxiliary = function()
    variables, whole = ([variable.value for variable in group] for group in (trainable, tables))
    sources = [*variables, *reader.rows, *whole]
    for source in sources:
        source.grad = None
    value.backward(inputs=sources)  # unlike `torch.autograd.grad`, it never returns the same tensor twice
    _check_read_by_rows(tables, [table.grad for table in whole])
    read = [*variables, *reader.rows]  # the tables are excluded, because they are large
    gradients = [torch.zeros_like(source) if source.grad is None else source.grad for source in read]
    for source in sources:
        source.grad = None
    count = len(variables)
    of_rows = gradients[count:]
    for variable, ids, values in zip(reader.read, reader.ids, of_rows, strict=True):
        if id(variable) in dense:
            gradients[dense[id(variable)]].index_add_(0, ids.flatten(), values.flatten(0, ids.ndim - 1))
    result = keras.tree.map_structure(ops.stop_gradient, (value, auxiliary))
    return result, gradients[:count], reader.gradients(reader.ids, of_rows)


def _jax(function, trainable, tables, others):
    """Differentiates with respect to zeros that are added to the rows. A first trace finds the shapes of the rows."""
    import jax

    readers = []  # one per trace

    def pure(values, whole, zeros):
        readers.append(RowReader(tables, lambda rows, number: rows + zeros[number] if zeros else rows))
        whole = [_without_gradient(variable, value) for variable, value in zip(tables, whole)]
        mapping = [*zip(trainable, values), *zip(tables, whole), *((variable, variable.value) for variable in others)]
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope, readers[-1].reading():
            value, auxiliary = function()
        new_values = [scope.get_current_value(variable) for variable in others]
        return value, (auxiliary, new_values, readers[-1].ids, readers[-1].rows)

    values, whole = ([ops.convert_to_tensor(variable.value) for variable in group] for group in (trainable, tables))
    zeros = []
    if tables:
        *_, rows = jax.eval_shape(pure, values, whole, [])[1]
        zeros = [ops.zeros(array.shape, array.dtype) for array in rows]
    differentiate = jax.value_and_grad(pure, argnums=(0, 1, 2), has_aux=True)
    (value, (auxiliary, new_values, ids, _)), (gradients, _, of_rows) = differentiate(values, whole, zeros)
    for variable, new in zip(others, new_values):
        variable.assign(new)
    return (value, auxiliary), gradients, readers[-1].gradients(ids, of_rows)


def _without_gradient(variable, value):
    """Returns the value, whose gradient raises a ValueError. JAX does not compute a gradient known to be zero."""
    import jax

    def refuse(residuals, upstream):
        _check_read_by_rows([variable], [upstream])

    same = jax.custom_vjp(lambda value: value)
    same.defvjp(lambda value: (value, None), refuse)
    return same(value)


def _check_read_by_rows(tables, gradients):
    """Raises a ValueError if a table has a gradient in addition to the gradient of its rows."""
    for table, gradient in zip(tables, gradients):
        if gradient is not None:
            raise ValueError(
                f"The table {table.path} must be read by `take_rows` only, because its layer lists it in "
                "`row_variables`, but the loss also depends on it in another way. Replace the layer by a subclass "
                "whose `row_variables` are empty."
            )


_BACKENDS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
