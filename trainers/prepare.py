"""Converts text into a corpus for training: token ids, a vocabulary and metadata.

The same command resumes after it was stopped, and keeps a complete corpus.

python -m trainers.prepare --data_dir=data/docstrings
python -m trainers.prepare --source=wikitext-103 --data_dir=data/wikitext-103
python -m trainers.prepare --source=lambada --data_dir=data/lambada
python -m trainers.prepare --source=my_novel.txt --data_dir=data/novel
python -m trainers.prepare --source=reviews.csv --column=text --data_dir=data/reviews
python -m trainers.prepare --source=s3://bucket/reviews.jsonl.zst --column=text --data_dir=data/reviews
python -m trainers.prepare --source=FOLDER --data_dir=data/mine
python -m trainers.prepare --source=FOLDER --subwords=32000 --data_dir=data/mine_bpe
python -m trainers.prepare --source=FOLDER --unit=characters --data_dir=data/mine_characters
python -m trainers.prepare --source=FOLDER --dictionary=dict.txt --data_dir=data/for_a_published_model
"""

import functools
import os
import sys
import tempfile
import warnings

from absl import flags

from keras_adaptive.data import (
    PUBLIC_CORPORA,
    TOKENIZERS,
    UNITS,
    Vocabulary,
    prepare,
    prepare_public,
    split_text,
    write_docstrings,
)
from keras_adaptive.data.preparation.prepare import is_divided, is_free
from keras_adaptive.data.sources.own_text import DIVISIONS
from trainers.support import command_line

FLAGS = flags.FLAGS
OF_OWN_TEXT = ("column", "split_by", "valid_fraction", "test_fraction", "seed")
say = functools.partial(print, flush=True)


def define_flags():
    command_line.define_path(
        "source",
        "docstrings",
        f"Text to prepare: docstrings (of this Python); {', '.join(PUBLIC_CORPORA)} (downloaded); a folder with "
        "train.txt, valid.txt and test.txt; or any text to divide: a file, a folder of .txt files, or a table or "
        "a folder of tables (CSV, JSON lines, Parquet). Files may be compressed, or at addresses such as s3://bucket.",
    )
    flags.DEFINE_string("column", None, "Column (field) with the text of tables, whose rows are documents.")
    flags.DEFINE_enum(
        "split_by",
        None,
        DIVISIONS,
        "Units that are divided into splits: lines, or documents, which are the parts of a file between blank lines, "
        "the files of a folder or the rows of a table. By default documents, or lines for a file without documents.",
    )
    command_line.define_float("valid_fraction", 0.05, "Fraction of an own text for validation.", 0.0, 1.0)
    command_line.define_float("test_fraction", 0.05, "Fraction of an own text for the test.", 0.0, 1.0)
    flags.DEFINE_integer("seed", 1, "Seed that selects the documents or lines of each split.", 0, 2**32 - 1)
    flags.DEFINE_list("packages", [], "Installed packages whose docstrings are added, such as numpy,keras.")
    flags.DEFINE_enum(
        "unit",
        "words",
        ["words", *UNITS],
        "Unit of the tokens. --subwords=N cuts words into pieces. ptb_characters expects text with spaces between "
        "characters and _ for a space, as in the character-level Penn Treebank.",
    )
    words = [name for name in TOKENIZERS if name not in UNITS]
    flags.DEFINE_enum(
        "tokenizer",
        None,
        words,
        "Tokenizer of --unit=words; by default whitespace for a folder with train.txt, words for any other text.",
    )
    flags.DEFINE_integer(
        "min_count",
        None,
        "Smallest number of occurrences in the training text of a word to keep; rarer words become <unk>. By default "
        "3 (1 for characters and bytes), or the number of the public corpus.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "subwords", 0, "Number of merges of a byte-pair encoding, such as 32000; 0 for a corpus of words.", 0, 10**6
    )
    command_line.define_path("dictionary", None, "A vocabulary.txt or dict.txt to use; other words become <unk>.")
    command_line.define_path("data_dir", None, "Folder of the corpus to write.", required=True)
    flags.DEFINE_integer("processes", os.cpu_count(), "Number of processes that read the text.", 1, 1024)
    command_line.define_path("download_dir", "data/downloads", "Folder of downloaded archives and their texts.")
    flags.DEFINE_list("mirrors", [], "Addresses of a public corpus to use instead of the public ones.")
    flags.DEFINE_bool("checksums", True, "Refuse public archives and texts that differ from the published checksums.")


def prepare_docstrings():
    with tempfile.TemporaryDirectory() as folder:
        say("Reading the docstrings of", ", ".join(["Python", *FLAGS.packages]))
        write_docstrings(folder, FLAGS.packages)
        source = ", ".join(["docstrings of Python " + sys.version.split()[0], *FLAGS.packages])
        return prepare(folder, FLAGS.data_dir, source=source, **units("words"), **how())


