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
from keras_adaptive.files import commit, partial, writing
from trainers import command_line

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("data_dir", None, "Folder of a corpus of words.", required=True)
    flags.DEFINE_enum("split", "test", ["train", "valid", "test"], "Split to draw from.")
    flags.DEFINE_enum("kind", "control", ["control", "broad"], "Any passages, or passages with a broad context.")
    flags.DEFINE_integer("count", 500, "Number of passages to draw.", 1, 2**30)
    flags.DEFINE_integer(
        "length", 200, "Smallest number of words in a passage; the largest is twice as many.", 2, 2**20
    )
    flags.DEFINE_integer("seed", 0, "Seed of the draw.", 0, 2**31 - 1)
    flags.DEFINE_string("output", None, "Text file to write.", required=True)


def main():
    how = {"broad": FLAGS.kind == "broad", "length": FLAGS.length, "seed": FLAGS.seed}
    passages = draw_passages(load_corpus(FLAGS.data_dir), FLAGS.split, FLAGS.count, **how)
    path = Path(FLAGS.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        Path(partial(path)).write_text("".join(f"{' '.join(words)}\n" for words in passages), encoding="utf-8")
        commit(path)
    mean = sum(map(len, passages)) / len(passages)
    print(f"Written to {path}: {len(passages):,} passages ({FLAGS.kind}) of {mean:.1f} words on average")


if __name__ == "__main__":
    command_line.run(main, define_flags)
