"""The step of a model."""

import keras
import numpy as np
import pytest

from keras_adaptive.backend.run_step import run_step
from tests.support.backends import BACKEND


@pytest.mark.skipif(BACKEND != "torch", reason="the other backends move batches themselves")
def test_a_batch_is_moved_to_the_device_of_keras():
    """Keras reads batches by a DataLoader of torch, whose tensors are on the CPU. The meta device stands for a GPU."""
    import torch

    batch = (torch.ones(2, 3, dtype=torch.int32), np.ones((2, 3), bool)), torch.zeros(2, 3), None
    with keras.device("meta"):
        (tokens, begins), targets, weights = run_step(None, lambda data: data, (batch,))
    assert {tokens.device.type, begins.device.type, targets.device.type} == {"meta"} and weights is None
