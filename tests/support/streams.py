"""A tiny model of streams and batches for it; as a program, a training that can be killed in mid-stream.

    python -m tests.support.streams KILL_AFTER FOLDER...

trains to the end in each folder in turn, from its newest checkpoint, and prints a digest of every variable; with
KILL_AFTER > 0 it kills itself after this number of updates.
"""

import hashlib
import json
import os
import signal
import sys

import numpy as np

from tests.support.tiny import VOCABULARY

ROWS, STEPS, BATCHES = 4, 3, 4


def stream_model(body=None, word_output=None, **kwargs):
    """The same weights on every backend; `body` in place of a `ToyBody`, `word_output` of an `AdaptiveSoftmax`."""
    from keras_adaptive.layers import AdaptiveSoftmax, WordEmbedding
    from keras_adaptive.models import LanguageModel
    from tests.support.toy_body import ToyBody
    from tests.support.weights import randomize

    softmax = word_output or AdaptiveSoftmax(VOCABULARY, (8,), factor=2)
    return randomize(LanguageModel(WordEmbedding(VOCABULARY, 8), body or ToyBody(8, **kwargs), softmax))


def text(seed=0, rows=ROWS):
    """Tokens and targets of all streams, (rows, BATCHES * STEPS) each."""
    stream = np.random.default_rng(seed).integers(0, VOCABULARY, (rows, BATCHES * STEPS + 1)).astype("int32")
    return stream[:, :-1], stream[:, 1:]


def batches(seed=0, rows=ROWS):
    """The same as batches: ((tokens, begins), targets, weights), of which the first begins every row."""
    tokens, targets = (np.split(array, BATCHES, axis=1) for array in text(seed, rows))
    weights = np.ones((rows, STEPS), "float32")
    return [((tokens[i], np.full(rows, i == 0)), targets[i], weights) for i in range(BATCHES)]


def train(folder, kill_after=0):
    """Trains to the end, from the newest checkpoint; returns the update it began with and digests of all variables."""
    import keras

    from keras_adaptive.callbacks import Backup
    from keras_adaptive.optimizers import NAG

    keras.utils.set_random_seed(1)
    if keras.config.backend() == "tensorflow":  # whose graphs otherwise sum in an order that changes
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    model = stream_model(dropout=0.3)
    model.compile(NAG(0.5, momentum=0.9, global_clipnorm=0.5), stream_rows=ROWS)
    saver = Backup(folder, every=2)
    saver.restore(model)
    begun = saver.update

    def kill(batch, logs=None):
        if kill_after and saver.update == kill_after:
            saver.wait()
            os.kill(os.getpid(), signal.SIGKILL)

    callbacks = [saver, keras.callbacks.LambdaCallback(on_train_batch_end=kill)]
    data = batches()[begun:]
    model.fit((one for one in data), steps_per_epoch=len(data), shuffle=False, verbose=0, callbacks=callbacks)
    variables = [*model.variables, *model.optimizer.variables]
    digests = [hashlib.sha256(keras.ops.convert_to_numpy(one).tobytes()).hexdigest() for one in variables]
    return {"from": begun, "variables": digests}


if __name__ == "__main__":
    for folder in sys.argv[2:]:
        print(json.dumps(train(folder, int(sys.argv[1]))), flush=True)
