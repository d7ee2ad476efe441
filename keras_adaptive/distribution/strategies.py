"""Training on several devices, by what the engines have for it."""

import contextlib
import functools
import json
import os

import keras
import numpy as np

from keras_adaptive.backend.replicas import AXIS

BACKENDS = {
    "mirrored": "tensorflow",
    "multiworker": "tensorflow",
    "data_parallel": "jax",
    "model_parallel": "jax",
    "ddp": "torch",
}
JAX_PROCESSES = "KERAS_DISTRIBUTION_NUM_PROCESSES"
TABLES = r"(word_input|word_output)/table_\d+"  # paths of the variables that hold a vector for each word


def start(name="none", model_devices=0):
    """Starts distributed training and returns its `Strategy`; to be called before anything else that uses the backend.

    The update is the same under every strategy, and that of one device: a `LanguageModel` sums the number of targets,
    the loss and the gradients over all replicas, clips the sum and steps alike everywhere, and each replica draws its
    own dropout. Only rounding depends on how the rows are divided.

    - `none`: one device.
    - `mirrored` (TensorFlow): `tf.distribute.MirroredStrategy`, all GPUs of this process, or all its CPU devices.
    - `multiworker` (TensorFlow): `tf.distribute.MultiWorkerMirroredStrategy`, processes named in `TF_CONFIG`.
    - `data_parallel` (JAX): all devices, of one process, or of several that `keras.distribution.initialize` joins when
      `KERAS_DISTRIBUTION_NUM_PROCESSES` is set.
    - `model_parallel` (JAX): as before, in one process; groups of `model_devices` share out the word tables by rows,
      with their gradients and slots of the optimizer.
    - `ddp` (torch): one process for each device, launched by `torchrun`. `torch.nn.parallel.DistributedDataParallel`
      itself would average gradients in the backward pass of each process: that is the mean of the processes' means,
      where the mean over all tokens is wanted, its hooks do not see the gradients of `torch.autograd.grad`, and with
      micro-batches they would exchange each part. What is used is its `all_reduce`, once for an update, of the summed
      gradients in one buffer for each dtype, and its broadcast of the first process' weights at the start.

    Args:
        name: of the strategy.
        model_devices: number of devices that share one copy of the tables under `model_parallel`; 0 for all.

    Raises:
        ValueError: on a strategy of another backend, on one that its launcher has not prepared (`TF_CONFIG`,
            `torchrun`), on `none` where the launcher has, and on devices that do not divide.
    """
    backend = keras.config.backend()
    if name == "none":
        _check_alone(backend)
        return Strategy()
    if name not in BACKENDS:
        raise ValueError(f"The strategy must be one of {['none', *BACKENDS]}. Received: {name!r}.")
    if BACKENDS[name] != backend:
        own = [other for other in BACKENDS if BACKENDS[other] == backend]
        raise ValueError(
            f"The strategy {name!r} is one of {BACKENDS[name]}: run with KERAS_BACKEND={BACKENDS[name]}, or take one "
            f"of {own}. Received: KERAS_BACKEND={backend}."
        )
    if name == "ddp":
        return _Ddp()
    if backend == "jax":
        return _DataParallel(name == "model_parallel", model_devices)
    return _Mirrored(name == "multiworker")


class Strategy:
    """How the replicas of a training divide its batches: this one for a single device, and what others share with it.

    Attributes:
        replicas: number of parts into which the rows of a batch are divided.
        processes: number of processes that train together.
        process: number of this one, from 0; the first one writes what there is to write.

    Example:

    ```python
    strategy = keras_adaptive.distribution.start("mirrored")
    with strategy.scope():
        model = transformer_lm(50_000, cutoffs=(4_000, 16_000))
        model.compile(NAG(1.0, global_clipnorm=0.1))
        strategy.synchronize(model)
        model.fit(strategy.shard(batches), steps_per_epoch=1000, shuffle=False)
    ```
    """

    def __init__(self, replicas=1, processes=1, process=0, own_rows=False, scope=contextlib.nullcontext):
        self.replicas = replicas
        self.processes = processes
        self.process = process
        self.scope = scope
        self._own_rows = own_rows  # whether a process is given its own rows only

    def shard(self, batches, micro_batches=1):
        """Yields of each of the `batches` what this process gives to `fit`, see `part`."""
        return (self.part(batch, micro_batches) for batch in batches)

    def part(self, batch, micro_batches=1):
        """The rows of `(tokens, targets, weights)`, (rows, length) each, that this process gives to `fit`.

        Rows of weight 0 fill the batch up, so that all replicas have as many rows and as many in each of their
        `micro_batches`. They count nothing, and no row is left out or counted twice.
        """
        missing = -len(batch[0]) % (self.replicas * micro_batches)
        batch = tuple(np.pad(array, [(0, missing), (0, 0)]) for array in batch) if missing else batch
        if not self._own_rows:
            return batch
        rows = len(batch[0]) // self.processes
        return tuple(array[self.process * rows :][:rows] for array in batch)

    def synchronize(self, model):
        """Gives a model the weights of the first process."""

    def largest(self, number):
        """The largest of the numbers (int) that the processes pass, all of which must call this."""
        return number


