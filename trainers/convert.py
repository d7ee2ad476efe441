"""Converts a published language model to a run folder for trainers.evaluate, trainers.score and trainers.generate.

python -m trainers.convert --checkpoint=model.pt --dictionary=dict.txt --run_dir=runs/published

The model must be a `transformer_lm` of fairseq, of any architecture. Evaluation needs a corpus with its vocabulary:

python -m trainers.prepare --source=wikitext-103 --dictionary=dict.txt --data_dir=data/published

The models of ALiBi's program need --positions=alibi, since their files do not say that they have linear biases.
"""

import os

from absl import flags

from keras_adaptive.data import Vocabulary, load_corpus
from keras_adaptive.fairseq import build_language_model, read_checkpoint
from keras_adaptive.fairseq.options import resolve
from keras_adaptive.files import complete_or_absent
from keras_adaptive.models.constructors import POSITIONS
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_path("checkpoint", None, "Checkpoint of the model, such as model.pt.", required=True)
    command_line.define_path("dictionary", None, "The dict.txt of the model.", required=True)
    command_line.define_path("run_dir", None, "Folder of the run to write.", required=True)
    flags.DEFINE_enum("positions", None, POSITIONS, "Positions of the model; by default those that the file names.")
    command_line.define_path("data_dir", None, "Corpus for trainers.evaluate, which also has a flag for it.")


def main():
    RunFolder(FLAGS.run_dir).check_empty()
    vocabulary = Vocabulary.load(FLAGS.dictionary)
    settings = {"checkpoint": os.path.abspath(FLAGS.checkpoint)}
    if FLAGS.data_dir:
        check_corpus(vocabulary)
        settings["data_dir"] = os.path.abspath(FLAGS.data_dir)
    checkpoint = read_checkpoint(FLAGS.checkpoint)
    options = resolve(checkpoint, FLAGS.positions)
    model = build_language_model(checkpoint, vocabulary, FLAGS.positions)
    settings["length"] = int(options["tokens_per_sample"])
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
    if options.get("add_bos_token"):
        print("It was trained with add_bos_token: lines began with <s>. The programs begin them after </s>.")


def check_corpus(vocabulary):
    """Raises a ValueError if the corpus has another vocabulary than the model. The model is not read yet."""
    if load_corpus(FLAGS.data_dir).vocabulary.sha256 != vocabulary.sha256:
        raise ValueError(
            f"{FLAGS.data_dir} has another vocabulary than {FLAGS.dictionary}: make a corpus with "
            f"`python -m trainers.prepare --dictionary={FLAGS.dictionary}`."
        )


if __name__ == "__main__":
    command_line.run(main, define_flags)
