"""Whether the backend computes on an accelerator."""

import pytest

from keras_adaptive.backend import accelerator
from keras_adaptive.backend.compiled import compiled
from tests.support.backends import BACKEND


@pytest.fixture
def on_accelerator():
    """Returns the function without its cache, as at the start of a process."""
    return accelerator.on_accelerator.__wrapped__


def test_the_answer_is_the_same_while_a_function_is_traced(on_accelerator):
    answers = []
    compiled(lambda: answers.append(on_accelerator()), [])()
    assert set(answers) == {on_accelerator()} == {accelerator.on_accelerator()}


def test_the_backend_is_asked_for_its_devices(on_accelerator, monkeypatch):
    monkeypatch.delenv("KERAS_TORCH_DEVICE", raising=False)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        device = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
        monkeypatch.setattr(tf.config, "get_visible_devices", lambda: [device])
    elif BACKEND == "jax":
        monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    else:
        monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    assert on_accelerator()


@pytest.mark.skipif(BACKEND != "torch", reason="a variable of Keras for torch")
def test_the_device_that_the_user_chose_for_torch(on_accelerator, monkeypatch):
    for name, expected in {"cpu": False, "cpu:0": False, "cuda": True, "mps": True}.items():
        monkeypatch.setenv("KERAS_TORCH_DEVICE", name)
        assert on_accelerator() is expected
