"""Exports a trained run as a SavedModel, which takes text, or as a folder for the package transformers.

A SavedModel needs only TensorFlow, and its export too. The folder for transformers needs only PyTorch, and any backend
can write it. The run may have been trained on any backend.

python -m trainers.export --run_dir=runs/quickstart --export_dir=exports/quickstart/1
python -m trainers.export --run_dir=runs/quickstart --export_dir=exports/quickstart --format=huggingface
"""

import importlib.util
import os

from absl import flags

from trainers.support import command_line

FLAGS = flags.FLAGS
FORMATS = {
    "saved_model": "a SavedModel for TensorFlow",
    "huggingface": "PyTorch modules, safetensors and a fast tokenizer for transformers",
}
OF_SAVED_MODEL = ("max_length", "context")  # flags


def define_flags():
    command_line.define_path("run_dir", None, "Folder of a trained run.", required=True)
    command_line.define_path(
        "export_dir", None, "New or empty folder to write. Servers need NAME/VERSION.", required=True
    )
    flags.DEFINE_enum("format", "saved_model", FORMATS, f"Format: {'; '.join(map(': '.join, FORMATS.items()))}.")
    flags.DEFINE_integer("max_length", 2048, "Largest number of tokens in a line.", 1, 2**31 - 1)
    flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Type of the weights and of the matrix products.")
    command_line.define_reading()
    flags.DEFINE_enum("model", "best", ["best", "last"], "Model of the run to export.")


def main():
    if FLAGS.format == "saved_model":
        if importlib.util.find_spec("tensorflow") is None:
            raise ModuleNotFoundError('A SavedModel needs TensorFlow: pip install "keras_adaptive[tensorflow]".')
        os.environ["KERAS_BACKEND"] = "tensorflow"  # before Keras is imported
    from trainers.experiments.run_folder import RunFolder

    run = RunFolder(FLAGS.run_dir)
    model = run.model(FLAGS.model)
    (save_for_transformers if FLAGS.format == "huggingface" else save_for_tensorflow)(run, model)
    print(f"Exported {model.count_params():,} parameters in {FLAGS.dtype} to {FLAGS.export_dir}")


def save_for_tensorflow(run, model):
    from keras_adaptive.export import export_saved_model

    codec = run.codec
    text = (codec.vocabulary, FLAGS.export_dir, codec.tokenizer, codec.subwords)
    export_saved_model(model, *text, FLAGS.max_length, FLAGS.dtype, window=FLAGS.window, context=FLAGS.context)


def save_for_transformers(run, model):
    from keras_adaptive.export.huggingface import export_huggingface

    for name in OF_SAVED_MODEL:
        if FLAGS[name].present:
            raise ValueError(f"--{name} belongs to --format=saved_model: omit it. Received: --format={FLAGS.format}.")
    options = {"dtype": FLAGS.dtype, "window": FLAGS.window, "facts": facts_of(run)}
    export_huggingface(model, run.codec, FLAGS.export_dir, **options)


def facts_of(run):
    """Returns lines of the model card: the name of the run, its text, and the perplexities of its validation."""
    from keras_adaptive.files import read_json_lines

    facts, log = {"name": run.path.resolve().name}, run.path / "log.jsonl"
    records = [record for record in read_json_lines(log) if "val_loss" in record] if log.is_file() else []
    if records:
        chosen = min(records, key=lambda record: record["val_loss"]) if FLAGS.model == "best" else records[-1]
        facts["validation"] = f"perplexity {chosen['val_perplexity']:.2f} per {run.codec.unit}"
        facts["training"] = f"{chosen['update']:,} updates"
    return facts


if __name__ == "__main__":
    command_line.run(main, define_flags)
