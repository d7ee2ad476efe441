"""Communication among the replicas of a distributed training step.

A replica is one of several copies of a model, each on its own device, that divide the rows of a batch. All replicas run
the same step: by `tf.distribute` under TensorFlow, by `shard_map` over the batch axis of the mesh of
`keras.distribution` under JAX, and in separate processes under torch. Without distribution there is one replica, with
index 0, and a sum over replicas is its own value. `keras_adaptive.distribution` starts replicas.
"""

import contextlib

import keras
from keras import ops

from keras_adaptive.backend.custom_vjp import is_float

AXIS = "batch"  # axis of the mesh under JAX


def sum_over_replicas(tensors):
    """Returns the sum of a tensor, or of each tensor in a list, over all replicas.

    Every replica receives the same bits. A list is exchanged as a whole, in a few messages.
    """
    summed = _SUMS[keras.config.backend()](tensors if isinstance(tensors, list) else [tensors])
    return summed if isinstance(tensors, list) else summed[0]


def average_over_replicas(variables):
    """Replaces the values of float variables, which the replicas have changed apart, by their means over all replicas.

    TensorFlow's variables do so themselves, as their `aggregation` says.
    """
    replicas = replica_count()
    variables = [variable for variable in variables if is_float(variable)]
    if replicas == 1 or keras.config.backend() == "tensorflow" or not variables:
        return
    for variable, value in zip(variables, sum_over_replicas([variable.value for variable in variables])):
        variable.assign(value / replicas)


@contextlib.contextmanager
def keeping_added_losses(layer):
    """Keeps the losses that layers have added in this replica, while its sums wait for other replicas.

    TensorFlow's replicas are threads that take turns wherever they communicate, and share the layers with their lists
    of losses: another replica begins its call by clearing them, and adds its own. All layers of the model that calls
    `layer` keep their losses.
    """
    if keras.config.backend() != "tensorflow" or _tensorflow_context() is None:
        yield
        return
    layers = layer._get_call_context().entry_layer._flatten_layers()
    kept = [(one._losses, list(one._losses)) for one in layers]
    try:
        yield
    finally:
        for losses, values in kept:
            losses[:] = values


def gather_over_replicas(tensor):
    """Returns the concatenated rows of a tensor in all replicas. Every replica receives the same rows."""
    return _GATHERS[keras.config.backend()](tensor)


def check_summed_by_keras(name):
    """Raises a ValueError if Keras' own steps, on which `name` relies, do not join the replicas: several processes.

    Under torch they train each process alone, and under TensorFlow they fail at the logs.
    """
    if (processes := _UNJOINED[keras.config.backend()]()) > 1:
        raise ValueError(
            f"{name} cannot be trained or evaluated by several processes, which Keras does not synchronize under "
            f"{keras.config.backend()}: use a `WordModel` or a `LanguageModel`. Received: {processes} processes."
        )


def replica_index():
    """Returns the index of this replica: the integer 0 if there is one replica, else an integer or a scalar tensor."""
    return _INDICES[keras.config.backend()]()


def replica_count():
    """Returns the number of replicas, an integer."""
    return _COUNTS[keras.config.backend()]()


def on_each_replica(function, state, batch):
    """Returns `function(state, batch)`, called in each replica under JAX with the whole state and the replica's rows.

    The function must return the same values in every replica.
    """
    distribution = keras.distribution.distribution()
    mesh = distribution and distribution.device_mesh
    if mesh is None or dict(zip(mesh.axis_names, mesh.shape)).get(AXIS, 1) == 1:  # one replica on several devices
        return function(state, batch)
    import jax

    whole, rows = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(AXIS)
    return jax.shard_map(
        function,
        mesh=mesh.backend_mesh,
        in_specs=(whole, rows),
        out_specs=whole,
        axis_names={AXIS},  # the compiler distributes the work over other axes, which shard weights
        check_vma=False,
    )(state, batch)


def call_if(condition, function, *arguments):
    """Calls `function(*arguments)`, which changes variables, if a condition holds.

    The condition must be the same in every replica. TensorFlow's replicas synchronize to change a variable, which is
    impossible inside a branch of a single replica. They therefore enter the branch together.
    """
    if not _replicas_must_meet():
        ops.cond(condition, lambda: function(*arguments), lambda: None)
        return
    import tensorflow as tf

    def together(strategy, condition, *arguments):
        first = strategy.experimental_local_results(condition)[0]
        tf.cond(first, lambda: strategy.extended.call_for_each_replica(function, args=arguments), lambda: None)

    tf.distribute.get_replica_context().merge_call(together, args=(condition, *arguments))


