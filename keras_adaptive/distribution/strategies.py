import os

import keras

from keras_adaptive.distribution.data_parallel import JAX_PROCESSES, DataParallel
from keras_adaptive.distribution.ddp import Ddp
from keras_adaptive.distribution.mirrored import Mirrored, tasks_of_environment
from keras_adaptive.distribution.strategy import Strategy

BACKENDS = {
    "mirrored": "tensorflow",
    "multiworker": "tensorflow",
    "data_parallel": "jax",
    "model_parallel": "jax",
    "ddp": "torch",
}


def start(name="none", model_devices=0):
    """Starts distributed training and returns its `Strategy`.

    It must be called before anything else that uses the backend. The update is the same under every strategy and on
    one device: a `LanguageModel` sums the number of targets, the loss and the gradients over all replicas, clips the
    sum and takes the same step in each replica. Each replica draws its own dropout. Only rounding depends on how the
    rows are divided.

    - `none`: one device.
    - `mirrored` (TensorFlow): `tf.distribute.MirroredStrategy`, all GPUs of this process, or all its CPU devices.
    - `multiworker` (TensorFlow): `tf.distribute.MultiWorkerMirroredStrategy`, processes named in `TF_CONFIG`.
    - `data_parallel` (JAX): all devices, of one process, or of several that `keras.distribution.initialize` joins when
      `KERAS_DISTRIBUTION_NUM_PROCESSES` is set.
    - `model_parallel` (JAX): as `data_parallel`, in one process. Groups of `model_devices` divide the rows of the word
      tables among themselves, with their gradients and optimizer slots.
    - `ddp` (torch): one process for each device, launched by `torchrun`. It uses the `all_reduce` of
      `torch.distributed`, once per update and dtype, on the summed gradients, and its broadcast of the weights of
      process 0 at the start. `torch.nn.parallel.DistributedDataParallel` itself would average the gradients of each
      process, which is a mean of means, and exchange them once per micro-batch.

    Args:
        name: Name of the strategy.
        model_devices: Number of devices that share one copy of the tables under `model_parallel`; 0 for all.

    Raises:
        ValueError: If the strategy belongs to another backend, if its launcher (`TF_CONFIG`, `torchrun`) has not
            prepared it, if it is `none` although a launcher has, or if the devices do not divide.
    """
    backend = keras.config.backend()
    if name == "none":
        _check_alone()
        return Strategy()
    if name not in BACKENDS:
        raise ValueError(f"The strategy must be one of {['none', *BACKENDS]}. Received: {name!r}.")
    if BACKENDS[name] != backend:
        own = [other for other in BACKENDS if BACKENDS[other] == backend]
        raise ValueError(
            f"The strategy {name!r} is one of {BACKENDS[name]}: run with KERAS_BACKEND={BACKENDS[name]}, or use one "
            f"of {own}. Received: KERAS_BACKEND={backend}."
        )
    if name == "ddp":
        return Ddp()
    if backend == "jax":
        return DataParallel(name == "model_parallel", model_devices)
    return Mirrored(name == "multiworker")


def launched_processes():
    """Returns the number of processes that a launcher has started together, by the environment of this process."""
    variable, _ = _launcher()
    value = os.environ.get(variable)
    if not value:
        return 1
    return len(tasks_of_environment()[0]) if variable == "TF_CONFIG" else int(value)


def _launcher():
    """Returns the variable by which launchers prepare processes of this backend, and the strategy of these."""
    return {
        "tensorflow": ("TF_CONFIG", "multiworker"),
        "jax": (JAX_PROCESSES, "data_parallel"),
        "torch": ("WORLD_SIZE", "ddp"),
    }[keras.config.backend()]


def _check_alone():
    """Raises a ValueError in a process that was launched as one of several."""
    if launched_processes() > 1:
        variable, strategy = _launcher()
        raise ValueError(
            f"This is one of several processes, which would train side by side: pass the strategy {strategy!r}. "
            f"Received: 'none', and {variable}={os.environ[variable]} in the environment."
        )
