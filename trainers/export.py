"""Exports a trained run as a SavedModel, which takes text and needs only TensorFlow.

The run may have been trained on any backend; the program loads it on TensorFlow.

python -m trainers.export --run_dir=runs/quickstart --export_dir=exports/quickstart/1
"""

import importlib.util
import os

from absl import flags

from trainers.support import command_line

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_path("run_dir", None, "Folder of a trained run.", required=True)
    command_line.define_path(
        "export_dir", None, "New or empty folder to write. Servers need NAME/VERSION.", required=True
    )
    flags.DEFINE_integer("max_length", 2048, "Largest number of tokens in a line.", 1, 2**31 - 1)
    flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Type of the weights and of the matrix products.")
    command_line.define_reading()
    flags.DEFINE_enum("model", "best", ["best", "last"], "Model of the run to export.")


def main():
    if importlib.util.find_spec("tensorflow") is None:
        raise ModuleNotFoundError('An export needs TensorFlow: pip install "keras_adaptive[tensorflow]".')
    from keras_adaptive.export import export_saved_model
    from trainers.experiments.run_folder import RunFolder

    run = RunFolder(FLAGS.run_dir)
    model, codec = run.model(FLAGS.model), run.codec
    text = (codec.vocabulary, FLAGS.export_dir, codec.tokenizer, codec.subwords)
    export_saved_model(model, *text, FLAGS.max_length, FLAGS.dtype, window=FLAGS.window, context=FLAGS.context)
    print(f"Exported {model.count_params():,} parameters in {FLAGS.dtype} to {FLAGS.export_dir}")


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "tensorflow"  # before Keras is imported
    command_line.run(main, define_flags)
