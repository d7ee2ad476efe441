"""What the replicas of a distributed training step ask of each other.

A replica is one of several copies of a model, each on a device of its own, that share the rows of a batch. Every one
runs the same step: under TensorFlow by `tf.distribute`, under JAX by `shard_map` over the batch axis of the mesh of
`keras.distribution`, under torch in a process of its own. Where nothing is distributed there is one replica, of index
0, whose sums are its own. `keras_adaptive.distribution` starts them.
"""

import keras
from keras import ops

AXIS = "batch"  # of the mesh, under JAX


def sum_over_replicas(tensors):
    """The sums of the replicas' values of a tensor, or of a list of tensors; the same bits in every replica.

    A list is exchanged as a whole: in few messages, and not one for each tensor.
    """
    summed = _SUMS[keras.config.backend()](tensors if isinstance(tensors, list) else [tensors])
    return summed if isinstance(tensors, list) else summed[0]


def replica_index():
    """The number of this replica: the integer 0 if there is one; of several a scalar tensor where there can be one."""
    return _INDICES[keras.config.backend()]()


def on_each_replica(function, state, batch):
    """`function(state, batch)` as each replica calls it under JAX: with all of the state and its rows of the batch.

    It must return the same in every replica, which is what it returns here.
    """
    distribution = keras.distribution.distribution()
    mesh = distribution and distribution.device_mesh
    if mesh is None or dict(zip(mesh.axis_names, mesh.shape)).get(AXIS, 1) == 1:  # a single one, on several devices
        return function(state, batch)
    import jax

    whole, rows = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(AXIS)
    return jax.shard_map(
        function,
        mesh=mesh.backend_mesh,
        in_specs=(whole, rows),
        out_specs=whole,
        axis_names={AXIS},  # over other axes, which share weights out, the compiler divides the work
        check_vma=False,
    )(state, batch)


def call_if(condition, function, *arguments):
    """Calls `function(*arguments)`, which changes variables, if the condition, the same in every replica, holds.

    TensorFlow's replicas meet to change a variable, and cannot do so inside of a branch of one: all enter it together.
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
    """Logs of a step as Keras can average them over replicas: vectors, if TensorFlow has several processes."""
    if keras.config.backend() != "tensorflow":
        return logs
    import tensorflow as tf

    if not isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy):
        return logs
    return {name: ops.reshape(value, [1]) for name, value in logs.items()}


def _replicas_must_meet():
    """So it is even with the only replica of a strategy."""
    if keras.config.backend() != "tensorflow":
        return False
    import tensorflow as tf

    meeting = not tf.__internal__.distribute.strategy_supports_no_merge_call()
    return meeting and tf.distribute.get_replica_context() is not None  # None outside of a step


def _tensorflow_context():
    """That of this replica, None where there is only one."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()  # None outside of a step
    return context if context is not None and context.num_replicas_in_sync > 1 else None


def _tensorflow_sum(tensors):
    import tensorflow as tf

    context = _tensorflow_context()
    return tensors if context is None else list(context.all_reduce(tf.distribute.ReduceOp.SUM, tensors))


def _tensorflow_index():
    context = _tensorflow_context()
    return 0 if context is None else context.replica_id_in_sync_group


def _jax_index():
    import jax

    try:
        return jax.lax.axis_index(AXIS)
    except NameError:  # not inside of `on_each_replica`
        return 0


def _jax_sum(tensors):
    import jax

    return tensors if isinstance(_jax_index(), int) else jax.lax.psum(tensors, AXIS)


def _torch_processes():
    """`torch.distributed` if there are several processes, or None."""
    import torch.distributed as processes

    return processes if processes.is_available() and processes.is_initialized() else None


def _torch_sum(tensors):
    """In one buffer for each dtype."""
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


def _torch_index():
    processes = _torch_processes()
    return processes.get_rank() if processes else 0


_SUMS = {"tensorflow": _tensorflow_sum, "jax": _jax_sum, "torch": _torch_sum}
_INDICES = {"tensorflow": _tensorflow_index, "jax": _jax_index, "torch": _torch_index}
