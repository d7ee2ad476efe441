"""Steps of optimizers by gradients that are already summed and clipped, on every backend."""

import keras
from keras import ops

from keras_adaptive.backend.fused_adam import FusedAdam
from keras_adaptive.backend.known_options import has_known_options
from keras_adaptive.backend.replicas import call_if
from keras_adaptive.backend.sparse.gradients import RowGradient
from keras_adaptive.backend.sparse.optimizers import row_kind


def apply_gradients(optimizer, gradients, trainable, finite):
    """Takes one step of the optimizer if the gradients are finite.

    The gradients are sums over all replicas, equal in each replica, and have been clipped to the `global_clipnorm` of
    the optimizer. A skipped step does not change weights or optimizer, except for the loss scale, which a
    `LossScaleOptimizer` lowers: it skips steps by itself if any gradient is not finite. Under JAX, the step is taken in
    the stateless form, the only form in which loss scaling works.

    A gradient is dense, or a `RowGradient` with distinct ids if `updates_rows` is true for the optimizer.
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
    """Returns whether the optimizer can update the rows of a table that have a gradient, and no others."""
    return not isinstance(optimizer, keras.optimizers.LossScaleOptimizer) and row_kind(optimizer) is not None


def inner_optimizer(optimizer):
    """Returns the optimizer inside a `LossScaleOptimizer`. Other optimizers are returned unchanged."""
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    return optimizer.inner_optimizer if scales else optimizer


def _updater(optimizer):
    """Returns a view of the optimizer that does not clip again and, under TensorFlow, does not sum over replicas again.

    Keras' own Adam is viewed as a `FusedAdam`, and an optimizer that can update rows as the class that does, unless
    Keras gives them an option that these classes do not know.
    """
    is_adam = isinstance(optimizer, keras.optimizers.Adam) and type(optimizer).__module__.startswith("keras.")
    kind = FusedAdam if is_adam and has_known_options(optimizer) else row_kind(optimizer) or type(optimizer)
    return _view(optimizer, kind, global_clipnorm=None, _all_reduce_sum_gradients=list)


def _view(optimizer, kind, **attributes):
    """Returns an object of the class `kind` that shares the optimizer's variables and has other attributes.

    The optimizer itself is not changed: under `MirroredStrategy`, the threads of all replicas use it at the same time.
    """
    view = object.__new__(kind)
    view.__dict__.update(optimizer.__dict__, **attributes)
    return view


def _assign_pure_step(optimizer, gradients, trainable, finite):
    """Takes the step in the stateless form. A skipped step adds zeros to rows and keeps the old values elsewhere."""
    by_rows = [variable for variable, gradient in zip(trainable, gradients) if isinstance(gradient, RowGradient)]
    in_place = {id(changed) for variable in by_rows for changed in (variable, *optimizer.slots_of(variable))}
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
