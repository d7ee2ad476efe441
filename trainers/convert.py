"""Converts a published language model to a run folder for trainers.evaluate, trainers.score and trainers.generate.

python -m trainers.convert --checkpoint=model.pt --dictionary=dict.txt --run_dir=runs/published
python -m trainers.convert --checkpoint=transfo-xl-wt103 --run_dir=runs/published

A file is a `transformer_lm` of fairseq, of any architecture. A folder is a Transformer-XL in the form of Hugging Face:
config.json, pytorch_model.bin or model.safetensors, and the vocabulary. Evaluation needs a corpus with the words of the
model:

python -m trainers.prepare --source=wikitext-103 --dictionary=runs/published/vocabulary.txt --data_dir=data/published

The models of ALiBi's program need --positions=alibi, since their files do not say that they have linear biases.
"""

import os

from absl import flags

from keras_adaptive import transfo_xl
from keras_adaptive.data import Vocabulary, load_corpus
from keras_adaptive.fairseq import build_language_model, read_checkpoint
from keras_adaptive.fairseq.options import resolve
from keras_adaptive.files import complete_or_absent
from keras_adaptive.models.constructors import POSITIONS
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_path("checkpoint", None, "Checkpoint of the model: a model.pt, or a folder.", required=True)
    dictionary = "The dict.txt of the model, which fairseq's models need; by default the vocabulary in the folder."
    command_line.define_path("dictionary", None, dictionary)
    command_line.define_path("run_dir", None, "Folder of the run to write.", required=True)
    flags.DEFINE_enum("positions", None, POSITIONS, "Positions of the model; by default those that the file names.")
    command_line.define_path("data_dir", None, "Corpus for trainers.evaluate, which also has a flag for it.")


def main():
    RunFolder(FLAGS.run_dir).check_empty()
    settings = {"checkpoint": os.path.abspath(FLAGS.checkpoint)}
    if FLAGS.data_dir:
        settings["data_dir"] = os.path.abspath(FLAGS.data_dir)
    read = of_transfo_xl if transfo_xl.is_checkpoint(FLAGS.checkpoint) else of_fairseq
    model, vocabulary, note = read()
    settings["length"] = model.trained_length
    metadata = {
        "source": settings["checkpoint"],
        "tokenizer": "whitespace",
        "unit": "word",
        "vocabulary": {"size": len(vocabulary), "sha256": vocabulary.sha256},
    }
    with complete_or_absent(FLAGS.run_dir) as folder:
        flags_text = "".join(f"--{name}={value}\n" for name, value in settings.items())
        RunFolder(folder).write(flags_text, vocabulary, metadata)
        model.save(folder / "best.keras")
    print(f"Wrote {FLAGS.run_dir}: {model.count_params():,} parameters, {len(vocabulary):,} words")
    if note:
        print(note)


def of_fairseq():
    """Returns the model, its vocabulary and what the user should know of it, or `None`."""
    if not FLAGS.dictionary:
        raise ValueError("A model of fairseq needs its dict.txt: pass --dictionary. Received: --dictionary=None.")
    vocabulary = Vocabulary.load(FLAGS.dictionary)
    check_corpus(vocabulary, FLAGS.dictionary)  # before the model is read
    checkpoint = read_checkpoint(FLAGS.checkpoint)
    began = "It was trained with add_bos_token: lines began with <s>. The programs begin them after </s>."
    note = began if resolve(checkpoint, FLAGS.positions).get("add_bos_token") else None
    return build_language_model(checkpoint, vocabulary, FLAGS.positions), vocabulary, note


def of_transfo_xl():
    """Returns the model, its vocabulary and `None`."""
    if FLAGS.positions:
        raise ValueError(
            "A Transformer-XL has positions of its own: leave out --positions. "
            f"Received: --positions={FLAGS.positions}."
        )
    model, vocabulary = transfo_xl.load_language_model(FLAGS.checkpoint, FLAGS.dictionary)
    check_corpus(vocabulary, "the vocabulary.txt of a run converted without --data_dir")
    return model, vocabulary, None


def check_corpus(vocabulary, dictionary):
    """Raises a ValueError if the corpus has another vocabulary than the model."""
    if FLAGS.data_dir and load_corpus(FLAGS.data_dir).vocabulary.sha256 != vocabulary.sha256:
        raise ValueError(
            f"{FLAGS.data_dir} has another vocabulary than the model: make a corpus by "
            f"`python -m trainers.prepare` with --dictionary, {dictionary}."
        )


if __name__ == "__main__":
    command_line.run(main, define_flags)
