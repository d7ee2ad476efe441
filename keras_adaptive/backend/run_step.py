"""Runs the step of a model, on every backend."""

import keras
from keras import ops

from keras_adaptive.backend.replicas import averaged_by_keras, on_each_replica
from keras_adaptive.backend.wide_ids import saturated


def run_step(model, function, arguments, optimizer_variables=None):
    """Runs `function(data)`, which changes variables and returns logs, as a step of `fit` or `evaluate`.

    Under JAX, it becomes a pure function of the state that Keras carries from step to step. `arguments` are those of
    `train_step` or `test_step`: `(data,)`, or `(state, data)` under JAX. A step that trains passes its
    `optimizer_variables`.
    """
    if keras.config.backend() == "torch":  # Keras hands over what a DataLoader made, on the CPU
        arguments = keras.tree.map_structure(lambda x: x if x is None else ops.convert_to_tensor(x), arguments)
    if keras.config.backend() != "jax":
        return averaged_by_keras(function(*arguments))
    groups = [model.trainable_variables, model.non_trainable_variables, model.metrics_variables]
    if optimizer_variables is not None:
        groups.insert(2, optimizer_variables)

    def pure(state, data):
        mapping = [pair for group, values in zip(groups, state) for pair in zip(group, values)]
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
            logs = function(data)
        return logs, tuple([scope.get_current_value(variable) for variable in group] for group in groups)

    return on_each_replica(pure, *arguments)


def keeping_state(function, groups):
    """Returns a function that Keras calls for each step and that leaves the model whole if the step fails.

    Under JAX, the loops of Keras take the values out of the variables, those of the lists that `groups()` returns, and
    pass them from step to step. The values would be lost with the step that fails. Also, the batches of `predict` are
    saturated here, as are all others before.
    """
    if keras.config.backend() != "jax":
        return function

    def kept(state, data):
        try:
            return function(state, map(saturated, data))
        except BaseException:
            for variables, values in zip(groups(), state):
                for variable, value in zip(variables, values):
                    variable.assign(value)
            raise

    return kept