def averaged_by_keras(logs):
    """Returns the logs of a step in the shape that Keras averages: vectors if there are several processes."""
    if keras.config.backend() != "tensorflow":
        return logs
    import tensorflow as tf

    if not isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy):
        return logs
    return {name: ops.reshape(value, [1]) for name, value in logs.items()}


def _replicas_must_meet():
    """Returns whether a variable can only be changed by all replicas together, even if there is just one."""
    if keras.config.backend() != "tensorflow":
        return False
    import tensorflow as tf

    meeting = not tf.__internal__.distribute.strategy_supports_no_merge_call()
    return meeting and tf.distribute.get_replica_context() is not None  # None outside of a step


def _tensorflow_context():
    """Returns the context of this replica, or None if there is only one replica."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()  # None outside of a step
    return context if context is not None and context.num_replicas_in_sync > 1 else None


def _tensorflow_sum(tensors):
    import tensorflow as tf

    context, summed = _tensorflow_context(), list(tensors)
    for integers in (False, True) if context else ():  # which are on the host, and cannot be exchanged with others
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype.is_integer is integers]
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [tensors[place] for place in places]) if places else []
        for place, tensor in zip(places, sums):
            summed[place] = tensor
    return summed


def _tensorflow_gather(tensor):
    context = _tensorflow_context()
    return tensor if context is None else context.all_gather(tensor, axis=0)


def _tensorflow_index():
    context = _tensorflow_context()
    return 0 if context is None else context.replica_id_in_sync_group


def _tensorflow_count():
    context = _tensorflow_context()
    return 1 if context is None else context.num_replicas_in_sync


def _replicas_of_workers():
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    return strategy.num_replicas_in_sync if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) else 1


def _jax_index():
    import jax

    try:
        return jax.lax.axis_index(AXIS)
    except NameError:  # outside `on_each_replica`
        return 0


def _jax_count():
    import jax

    return 1 if isinstance(_jax_index(), int) else jax.lax.axis_size(AXIS)


def _jax_sum(tensors):
    import jax

    return tensors if isinstance(_jax_index(), int) else jax.lax.psum(tensors, AXIS)


def _jax_gather(tensor):
    import jax

    return tensor if isinstance(_jax_index(), int) else jax.lax.all_gather(tensor, AXIS, tiled=True)


def _torch_processes():
    """Returns the module `torch.distributed` if there are several processes, else None."""
    import torch.distributed as processes

    return processes if processes.is_available() and processes.is_initialized() else None


def _torch_sum(tensors):
    """Sums tensors over processes, in one buffer per dtype."""
    import torch

    processes = _torch_processes()
    if processes is None:
        return tensors
    summed = list(map(torch.as_tensor, tensors))
    for dtype in dict.fromkeys(tensor.dtype for tensor in summed):
        places = [place for place, tensor in enumerate(summed) if tensor.dtype == dtype]
        buffer = torch.cat([summed[place].reshape(-1) for place in places])
        processes.all_reduce(buffer)
        parts = buffer.split([summed[place].numel() for place in places])
        for place, part in zip(places, parts):
            summed[place] = part.view(summed[place].shape)
    return summed


def _torch_gather(tensor):
    """Gathers tensors that have the same shape in all processes."""
    import torch

    processes = _torch_processes()
    if processes is None:
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(processes.get_world_size())]
    processes.all_gather(parts, tensor.contiguous())
    return torch.cat(parts)


def _torch_index():
    processes = _torch_processes()
    return processes.get_rank() if processes else 0


def _torch_count():
    processes = _torch_processes()
    return processes.get_world_size() if processes else 1


_SUMS = {"tensorflow": _tensorflow_sum, "jax": _jax_sum, "torch": _torch_sum}
_GATHERS = {"tensorflow": _tensorflow_gather, "jax": _jax_gather, "torch": _torch_gather}
_INDICES = {"tensorflow": _tensorflow_index, "jax": _jax_index, "torch": _torch_index}
_COUNTS = {"tensorflow": _tensorflow_count, "jax": _jax_count, "torch": _torch_count}
_UNJOINED = {"tensorflow": _replicas_of_workers, "jax": lambda: 1, "torch": lambda: replica_count()}
