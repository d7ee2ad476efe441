"""Measures the cost of a checkpoint: how long training waits for it, and how much writing slows training down.

    python -m scripts.benchmarks.checkpoints --backend=torch --results=scripts/results/benchmarks/checkpoints_torch.json

The program interleaves several updates, the same updates with a checkpoint after the first, the copy for which training
waits, and a plain `model.save`, for which training would have to wait.
"""

import os
import tempfile

import numpy as np
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS


def define_flags():
    common.define_flags(10, **{**common.BOOKS, "vocabulary_size": 50_000})
    flags.DEFINE_integer("rows", 16, "Number of blocks in an update.", lower_bound=1)
    flags.DEFINE_integer("length", 128, "Number of tokens in a block.", lower_bound=1)
    flags.DEFINE_integer("updates", 5, "Number of updates in a turn.", lower_bound=1)


def candidates(folder):
    """Returns the functions that take turns, and the number of parameters."""
    from keras_adaptive.callbacks import Backup
    from keras_adaptive.optimizers import NAG

    model = common.build()
    model.compile(NAG(1.0, momentum=0.99, global_clipnorm=0.1))
    text = np.random.default_rng(1).integers(4, FLAGS.vocabulary_size, (FLAGS.rows, FLAGS.length + 1)).astype("int32")
    backup = Backup(folder, keep=1)
    backup.set_model(model)

    def updates(number=FLAGS.updates):
        for _ in range(number):
            model.train_on_batch(text[:, :-1], text[:, 1:])

    def updates_and_checkpoint():
        updates(1)
        backup.save()
        updates(FLAGS.updates - 1)
        backup.wait()

    def save_model():
        model.save(os.path.join(folder, "model.keras"))

    updates(2)
    names = (f"{FLAGS.updates} updates", "and a checkpoint", "its copy", "model.save")
    return dict(zip(names, (updates, updates_and_checkpoint, backup.save, save_model))), model.count_params()


def main():
    with tempfile.TemporaryDirectory() as folder:
        functions, parameters = candidates(folder)
        times = common.times_of(functions)
    print(f"{FLAGS.backend}, {parameters:,} parameters")
    common.print_times(times)
    names = ("backend", *common.MODEL_FLAGS, "rows", "length", "updates")
    common.save(names, {"parameters": parameters}, candidates=times)


if __name__ == "__main__":
    common.run(main, define_flags)
