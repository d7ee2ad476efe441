"""What a checkpoint costs training: how long it stands still, and what the writing beside it takes away.

    python scripts/benchmark_checkpoints.py --backend=torch --results=scripts/results/benchmarks/checkpoints_torch.json

Takes turns between some updates, the same updates with a checkpoint behind the first of them, the copy alone for which
training stands still, and a plain `model.save`, which training would have to wait for.
"""

import os
import tempfile

import numpy as np
from absl import app, flags

import benchmarking

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_enum("backend", "torch", ["tensorflow", "jax", "torch"], "Backend of Keras.")
    flags.DEFINE_integer("vocabulary_size", 50_000, "Words of the model.", lower_bound=1000)
    flags.DEFINE_integer("dim", 256, "Dimension of the hidden vectors.", lower_bound=8)
    flags.DEFINE_integer("rows", 16, "Blocks of an update.", lower_bound=1)
    flags.DEFINE_integer("length", 128, "Tokens of a block.", lower_bound=1)
    flags.DEFINE_integer("updates", 5, "Updates of a turn.", lower_bound=1)
    flags.DEFINE_integer("repeats", 10, "Turns.", lower_bound=1)
    flags.DEFINE_string("results", None, "JSON file to write.")


def candidates(folder):
    """The functions that take turns, and the number of parameters."""
    from keras_adaptive.callbacks import Backup
    from keras_adaptive.models import transformer_lm
    from keras_adaptive.optimizers import NAG

    size, dim = FLAGS.vocabulary_size, FLAGS.dim
    model = transformer_lm(size, dim=dim, num_blocks=4, num_heads=8, ffn_dim=4 * dim, cutoffs=(size // 12, size // 3))
    model.compile(NAG(1.0, momentum=0.99, global_clipnorm=0.1))
    text = np.random.default_rng(1).integers(4, size, (FLAGS.rows, FLAGS.length + 1)).astype("int32")
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


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    benchmarking.choose_backend(FLAGS.backend)
    with tempfile.TemporaryDirectory() as folder:
        functions, parameters = candidates(folder)
        seconds = benchmarking.in_turns(functions, FLAGS.repeats)
    times = {name: benchmarking.spread(values) for name, values in seconds.items()}
    rows = [[name, *(f"{1e3 * time[key]:.0f}" for key in ("median", "low", "high"))] for name, time in times.items()]
    benchmarking.print_table([f"{FLAGS.backend}, {parameters:,} parameters", "ms", "least", "most"], rows)
    names = ("backend", "vocabulary_size", "dim", "rows", "length", "updates")
    benchmarking.save(names, {"parameters": parameters}, candidates=times)


if __name__ == "__main__":
    define_flags()
    app.run(main)
