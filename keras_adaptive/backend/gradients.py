"""Value and gradients of a function of variables, on every backend."""

import keras
from keras import ops


def value_and_gradients(function, arguments, trainable, others):
    """Differentiates a float scalar with respect to variables.

    Under JAX it must run inside the `StatelessScope` of a step. Values that `function` assigns to variables of
    `others`, such as the seeds of dropout, are kept there.

    Args:
        function: A function that returns `(value, auxiliary)`: a float scalar and a nested structure of tensors,
            through which no gradient flows.
        arguments: The arguments of `function`.
        trainable: The variables to differentiate with respect to.
        others: All other variables that `function` may assign to.

    Returns:
        `((value, auxiliary), gradients)` with one dense gradient per trainable variable, zeros where the value does
        not depend on it. Gradients of embeddings are dense too, so that their norms and sums have the same meaning
        on every backend. The gradients share no memory with other tensors, so that torch may write into them.
    """
    return _BACKENDS[keras.config.backend()](lambda: function(*arguments), trainable, others)


def _tensorflow(function, trainable, others):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value, auxiliary = function()
    sources = [variable.value for variable in trainable]
    gradients = tape.gradient(value, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return (value, auxiliary), [tf.convert_to_tensor(gradient) for gradient in gradients]


def _torch(function, trainable, others):
    import torch

    value, auxiliary = function()
    sources = [variable.value for variable in trainable]
    for source in sources:
        source.grad = None
    value.backward(inputs=sources)  # unlike `torch.autograd.grad`, it never returns one tensor twice
    gradients = [torch.zeros_like(source) if source.grad is None else source.grad for source in sources]
    for source in sources:
        source.grad = None
    return keras.tree.map_structure(ops.stop_gradient, (value, auxiliary)), gradients


def _jax(function, trainable, others):
    import jax

    def pure(values):
        mapping = [*zip(trainable, values), *((variable, variable.value) for variable in others)]
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
            value, auxiliary = function()
        return value, (auxiliary, [scope.get_current_value(variable) for variable in others])

    differentiate = jax.value_and_grad(pure, has_aux=True)
    values = [ops.convert_to_tensor(variable.value) for variable in trainable]
    (value, (auxiliary, new_values)), gradients = differentiate(values)
    for variable, new in zip(others, new_values):
        variable.assign(new)
    return (value, auxiliary), gradients


_BACKENDS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
