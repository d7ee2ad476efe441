"""All outputs at once in a `WordModel`, and some in a functional model: one program in place of ten.

    python -m tests.support.several_outputs STRATEGY DEVICES FORM...

prints what a training of each form came to, as one line of JSON. `tests/distribution/test_forms.py` compares it with
one device. `tests/support/replicas.py` has the same for a `LanguageModel`.
"""

import contextlib
import functools
import json
import sys

import keras
from keras import ops

from keras_adaptive import distribution
from keras_adaptive.layers import (
    AdaptiveSoftmax,
    CharCNNSoftmax,
    CharLSTMSoftmax,
    Output,
    SampledSoftmax,
    WordEmbedding,
)
from keras_adaptive.losses import ImportanceSampling
from keras_adaptive.models import WordModel, without_logits
from scripts.benchmarks.virtual_devices import make_devices
from tests.support.backends import use_graph_optimizer
from tests.support.tiny import LENGTH, VOCABULARY, WORDS, batch
from tests.support.weights import randomize

DIM = 8
QUICK = 3  # outputs that compile quickly
SIZES = (8, 7)  # rows of the batches, which are filled to one shape, so that each step is compiled once


class Several(Output):
    """The mean of the losses of several outputs, which is a loss of each."""

    vocabulary_size, boundaries = VOCABULARY, (0, VOCABULARY)

    def __init__(self, outputs, **kwargs):
        super().__init__(**kwargs)
        self.outputs = outputs

    @property
    def tables(self):
        return [table for output in self.outputs for table in output.tables]

    def build(self, hidden_shape):
        for output in self.outputs:
            output.build(hidden_shape)
        self.built = True

    def training_loss(self, hidden, targets, weights=None, training=True):
        losses = (output.training_loss(hidden, targets, weights, training) for output in self.outputs)
        return sum(losses) / len(self.outputs)

    def compute_nll(self, x, targets):
        return sum(output.nll(x, targets) for output in self.outputs) / len(self.outputs)

    def compute_score(self, x, targets):
        return -self.compute_nll(x, targets), self.outputs[0].rank(x, targets)

    def compute_top_k(self, x, k):
        return self.outputs[0].top_k(x, k)


class Penalized(keras.layers.Dense):
    """Adds a loss when it is called, which replicas that take turns must not lose."""

    def call(self, inputs):
        self.add_loss(0.01 * ops.sum(ops.square(self.kernel)))
        return super().call(inputs)


def outputs(words):
    """Returns outputs of every kind, those first that compile quickly; the noise of all replicas is the same."""
    return [
        AdaptiveSoftmax(VOCABULARY, (), tied_to=words),
        AdaptiveSoftmax(VOCABULARY, (5,), factor=2, use_bias=True),
        SampledSoftmax(VOCABULARY, num_samples=5, seed=1, loss="nce"),
        CharCNNSoftmax(WORDS, ImportanceSampling(5, seed=2), correction_dim=2, char_dim=4, filters=(3, 4), max_bytes=8),
        CharLSTMSoftmax(WORDS, units=4, char_dim=4, max_bytes=8),
    ]


def functional():
    """A Keras model to which the outputs add their losses, and how a batch is handed to it.

    Outputs add it in one of two ways, that of `Output` and that of a softmax: `QUICK` of them suffice.
    """
    ids, targets, weights = (
        keras.Input((LENGTH,), dtype="int32"),
        keras.Input((LENGTH,), dtype="int32"),
        keras.Input((LENGTH,)),
    )
    words = WordEmbedding(VOCABULARY, DIM)
    hidden = Penalized(DIM, activation="tanh", kernel_regularizer="l2")(words(ids))
    tied, banded, sampled = outputs(words)[:QUICK]
    layers = Several([tied]), banded, sampled
    model = keras.Model([ids, targets, weights], [output(hidden, targets, weights) for output in layers])
    model.compile(keras.optimizers.SGD(0.3))
    return model, lambda *batch: (batch,)


def word_model(number=None):
    """A `WordModel` of some outputs, by default of all."""
    ids = keras.Input((LENGTH,), dtype="int32")
    words = WordEmbedding(VOCABULARY, DIM)
    hidden = Penalized(DIM, activation="tanh", kernel_regularizer="l2")(words(ids))
    model = WordModel(ids, hidden, word_output=Several(outputs(words)[:number]))
    model.compile(keras.optimizers.SGD(0.3, global_clipnorm=0.5), metrics=["accuracy"])
    return model, lambda *batch: batch


def task():
    """A model of Keras that ends in a `Dense`."""
    ids = keras.Input((LENGTH,), dtype="int32")
    hidden = Penalized(DIM, activation="tanh", kernel_regularizer="l2")(keras.layers.Embedding(VOCABULARY, DIM)(ids))
    model = without_logits(keras.Model(ids, keras.layers.Dense(VOCABULARY, name="head")(hidden)))
    model.compile(keras.optimizers.SGD(0.3, global_clipnorm=0.5), metrics=["accuracy"])
    return model, lambda *batch: batch


def sharded():
    """The scope of a model whose head is divided among two devices of JAX."""
    layouts = keras.distribution.LayoutMap(keras.distribution.DeviceMesh((1, 2), ("batch", "model")))
    layouts["head/kernel"], layouts["head/bias"] = (None, "model"), ("model",)
    return keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch").scope()


class Batches(keras.utils.PyDataset):
    """Batches in their order. Under TensorFlow's strategies, Keras leaves out batches of a generator."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def trained(strategy, make, eagerly=False):
    """The weights after the updates, and the logs of training and evaluation, of rows and weights that are uneven."""
    model, form = make()
    model.run_eagerly = eagerly
    randomize(model)
    strategy.synchronize(model)
    # Rows of weight 0 fill the last batch on one device too: Keras weighs the loss of a batch in its logs by its rows.
    filled = [distribution.Strategy(2).local_batch(batch(rows, seed)) for seed, rows in enumerate(SIZES)]
    data = Batches(list(strategy.shard(form(*arrays) for arrays in filled)))
    fitted = model.fit(data, shuffle=False, verbose=0).history
    evaluated = model.evaluate(data, verbose=0, return_dict=True)
    weights = [ops.convert_to_numpy(variable).tolist() for variable in model.trainable_variables]
    logs = {name: values[-1] for name, values in fitted.items()}
    return {"weights": weights, "logs": logs, "evaluated": {name: float(value) for name, value in evaluated.items()}}


FORMS = {
    "functional": functional,
    "word_model": word_model,
    "quick_word_model": functools.partial(word_model, QUICK),
    "task": task,
    "sharded": task,
}


def main(name, devices, *forms):
    make_devices(int(devices))
    use_graph_optimizer(False)
    strategy = distribution.start(name)
    with strategy.scope():
        results = {}
        for form in forms:
            with sharded() if form == "sharded" else contextlib.nullcontext():
                results[form] = trained(strategy, FORMS[form])
        print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
