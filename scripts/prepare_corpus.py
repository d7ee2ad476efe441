"""Turns text into a corpus for training: token ids, a vocabulary and what there is to know about them.

python scripts/prepare_corpus.py --data_dir=data/docstrings
python scripts/prepare_corpus.py --source=wikitext-103 --data_dir=data/wikitext-103
python scripts/prepare_corpus.py --source=books --subwords=32000 --data_dir=data/books_bpe
"""

import os
import sys
import tempfile

from absl import app, flags

from keras_adaptive.data import TOKENIZERS, prepare, write_docstrings

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "source", "docstrings", "docstrings (of this Python), or a folder with train.txt, valid.txt and test.txt."
)
flags.DEFINE_list("packages", [], "Installed packages whose docstrings come on top, such as numpy,keras.")
flags.DEFINE_enum("tokenizer", None, list(TOKENIZERS), "By default words for docstrings, whitespace for a folder.")
flags.DEFINE_integer("min_count", 3, "Rarer words of the training text become <unk>.", lower_bound=1)
flags.DEFINE_integer("subwords", 0, "Merges of a byte-pair encoding, such as 32000; 0 for words.", lower_bound=0)
flags.DEFINE_string("data_dir", None, "The folder to make.", required=True)


def prepare_docstrings():
    with tempfile.TemporaryDirectory() as folder:
        print("Reading the docstrings of", ", ".join(["Python", *FLAGS.packages]), flush=True)
        write_docstrings(folder, FLAGS.packages)
        source = ", ".join(["docstrings of Python " + sys.version.split()[0], *FLAGS.packages])
        return prepare(folder, FLAGS.data_dir, FLAGS.tokenizer or "words", FLAGS.min_count, source, FLAGS.subwords)


def prepare_folder():
    if FLAGS.packages:
        raise ValueError("--packages belongs to --source=docstrings.")
    print("Reading", FLAGS.source, flush=True)
    return prepare(
        FLAGS.source, FLAGS.data_dir, FLAGS.tokenizer or "whitespace", FLAGS.min_count, subwords=FLAGS.subwords
    )


def print_summary(corpus):
    metadata, size = corpus.metadata, len(corpus.vocabulary)
    if metadata["unit"] == "word":
        columns = ["tokens", "lines"]
        print(f"{size:,} words in the vocabulary, those with at least {metadata['min_count']} occurrences")
    else:
        columns = ["tokens", "words", "lines"]
        print(f"{size:,} pieces of words in the vocabulary, from {metadata['merges']['number']:,} merges")
    print(f"{'':8}" + "".join(f"{column:>14}" for column in columns) + f"{'<unk>':>10}")
    for split, facts in metadata["splits"].items():
        print(f"{split:8}" + "".join(f"{facts[column]:14,}" for column in columns) + f"{facts['unknown_share']:10.2%}")


def main(argv):
    if argv[1:]:
        raise app.UsageError(f"Unknown arguments: {argv[1:]}")
    kept = os.path.exists(os.path.join(FLAGS.data_dir, "corpus.json"))
    try:
        corpus = prepare_docstrings() if FLAGS.source == "docstrings" else prepare_folder()
    except (ValueError, OSError, ModuleNotFoundError) as error:
        sys.exit(f"prepare_corpus: {error}")
    print(f"{'Kept' if kept else 'Made'} {FLAGS.data_dir} from {corpus.metadata['source']}")
    print_summary(corpus)


if __name__ == "__main__":
    app.run(main)
