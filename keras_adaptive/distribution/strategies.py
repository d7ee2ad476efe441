import math
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


def start(name: str = "none", model_devices: int = 0, timeout: float = 1800) -> Strategy:
    """Starts distributed training and returns its `Strategy`.

    Call it before anything else that uses the backend. An update is the same under every strategy and on one device: a
    `LanguageModel` sums the number of targets, the loss and the gradients over all replicas, clips the sum and takes
    the same step in each replica. Each replica draws its own dropout masks. Only rounding depends on how the rows are
    divided.

    - `none`: one device.
    - `mirrored` (TensorFlow): `tf.distribute.MirroredStrategy` on all GPUs of this process, or on all its CPU devices.
    - `multiworker` (TensorFlow): `tf.distribute.MultiWorkerMirroredStrategy` in the processes that `TF_CONFIG` names.
    - `data_parallel` (JAX): all devices of one process, or of several processes, which `keras.distribution.initialize`
      connects if `KERAS_DISTRIBUTION_NUM_PROCESSES` is set.
    - `model_parallel` (JAX): `data_parallel` in one process, where groups of `model_devices` devices shard the rows of
      the word tables, their gradients and their optimizer slots.
    - `ddp` (torch): one process per device, launched by `torchrun`. The summed gradients are exchanged by the
      `all_reduce` of `torch.distributed`, once per update and dtype, and the weights of process 0 are broadcast at the
      start. `torch.nn.parallel.DistributedDataParallel` is not used: it would average the gradients of the processes,
      which is a mean of means, and exchange them once per micro-batch.

    Args:
        name: Name of the strategy.
        model_devices: Number of devices that share one copy of the tables under `model_parallel`; 0 for all devices.
        timeout: Seconds for which a process of `ddp` waits for the others, at the start and in each sum, before it
            raises an error. JAX and TensorFlow notice a lost process by their own heartbeats. JAX allows 100 seconds
            without one. Call `jax.distributed.initialize(…, heartbeat_timeout_seconds=)` first for another time.
            TensorFlow has no public argument for it.

    Returns:
        The `Strategy`.

    Raises:
        ValueError: If the strategy belongs to another backend, if its launcher (`TF_CONFIG`, `torchrun`) has not
            prepared it, if it is `none` although a launcher has started this process, if `model_devices` does not
            divide the number of devices, or if `timeout` is not positive and finite.

    Example:

    ```python
    strategy = start("none")
    with strategy.scope():
        model = transformer_lm(50_000, num_blocks=6, cutoffs=(4_000, 16_000))
    strategy.synchronize(model)
    ```
    """
    if not 0 < timeout < math.inf:
        raise ValueError(f"`timeout` must be positive and finite. Received: timeout={timeout}.")
    backend = keras.config.backend()
    if name == "none":
        _check_alone()
        return Strategy()
    if name not in BACKENDS:
        raise ValueError(f"The strategy must be one of {['none', *BACKENDS]}. Received: {name!r}.")
    if BACKENDS[name] != backend:
        usable = [strategy for strategy in BACKENDS if BACKENDS[strategy] == backend]
        raise ValueError(
            f"The strategy {name!r} belongs to {BACKENDS[name]}: run with KERAS_BACKEND={BACKENDS[name]}, or use one "
            f"of {usable}. Received: KERAS_BACKEND={backend}."
        )
    if name == "ddp":
        return Ddp(timeout)
    if backend == "jax":
        return DataParallel(name == "model_parallel", model_devices)
    return Mirrored(name == "multiworker")


def launched_processes() -> int:
    """Returns the number of processes that a launcher has started, according to the environment of this process."""
    variable, _ = _launcher()
    value = os.environ.get(variable)
    if not value:
        return 1
    return len(tasks_of_environment()[0]) if variable == "TF_CONFIG" else int(value)


def _launcher():
    """Returns the environment variable that launchers of this backend set, and the strategy that uses it."""
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
            f"This is one of several processes, which would train independently: pass the strategy {strategy!r}. "
            f"Received: 'none', and {variable}={os.environ[variable]} in the environment."
        )
