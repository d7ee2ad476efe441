"""A subclassed model with a loss of its own builds its output by passing the hidden states through it."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveSoftmax, LinearCrossEntropy, WordEmbedding
from tests.support.backends import numpy

SIZE, DIM = 12, 4


OUTPUTS = {  # name: (the layer, the number of its weights)
    "bands": (lambda: AdaptiveSoftmax(SIZE, (5,), factor=2), 4),
    "a layer of Keras": (lambda: LinearCrossEntropy(tied_to=keras.layers.Dense(SIZE)), 2),
}


class Own(keras.Model):
    def __init__(self, softmax):
        super().__init__()
        self.embedding = WordEmbedding(SIZE, DIM)
        self.softmax = softmax

    def call(self, ids):
        return self.softmax(self.embedding(ids), return_hidden=True)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return ops.mean(self.softmax.nll(y_pred, y))


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_weight_is_trained(name):
    make, weights = OUTPUTS[name]
    model, ids = Own(make()), np.arange(SIZE, dtype="int32").reshape(2, -1)
    model.compile(keras.optimizers.SGD(1.0))
    losses = model.fit(ids, ids, epochs=2, verbose=0).history["loss"]
    after = np.mean(numpy(model.softmax.nll(model(ids), ids)))
    assert losses[0] > losses[1] > after
    assert len(model.trainable_variables) == 1 + weights  # a layer that the optimizer does not know would be an error