def prepare_download():
    if FLAGS.tokenizer == "words":
        raise ValueError(f"--source={FLAGS.source} is tokenized already: omit --tokenizer.")
    if FLAGS["unit"].present:
        raise ValueError(f"--source={FLAGS.source} has its own unit: omit --unit, or pass the folder of its texts.")
    names = FLAGS.source, FLAGS.download_dir, FLAGS.data_dir
    chosen = {"min_count": FLAGS.min_count, "mirrors": FLAGS.mirrors, "checksums": FLAGS.checksums}
    return prepare_public(*names, **chosen, **how())


def prepare_folder():
    say("Reading", FLAGS.source)
    return prepare(FLAGS.source, FLAGS.data_dir, **units("whitespace"), **how())


def prepare_own_text():
    fractions = {"valid_fraction": FLAGS.valid_fraction, "test_fraction": FLAGS.test_fraction}
    with tempfile.TemporaryDirectory() as folder:
        say("Reading", FLAGS.source)
        chosen = {"column": FLAGS.column, "by": FLAGS.split_by, "seed": FLAGS.seed, "any_bytes": FLAGS.unit == "bytes"}
        by = split_text(FLAGS.source, folder, **chosen, **fractions)
        shares = f"{FLAGS.valid_fraction:.2%} for valid, {FLAGS.test_fraction:.2%} for test"
        say("Kept the splits of its files" if by == "files" else f"Divided by {by}: {shares}")
        return prepare(folder, FLAGS.data_dir, source=FLAGS.source, **units("words"), **how())


def units(tokenizer):
    """Returns the arguments that define the tokens. `tokenizer` is the default for words."""
    if FLAGS.unit == "words":
        return {"tokenizer": FLAGS.tokenizer or tokenizer, "min_count": FLAGS.min_count or 3}
    return {"tokenizer": FLAGS.unit, "min_count": FLAGS.min_count or 1}


def how():
    """Returns the arguments that all sources have in common: sub-words, vocabulary and processes."""
    vocabulary = Vocabulary.load(FLAGS.dictionary) if FLAGS.dictionary else None
    return {"subwords": FLAGS.subwords, "vocabulary": vocabulary, "processes": FLAGS.processes, "report": say}


def prepare_source():
    for name in ("tokenizer", "subwords"):
        if FLAGS.unit != "words" and FLAGS[name].value:
            raise ValueError(f"--{name} belongs to --unit=words. Received: --unit={FLAGS.unit}. Omit --{name}.")
    if FLAGS.packages and FLAGS.source != "docstrings":
        raise ValueError("--packages belongs to --source=docstrings.")
    if FLAGS.mirrors and FLAGS.source not in PUBLIC_CORPORA:
        raise ValueError(f"--mirrors belongs to --source={'|'.join(PUBLIC_CORPORA)}.")
    has_splits = FLAGS.source in ("docstrings", *PUBLIC_CORPORA) or is_divided(FLAGS.source)
    for name in OF_OWN_TEXT:
        if has_splits and FLAGS[name].present:
            raise ValueError(f"--{name} divides a text, but --source={FLAGS.source} is divided: omit --{name}.")
    if not has_splits:
        return prepare_own_text()
    if FLAGS.source == "docstrings":
        return prepare_docstrings()
    return prepare_download() if FLAGS.source in PUBLIC_CORPORA else prepare_folder()


def print_summary(corpus):
    metadata, size = corpus.metadata, len(corpus.vocabulary)
    if not corpus.unit.is_piece:
        columns = ["tokens", "lines"]
        least = f"with at least {metadata['min_count']} occurrences"
        if "max_words" in metadata:
            least += f", the {metadata['max_words']:,} most frequent ones"
        origin = f"from {FLAGS.dictionary}" if FLAGS.dictionary else least
        print(f"{size:,} {corpus.unit}s in the vocabulary, {origin}")
    else:
        columns = ["tokens", "words", "lines"]
        print(f"{size:,} pieces of words in the vocabulary, from {metadata['merges']['number']:,} merges")
    print(f"{'':8}" + "".join(f"{column:>14}" for column in columns) + f"{'<unk>':>10}")
    for split, facts in metadata["splits"].items():
        print(f"{split:8}" + "".join(f"{facts[column]:14,}" for column in columns) + f"{facts['unknown_share']:10.2%}")


def main():
    warnings.formatwarning = lambda message, *args, **kwargs: f"Warning: {message}\n"
    made = is_free(FLAGS.data_dir)  # raises an error before the work begins
    corpus = prepare_source()
    print(f"{'Wrote' if made else 'Kept'} {FLAGS.data_dir} from {corpus.metadata['source']}")
    print_summary(corpus)


if __name__ == "__main__":
    command_line.run(main, define_flags)
