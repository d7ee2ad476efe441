"""The value and the gradients of a function of a model's variables, on every backend."""

import keras
from keras import ops

from keras_adaptive.backend.replicas import call_if


def value_and_gradients(function, arguments, model):
    """Calls `function(*arguments)`, a float scalar that depends on the model's trainable variables.

    Returns `(value, gradients)` with one dense gradient per trainable variable (zeros where there is none: embedding
    gradients are densified, so that norms and sums of them mean what they say). Under JAX it runs inside the
    `StatelessScope` of a step, and what `function` assigns to other variables of the model (the seeds of dropout)
    is kept.
    """
    return _BACKENDS[keras.config.backend()](lambda: function(*arguments), model)


def apply_gradients(gradients, model, finite):
    """One step of the model's optimizer, or none at all where `finite`, a boolean scalar, is False.

    The gradients are those of all replicas, the same in each: the optimizer clips them and steps alike everywhere.
    Weights and all variables of the optimizer then stay as they are, but for the loss scale, which a
    `LossScaleOptimizer` lowers: it skips by itself, on any gradient that is not finite. Under JAX the step is taken
    in the pure form, the only one that loss scaling works in.
    """
    optimizer, trainable = model.optimizer, model.trainable_variables
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    stepping = optimizer.inner_optimizer if scales else optimizer
    stepping._all_reduce_sum_gradients = list  # what Keras would do under TensorFlow, behind the clip
    if scales:
        gradients = [*gradients[:-1], ops.where(finite, gradients[-1], float("nan"))]
    if keras.config.backend() == "jax":
        _assign_pure_step(optimizer, gradients, trainable, True if scales else finite)
    elif scales:
        optimizer.apply(gradients, trainable)
    else:
        call_if(finite, optimizer.apply, gradients, trainable)


def _assign_pure_step(optimizer, gradients, trainable, finite):
    groups = [trainable, optimizer.variables]
    old_weights, old_state = ([variable.value for variable in group] for group in groups)
    new = optimizer.stateless_apply(old_state, gradients, old_weights)
    for variables, values in zip(groups, new):
        for variable, value in zip(variables, values):
            variable.assign(ops.where(finite, value, variable.value))


def _tensorflow(function, model):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = function()
    sources = [variable.value for variable in model.trainable_variables]
    gradients = tape.gradient(value, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return value, [tf.convert_to_tensor(gradient) for gradient in gradients]


def _torch(function, model):
    import torch

    value = function()
    sources = [variable.value for variable in model.trainable_variables]
    gradients = torch.autograd.grad(value, sources, allow_unused=True)
    gradients = [torch.zeros_like(s) if g is None else g for s, g in zip(sources, gradients)]
    return value.detach(), gradients


def _jax(function, model):
    import jax

    trainable, others = model.trainable_variables, model.non_trainable_variables

    def pure(values):
        mapping = [*zip(trainable, values), *((variable, variable.value) for variable in others)]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            value = function()
        return value, [scope.get_current_value(variable) for variable in others]

    gradient = jax.value_and_grad(pure, has_aux=True)
    (value, after), gradients = gradient([ops.convert_to_tensor(variable.value) for variable in trainable])
    for variable, new in zip(others, after):
        variable.assign(new)
    return value, gradients


_BACKENDS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