class _Mirrored(Strategy):
    """Both of TensorFlow's; Keras gives every replica its rows of a whole batch."""

    def __init__(self, several_processes):
        tasks, own = _tasks() if several_processes else ([None], None)
        self._strategy = _tensorflow_strategy(several_processes)
        replicas = self._strategy.num_replicas_in_sync
        super().__init__(replicas, len(tasks), tasks.index(own), scope=self._strategy.scope)

    def largest(self, number):
        if self.processes == 1:
            return number
        import tensorflow as tf

        values = self._strategy.experimental_distribute_values_from_function(lambda context: tf.constant([number]))
        return int(max(self._strategy.gather(values, axis=0).numpy()))


@functools.cache  # two of a process would take each other's messages for their own
def _tensorflow_strategy(several_processes):
    import tensorflow as tf

    if several_processes:
        return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def _tasks():
    """The processes that `TF_CONFIG` names, the first one first, and this one."""
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    tasks = [(kind, i) for kind in ("chief", "worker") for i in range(len(config.get("cluster", {}).get(kind, ())))]
    own = config.get("task", {})
    own = own.get("type"), int(own.get("index", 0))
    if own not in tasks:
        raise ValueError(
            "The strategy 'multiworker' needs TF_CONFIG in every process: set it to "
            '{"cluster": {"worker": ["HOST:PORT", "HOST:PORT"]}, "task": {"type": "worker", "index": 0}}, with the '
            f"index of the process. Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}."
        )
    return tasks, own


class _DataParallel(Strategy):
    """Both of JAX's; a process puts its own rows on its devices."""

    def __init__(self, shares_tables, model_devices):
        import jax

        if os.environ.get(JAX_PROCESSES) and not jax.distributed.is_initialized():
            keras.distribution.initialize()
        devices = jax.device_count()
        model_devices = (model_devices or devices) if shares_tables else 1
        if shares_tables and (devices % model_devices or jax.process_count() > 1):
            raise ValueError(
                "The strategy 'model_parallel' needs one process, and groups of devices that divide all of them. "
                f"Received: groups of {model_devices}, {devices} devices in {jax.process_count()} processes."
            )
        mesh = keras.distribution.DeviceMesh((devices // model_devices, model_devices), (AXIS, "model"))
        layouts = keras.distribution.LayoutMap(mesh)
        if shares_tables:
            layouts[TABLES] = ("model", None)
        distribution = _SharedTables(layout_map=layouts, batch_dim_name=AXIS, auto_shard_dataset=False)
        processes = jax.process_count(), jax.process_index()
        super().__init__(devices // model_devices, *processes, own_rows=True, scope=distribution.scope)

    def largest(self, number):
        if self.processes == 1:
            return number
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.array(number)).max())


class _SharedTables(keras.distribution.ModelParallel):
    def get_variable_layout(self, variable):
        layout, devices = super().get_variable_layout(variable), self.device_mesh.shape[1]
        if layout.axes[:1] == ("model",) and variable.shape[0] % devices:
            raise ValueError(
                "The strategy 'model_parallel' needs bands of which each device has as many words: choose such cutoffs "
                f"and a vocabulary of such a size, or fewer devices. Received: {variable.shape[0]} words in "
                f"{variable.path}, {devices} devices that share them."
            )
        return layout


class _Ddp(Strategy):
    def __init__(self):
        import torch

        if "RANK" not in os.environ:
            raise ValueError(
                "The strategy 'ddp' needs a process for each device: launch them by "
                "`torchrun --nproc_per_node=DEVICES -m trainers.train ...`. Received: no RANK in the environment."
            )
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl" if cuda else "gloo")
        processes = torch.distributed.get_world_size()
        super().__init__(processes, processes, torch.distributed.get_rank(), own_rows=True)

    def synchronize(self, model):
        import torch

        with torch.no_grad():
            for variable in model.variables:
                torch.distributed.broadcast(variable.value, 0)

    def largest(self, number):
        import torch

        found = torch.tensor(number, device="cuda" if torch.cuda.is_available() else "cpu")
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
        return int(found)


def _check_alone(backend):
    """Raises a ValueError in a process that was launched as one of several, which would train beside each other."""
    variable, strategy = {
        "tensorflow": ("TF_CONFIG", "multiworker"),
        "jax": (JAX_PROCESSES, "data_parallel"),
        "torch": ("WORLD_SIZE", "ddp"),
    }[backend]
    value = os.environ.get(variable)
    if value and (len(_tasks()[0]) if variable == "TF_CONFIG" else int(value)) > 1:
        raise ValueError(
            f"This is one of several processes, which would train side by side: pass the strategy {strategy!r}. "
            f"Received: 'none', and {variable}={value} in the environment."
        )
