import functools
import json
import os

from keras_adaptive.distribution.strategy import Strategy


class Mirrored(Strategy):
    """Strategy of TensorFlow, in one process or several. Keras divides a whole batch among the replicas."""

    def __init__(self, several_processes):
        tasks, task = tasks_of_environment() if several_processes else ([None], None)
        self._strategy = _tensorflow_strategy(several_processes)
        replicas = self._strategy.num_replicas_in_sync
        super().__init__(replicas, len(tasks), tasks.index(task), scope=self._strategy.scope)

    def all_reduce_max(self, number):
        if self.processes == 1:
            return number
        import tensorflow as tf

        values = self._strategy.experimental_distribute_values_from_function(lambda context: tf.constant([number]))
        return int(max(self._strategy.gather(values, axis=0).numpy()))


@functools.cache  # the messages of two strategies in one process would be confused
def _tensorflow_strategy(several_processes):
    import tensorflow as tf

    if several_processes:
        return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def tasks_of_environment():
    """Returns the processes that `TF_CONFIG` names, process 0 first, and this process."""
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    tasks = [(kind, i) for kind in ("chief", "worker") for i in range(len(config.get("cluster", {}).get(kind, ())))]
    task = config.get("task", {})
    task = task.get("type"), int(task.get("index", 0))
    if task not in tasks:
        raise ValueError(
            "The strategy 'multiworker' needs TF_CONFIG in the environment of every process: set it to "
            '{"cluster": {"worker": ["HOST:PORT", "HOST:PORT"]}, "task": {"type": "worker", "index": 0}}, with the '
            f"index of the process. Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}."
        )
    return tasks, task
