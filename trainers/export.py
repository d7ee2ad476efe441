"""Exports a trained run as a SavedModel, which takes text, or as a folder for transformers or ONNX Runtime.

A SavedModel needs only TensorFlow, and its export too. The folder for transformers needs only PyTorch, the graphs for
ONNX Runtime need nothing else, and any backend can write them. The run may have been trained on any backend.

python -m trainers.export --run_dir=runs/quickstart --export_dir=exports/quickstart/1
python -m trainers.export --run_dir=runs/quickstart --export_dir=exports/quickstart --format=huggingface
python -m trainers.export --run_dir=runs/quickstart --export_dir=exports/quickstart --format=onnx --dtype=int8
"""

import importlib.util
import os
from collections.abc import Callable
from typing import NamedTuple

from absl import flags

from trainers.support import command_line

FLAGS = flags.FLAGS


class Format(NamedTuple):
    """A format: what it is for, the function that writes it, and the flags and the types of weights that it takes."""

    help: str
    save: Callable
    flags: tuple[str, ...]
    dtypes: tuple[str, ...]


def save_for_tensorflow(run, model):
    from keras_adaptive.export import export_saved_model

    codec = run.codec
    text = (codec.vocabulary, FLAGS.export_dir, codec.tokenizer, codec.subwords)
    export_saved_model(model, *text, FLAGS.max_length, FLAGS.dtype, window=FLAGS.window, context=FLAGS.context)


def save_for_transformers(run, model):
    from keras_adaptive.export.huggingface import export_huggingface

    options = {"dtype": FLAGS.dtype, "window": FLAGS.window, "facts": facts_of(run)}
    export_huggingface(model, run.codec, FLAGS.export_dir, **options)


def save_for_onnx(run, model):
    from keras_adaptive.export.onnx import export_onnx

    export_onnx(model, run.codec, FLAGS.export_dir, dtype=FLAGS.dtype)


def save_for_litert(run, model):
    from keras_adaptive.export.litert import export_litert

    options = {"dtype": FLAGS.dtype, "window": FLAGS.window, "context": FLAGS.context}
    export_litert(model, run.codec.vocabulary, FLAGS.export_dir, **options)


FORMATS = {
    "saved_model": Format(
        "a SavedModel for TensorFlow",
        save_for_tensorflow,
        ("max_length", "window", "context"),
        ("float32", "bfloat16"),
    ),
    "huggingface": Format(
        "PyTorch modules, safetensors and a fast tokenizer for transformers",
        save_for_transformers,
        ("window",),
        ("float32", "bfloat16"),
    ),
    "onnx": Format(
        "graphs from ids to log-probabilities for ONNX Runtime and sherpa-onnx",
        save_for_onnx,
        (),
        ("float32", "int8"),
    ),
    "litert": Format(
        "a step from word to word for LiteRT, on phones",
        save_for_litert,
        ("window", "context"),
        ("float32", "int8"),
    ),
}


def define_flags():
    command_line.define_path("run_dir", None, "Folder of a trained run.", required=True)
    command_line.define_path(
        "export_dir", None, "New or empty folder to write. Servers need NAME/VERSION.", required=True
    )
    helps = "; ".join(f"{name}: {format.help}" for name, format in FORMATS.items())
    flags.DEFINE_enum("format", "saved_model", FORMATS, f"Format: {helps}.")
    flags.DEFINE_integer("max_length", 2048, "Largest number of tokens in a line.", 1, 2**31 - 1)
    dtypes = sorted({dtype for format in FORMATS.values() for dtype in format.dtypes})
    flags.DEFINE_enum("dtype", "float32", dtypes, "Type of the weights and of the matrix products.")
    command_line.define_reading()
    flags.DEFINE_enum("model", "best", ["best", "last"], "Model of the run to export.")


def main():
    if FLAGS.format in ("saved_model", "litert"):
        if importlib.util.find_spec("tensorflow") is None:
            raise ModuleNotFoundError(
                f'--format={FLAGS.format} needs TensorFlow: pip install "keras_adaptive[tensorflow]".'
            )
        os.environ["KERAS_BACKEND"] = "tensorflow"  # before Keras is imported
    check_flags()
    from trainers.experiments.run_folder import RunFolder

    run = RunFolder(FLAGS.run_dir)
    model = run.model(FLAGS.model)
    FORMATS[FLAGS.format].save(run, model)
    print(f"Exported {model.count_params():,} parameters in {FLAGS.dtype} to {FLAGS.export_dir}")


def check_flags():
    """Raises a ValueError for a flag, or for a type of weights, that belongs to other formats."""
    chosen = FORMATS[FLAGS.format]
    for name in sorted({name for format in FORMATS.values() for name in format.flags} - set(chosen.flags)):
        if FLAGS[name].present:
            takers = " or ".join(format for format, about in FORMATS.items() if name in about.flags)
            raise ValueError(f"--{name} belongs to --format={takers}: omit it. Received: --format={FLAGS.format}.")
    if FLAGS.dtype not in chosen.dtypes:
        known = " or ".join(chosen.dtypes)
        raise ValueError(f"--format={FLAGS.format} must have --dtype={known}. Received: --dtype={FLAGS.dtype}.")


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
