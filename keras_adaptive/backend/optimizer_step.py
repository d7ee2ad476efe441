"""Step of an optimizer by gradients that are already summed and clipped, on every backend."""

import keras
from keras import ops

from keras_adaptive.backend.fused_adam import FusedAdam
from keras_adaptive.backend.replicas import call_if
from keras_adaptive.backend.row_updates import row_kind
from keras_adaptive.backend.rows import RowGradient


def apply_gradients(optimizer, gradients, trainable, finite):
    """Takes one step of the optimizer, or none at all where `finite`, a boolean scalar, is False.

    The gradients are sums over all replicas, the same in each, and have been clipped to the optimizer's
    `global_clipnorm`. A skipped step leaves weights and optimizer as they are, except for the loss scale, which a
    `LossScaleOptimizer` lowers: it skips by itself, on any gradient that is not finite. Under JAX the step is taken
    in the pure form, the only one in which loss scaling works.

    Args:
        optimizer: A built Keras optimizer.
        gradients: One gradient per variable: dense, or a `RowGradient` with distinct ids if the optimizer
            `updates_rows`.
        trainable: The variables.
        finite: Whether to step.
    """
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if scales:
        gradients = [*gradients[:-1], ops.where(finite, gradients[-1], float("nan"))]
        updater = _view(optimizer, type(optimizer), inner_optimizer=_updater(optimizer.inner_optimizer))
    else:
        updater = _updater(optimizer)
    if keras.config.backend() == "jax":
        _assign_pure_step(updater, gradients, trainable, True if scales else finite)
    elif scales:
        updater.apply(gradients, trainable)
    else:
        call_if(finite, updater.apply, gradients, trainable)


def updates_rows(optimizer):
    """Returns whether a step of the optimizer can leave the rows of a table as they are that have no gradient."""
    return not isinstance(optimizer, keras.optimizers.LossScaleOptimizer) and row_kind(optimizer) is not None


def inner_optimizer(optimizer):
    """Returns the optimizer that a `LossScaleOptimizer` wraps, or the given optimizer if it is another one."""
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    return optimizer.inner_optimizer if scales else optimizer


def _updater(optimizer):
    """Returns a view of the optimizer that neither clips again nor, under TensorFlow, sums over replicas again.

    Keras' own Adam becomes a `FusedAdam`, and an optimizer that can update rows the one that does.
    """
    own = isinstance(optimizer, keras.optimizers.Adam) and type(optimizer).__module__.startswith("keras.")
    kind = FusedAdam if own else row_kind(optimizer) or type(optimizer)
    return _view(optimizer, kind, global_clipnorm=None, _all_reduce_sum_gradients=list)


def _view(optimizer, kind, **attributes):
    """Returns an object of the class `kind` with the same variables, and other attributes.

    The optimizer itself is left alone: under `MirroredStrategy` the threads of all replicas use it at the same time.
    """
    view = object.__new__(kind)
    view.__dict__.update(optimizer.__dict__, **attributes)
    return view


def _assign_pure_step(optimizer, gradients, trainable, finite):
    """Takes the step as a function. Rows are changed in place, a skipped update by zeros; other values are chosen."""
    by_rows = [variable for variable, gradient in zip(trainable, gradients) if isinstance(gradient, RowGradient)]
    in_place = {id(one) for variable in by_rows for one in (variable, *optimizer.slots_of(variable))}
    gradients = [
        _kept_rows(gradient, finite) if isinstance(gradient, RowGradient) else gradient for gradient in gradients
    ]
    groups = [trainable, optimizer.variables]
    old_weights, old_state = ([variable.value for variable in group] for group in groups)
    new = optimizer.stateless_apply(old_state, gradients, old_weights)
    for variables, values in zip(groups, new):
        for variable, value in zip(variables, values):
            variable.assign(value if id(variable) in in_place else ops.where(finite, value, variable.value))


def _kept_rows(gradient, finite):
    return gradient._replace(values=ops.where(finite, gradient.values, 0.0))
