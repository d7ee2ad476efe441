"""Prints the words whose vectors are nearest to those of any words, which the model may never have seen.

The run must read words by their bytes (--input=char_cnn). The numbers are cosines. Table 4 of Jozefowicz et al. (2016)
is such a table, of words outside the vocabulary.

python -m trainers.neighbors --run_dir=runs/cnn incerdible www.a.com 7546 townhal1 komarski
"""

from absl import flags

from keras_adaptive.text import TextModel
from trainers import command_line
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("run_dir", None, "Folder of a trained run.", required=True)
    flags.DEFINE_integer("k", 3, "Neighbors of each word.", 1, 1000)
    flags.DEFINE_enum("model", "best", ["best", "last"], "Which of the run's models.")


def main(*words):
    run = RunFolder(FLAGS.run_dir)
    model = run.model(FLAGS.model)
    text = TextModel(model, run.codec)
    if not text.reads_bytes:
        raise ValueError(
            f"{run.path} must be a run of --input=char_cnn, which has vectors for words outside the vocabulary. "
            f"Received: one of a {type(model.word_input).__name__}."
        )
    print(*table(words, text.neighbors(words, FLAGS.k), text.vocabulary), sep="\n")


def table(words, neighbors, vocabulary):
    """Returns lines of text: each word, marked if the vocabulary has it, and its neighbors with their cosines."""
    rows = [["word", *(f"top-{place + 1}" for place in range(FLAGS.k))]]
    for word, pairs in zip(words, neighbors):
        shown = [f"{neighbor} {cosine:.3f}" for neighbor, cosine in pairs]  # fewer, of a small vocabulary
        rows.append([f"{word} (known)" if word in vocabulary else word, *shown, *[""] * (FLAGS.k - len(shown))])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


if __name__ == "__main__":
    command_line.run(main, define_flags, paths="WORD, in the vocabulary or not")
