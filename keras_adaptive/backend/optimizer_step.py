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
    `LossScaleOptimizer` lowers: it skips steps by itself if any gradient is not finite. Under JAX it works in the
    stateless form only.

    A gradient is dense, or a `RowGradient` with distinct ids if `updates_rows` is true for the optimizer.
    """
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if scales:
        gradients = [*gradients[:-1], ops.where(finite, gradients[-1], float("nan"))]
        updater = _view(optimizer, type(optimizer), inner_optimizer=_updater(optimizer.inner_optimizer))
    else:
        updater = _updater(optimizer)
    if keras.config.backend() == "jax" and scales:
        _assign_stateless_step(updater, gradients, trainable)
    elif keras.config.backend() == "jax":
        _assign_step(updater, gradients, trainable, finite)
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


def _assign_stateless_step(optimizer, gradients, trainable):
    """Takes the step of a `LossScaleOptimizer`, which skips it by itself."""
    groups = [trainable, optimizer.variables]
    weights, state = ([variable.value for variable in group] for group in groups)
    for variables, values in zip(groups, optimizer.stateless_apply(state, gradients, weights)):
        for variable, value in zip(variables, values):
            variable.assign(value)


def _assign_step(optimizer, gradients, trainable, finite):
    """Takes the step in a scope. A skipped step adds zeros to rows and keeps the old values elsewhere."""
    by_rows = [variable for variable, gradient in zip(trainable, gradients) if isinstance(gradient, RowGradient)]
    in_place = {id(changed) for variable in by_rows for changed in (variable, *optimizer.slots_of(variable))}
    gradients = [
        _kept_rows(gradient, finite) if isinstance(gradient, RowGradient) else gradient for gradient in gradients
    ]
    variables = [*trainable, *optimizer.variables]
    with _Step([(variable, variable.value) for variable in variables], finite, in_place) as step:
        optimizer.apply(gradients)
    for variable in variables:
        variable.assign(step.get_current_value(variable))


class _Step(keras.StatelessScope):
    """Scope of a step that is skipped: whatever is assigned keeps its value unless `finite`, or if it is `in_place`.

    The choice is made before weights are computed from momenta. After that, XLA would compute the new momenta twice,
    and copy the old ones for it.
    """

    def __init__(self, values, finite, in_place):
        super().__init__(state_mapping=values)
        self.old, self.finite, self.in_place = {id(variable): value for variable, value in values}, finite, in_place

    def add_update(self, update):
        variable, value = update
        if id(variable) not in self.in_place:
            value = ops.where(self.finite, value, self.old[id(variable)])
        super().add_update((variable, value))


def _kept_rows(gradient, finite):
    return gradient._replace(values=ops.where(finite, gradient.values, 0.0))
