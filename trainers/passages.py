"""Draws passages from a corpus of words for trainers.last_words, which predicts the last word of each.

A passage begins with a sentence and ends with the last word of a sentence, before its ., ! or ?. Control passages are
drawn from all such passages. In a passage with a broad context, the last word occurs at least twice before, but not
among the 50 words before it. The file has one passage per line, with white space between words and </s> for the end of
a line.

python -m trainers.passages --data_dir=data/books --split=test --kind=control --output=data/control.txt
python -m trainers.passages --data_dir=data/books --split=test --kind=broad --output=data/broad.txt
"""

from pathlib import Path

from absl import flags

from keras_adaptive.data import draw_passages, load_corpus
from keras_adaptive.files import check_result, write_text
from trainers.support import command_line

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_path("data_dir", None, "Folder of a corpus of words.", required=True)
    flags.DEFINE_enum("split", "test", ["train", "valid", "test"], "Split to draw from.")
    flags.DEFINE_enum("kind", "control", ["control", "broad"], "Any passages, or passages with a broad context.")
    flags.DEFINE_integer("count", 500, "Number of passages to draw.", 1, 2**30)
    flags.DEFINE_integer(
        "length", 200, "Smallest number of words in a passage; the largest is twice as many.", 2, 2**20
    )
    flags.DEFINE_integer("seed", 0, "Seed of the draw.", 0, 2**31 - 1)
    command_line.define_path("output", None, "Text file to write, which must be new.", required=True)


def main():
    how = {"broad": FLAGS.kind == "broad", "length": FLAGS.length, "seed": FLAGS.seed}
    passages = draw_passages(load_corpus(FLAGS.data_dir), FLAGS.split, FLAGS.count, **how)
    check_result(FLAGS.output)
    path = Path(FLAGS.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(f"{' '.join(words)}\n" for words in passages))
    mean = sum(map(len, passages)) / len(passages)
    print(f"Written to {path}: {len(passages):,} passages ({FLAGS.kind}) of {mean:.1f} words on average")


if __name__ == "__main__":
    command_line.run(main, define_flags)
