"""Exports a trained run as a SavedModel, which takes text and needs TensorFlow alone.

The run may be of any backend; the program loads it on TensorFlow.

python -m trainers.export --run_dir=runs/quickstart --export_dir=exports/quickstart/1
"""

import os

from absl import flags

from trainers import command_line

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("run_dir", None, "Folder of a trained run.", required=True)
    flags.DEFINE_string(
        "export_dir", None, "Folder to write, new or empty. Servers expect NAME/VERSION.", required=True
    )
    flags.DEFINE_integer("max_length", 2048, "Tokens of the longest line to answer.", 1, 2**31 - 1)
    flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Type of the weights and of the matrix products.")
    flags.DEFINE_enum("model", "best", ["best", "last"], "Which of the run's models.")


def main():
    from keras_adaptive.export import export_saved_model
    from trainers.run_folder import RunFolder

    run = RunFolder(FLAGS.run_dir)
    model, codec = run.model(FLAGS.model), run.codec
    text = (codec.vocabulary, FLAGS.export_dir, codec.tokenizer, codec.subwords)
    export_saved_model(model, *text, FLAGS.max_length, FLAGS.dtype)
    print(f"Exported {model.count_params():,} parameters in {FLAGS.dtype} to {FLAGS.export_dir}")


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "tensorflow"  # before Keras is imported
    command_line.run(main, define_flags)
