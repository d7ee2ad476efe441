"""Prints the words with the nearest vectors to given words.

A run that reads words by their bytes (--input=char_cnn) has vectors even for words outside its vocabulary. The numbers
are cosine similarities. Table 4 of Jozefowicz et al. 2016 is such a table for words outside the vocabulary.

python -m trainers.neighbors --run_dir=runs/cnn incerdible www.a.com 7546 townhal1 komarski
"""

from absl import flags

from keras_adaptive.text import TextModel
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line
from trainers.support.tables import aligned

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_path("run_dir", None, "Folder of a trained run.", required=True)
    flags.DEFINE_integer("k", 3, "Number of neighbors of each word.", 1, 1000)
    flags.DEFINE_enum("model", "best", ["best", "last"], "Model of the run to use.")


def main(*words):
    run = RunFolder(FLAGS.run_dir)
    text = TextModel(run.model(FLAGS.model), run.codec)
    print(*table(words, text.neighbors(words, FLAGS.k), text.vocabulary), sep="\n")


def table(words, neighbors, vocabulary):
    """Returns the words, marked if they are in the vocabulary, and their neighbors with cosines, as lines of text."""
    rows = [["word", *(f"top-{place + 1}" for place in range(FLAGS.k))]]
    for word, pairs in zip(words, neighbors):
        shown = [f"{neighbor} {cosine:.3f}" for neighbor, cosine in pairs]  # a small vocabulary has fewer
        rows.append([f"{word} (known)" if word in vocabulary else word, *shown, *[""] * (FLAGS.k - len(shown))])
    return aligned(rows, str.ljust)


if __name__ == "__main__":
    command_line.run(main, define_flags, paths="WORD, in the vocabulary or not")
