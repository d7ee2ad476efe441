from keras_adaptive.backend import replicas
from tests.support.backends import BACKEND
from tests.support.refusals import refused


def test_processes_that_keras_does_not_join_are_refused(monkeypatch):
    """Keras' own loop joins the devices of one process, but no processes of torch and no workers of TensorFlow."""
    replicas.check_summed_by_keras("A layer")
    if BACKEND == "tensorflow":
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        monkeypatch.setattr(type(strategy), "num_replicas_in_sync", 2)
        monkeypatch.setattr(tf.distribute, "get_strategy", lambda: strategy)
    monkeypatch.setitem(replicas._COUNTS, BACKEND, lambda: 2)
    if BACKEND == "jax":
        replicas.check_summed_by_keras("A layer")
    else:
        message = f"^A layer cannot be .* under {BACKEND}: use a `WordModel` .*: 2 processes"
        refused(replicas.check_summed_by_keras, "A layer", match=message)
