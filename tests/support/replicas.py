"""One replica, or all of one process, of a tiny training: what it came to, as one line of JSON on stdout.

    python -m tests.support.replicas STRATEGY DEVICES MICRO_BATCHES [MODEL_DEVICES [FLOAT16]]

`tests/distribution/test_strategies.py` compares it with one device. All of a strategy is asked in one process,
since compiling and starting take long.
"""

import json
import sys

import numpy as np

from scripts.benchmarks.virtual_devices import make_devices

# Rows of text, rows of sentences with padding of all lengths, one update without finite gradients, and too few rows.
GOOD = [("blocks", 8, 0), ("sentences", 8, 1), ("blocks", 8, 2), ("sentences", 7, 3), ("sentences", 5, 4)]
BAD = ("nan", 8, 5)
FLOAT16_UPDATES = 19
SIZES = {"vocabulary_size": 24, "cutoffs": (8,)}  # bands of even numbers of words, which two devices can share


def main(name, devices, micro_batches, model_devices=0, with_float16=True):
    make_devices(devices)
    from keras_adaptive import distribution
    from tests.support.backends import use_graph_optimizer

    use_graph_optimizer(False)

    strategy = distribution.start(name, model_devices)
    with strategy.scope():
        found = {
            **trained(strategy, micro_batches),
            "masks": masks(strategy),
            "streams": streams(strategy, micro_batches),
            "largest": [strategy.all_reduce_max(strategy.process), strategy.all_reduce_max(-strategy.process)],
        }
        if with_float16:
            found["float16"] = float16(strategy)
    numbers = {"replicas": strategy.replicas, "processes": strategy.processes, "process": strategy.process}
    print(json.dumps({**numbers, **found}), flush=True)


def update(kind, rows, seed):
    """(tokens, targets, weights) of one update."""
    from tests.support.tiny import batch

    tokens, targets, weights = batch(rows, seed)
    if kind == "blocks":
        weights = np.ones_like(weights)
    if kind == "nan":
        weights[2, 0] = np.nan
    return tokens, targets, weights


def trained(strategy, micro_batches, data=(*GOOD[:3], BAD, *GOOD[3:]), eagerly=False):
    """Returns weights, logs and validation after five updates of NAG, clipped to 0.1, and a skipped one."""
    import keras

    from keras_adaptive.callbacks import backup
    from keras_adaptive.optimizers import NAG
    from tests.support.tiny import language_model

    model = language_model(**SIZES)
    model.word_output.class_table.regularizer = keras.regularizers.L2(0.3)  # counts once, not once per replica
    model.compile(NAG(1.0, momentum=0.9, global_clipnorm=0.1), micro_batches=micro_batches, run_eagerly=eagerly)
    if strategy.process and keras.config.backend() == "torch":  # the engines of the others see to the first weights
        model.set_weights([0 * weight for weight in model.get_weights()])
    strategy.synchronize(model)
    batches = [update(*one) for one in data]
    history = model.fit(
        strategy.shard(batches, micro_batches), steps_per_epoch=len(batches), shuffle=False, verbose=0
    ).history
    valid = strategy.shard([update(*GOOD[1]), update(*GOOD[4])])
    validated = model.evaluate(valid, steps=2, verbose=0, return_dict=True)
    momentums = model.optimizer.momentums[: len(model.word_input.tables)]
    groups = backup.variables(model)
    before = {name: [host(one) for one in groups[name]] for name in groups}
    for name in groups:  # as a checkpoint that is restored
        backup.assign(groups[name], before[name])
    same = all(np.array_equal(host(one), old) for name in groups for one, old in zip(groups[name], before[name]))
    return {
        "weights": [host(weight).tolist() for weight in model.trainable_variables],
        "logs": {name: values[-1] for name, values in history.items()},
        "validated": validated,
        "tokens": float(host(model.loss_tracker.count)),
        "iterations": int(host(model.optimizer.iterations)),
        "restored": same,
        "rows": [rows_on_a_device(table) for table in (*model.word_output.tables, *momentums)],
    }


def streams(strategy, micro_batches):
    """Weights, and the state of 8 streams, after four updates of the rows that are read; texts continue one another.

    The loss is sampled: all replicas must draw the same noise.
    """
    import keras

    from keras_adaptive.layers import LSTMDecoder, SampledSoftmax
    from tests.support.streams import BATCHES, batches, stream_model
    from tests.support.tiny import VOCABULARY

    class Counting(LSTMDecoder):
        """An LSTM that counts tokens, since a state may hold integers."""

        def initial_state(self, batch_size, length=None):
            return [super().initial_state(batch_size, length), keras.ops.zeros((batch_size,), "int32")]

        def step(self, x, state, training=False):
            y, carried = super().step(x, state[0], training)
            return y, [carried, state[1] + x.shape[1]]

    body = Counting(1, 8, 8, penalties=(2.0, 1.0))
    model = stream_model(body, SampledSoftmax(VOCABULARY, num_samples=5, seed=1))
    optimizer = keras.optimizers.Adagrad(0.1, global_clipnorm=0.5)
    model.compile(optimizer, micro_batches=micro_batches, stream_rows=8)
    strategy.synchronize(model)
    data = strategy.shard(batches(rows=8), micro_batches)
    model.fit(data, steps_per_epoch=BATCHES, shuffle=False, verbose=0)
    found = model.evaluate(strategy.shard(batches(1, rows=8)), steps=BATCHES, verbose=0, return_dict=True)
    others = [*optimizer.variables, *model.train_streams.variables, *model.test_streams.variables]
    return {"weights": [host(one).tolist() for one in [*model.trainable_variables, *others]], "loss": found["loss"]}


def host(variable):
    import keras

    return np.array(keras.ops.convert_to_numpy(variable))


def rows_on_a_device(variable):
    """Returns the number of rows of a table on a device; JAX may shard the table."""
    shards = getattr(variable.value, "addressable_shards", None)
    return shards[0].data.shape[0] if shards else variable.shape[0]


def masks(strategy):
    """Returns how many of 64 numbers some replicas drop and others keep."""
    from keras import ops

    from keras_adaptive.backend.replicas import sum_over_replicas
    from keras_adaptive.models import Dropout
    from tests.support.tiny import language_model

    model = language_model(**SIZES, dropout=Dropout(tail=0.5))
    strategy.synchronize(model)  # the seeds too, which otherwise differ between processes by themselves

    def dropped(data):
        kept = sum_over_replicas(model.word_output._drop_tail(ops.ones([64]), training=True))
        some = ops.logical_and(kept > 0, kept < 2 * strategy.replicas)
        return {"some": ops.sum(ops.cast(some, "float32"))}

    model.compile("sgd")
    model._test = dropped  # which evaluation calls in every replica
    return model.evaluate(strategy.shard([update(*GOOD[0])]), steps=1, verbose=0, return_dict=True)["some"]


def float16(strategy, updates=FLOAT16_UPDATES):
    """The updates lost to a loss scale that is far too large, and the scale that is left."""
    import keras

    from keras_adaptive.optimizers import NAG
    from tests.support.tiny import language_model

    model = language_model(**SIZES, dtype="mixed_float16")
    inner = NAG(0.5, momentum=0.5, global_clipnorm=1.0)
    model.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**24))
    strategy.synchronize(model)
    data = strategy.shard(update(*GOOD[1]) for _ in range(updates))
    history = model.fit(data, steps_per_epoch=updates, shuffle=False, verbose=0).history
    return {
        "skipped": history["skipped"][-1],
        "scale": float(host(model.optimizer.dynamic_scale)),
        "weights": [host(weight).tolist() for weight in model.trainable_variables],
    }


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
