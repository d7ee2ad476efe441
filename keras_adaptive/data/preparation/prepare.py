import concurrent.futures
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from keras_adaptive.data.codecs.units import UNITS, unit_of
from keras_adaptive.data.codecs.vocabulary import Vocabulary
from keras_adaptive.data.codecs.words import RULES, TOKENIZERS, recorded
from keras_adaptive.data.corpus import SPLITS, Corpus
from keras_adaptive.data.preparation import workers
from keras_adaptive.data.preparation.cautions import warn_about_words
from keras_adaptive.data.preparation.text_parts import checksums, parts, text_size
from keras_adaptive.data.preparation.token_files import write_subword_corpus, write_word_corpus
from keras_adaptive.data.preparation.word_index import index_words
from keras_adaptive.data.sources.text_files import is_address, is_file, join, open_file
from keras_adaptive.files import check_new_folder, flush, workspace, writing

_PART = 1 << 26  # number of bytes of text per shard of tokens
_NAMES = ("{}.txt", "wiki.{}.tokens")


class Choices(NamedTuple):
    """What decides the tokens of a text: arguments of `prepare`."""

    tokenizer: str = "whitespace"
    min_count: int = 3
    max_words: int | None = None
    subwords: int = 0
    vocabulary: Vocabulary | None = None

    def check(self):
        """Raises a ValueError if these choices are not supported together."""
        if self.subwords < 0:
            raise ValueError(
                f"`subwords` must be the number of merges, or 0 for no sub-words. Received: subwords={self.subwords}."
            )
        if self.tokenizer not in TOKENIZERS:
            raise ValueError(f"`tokenizer` must be one of {list(TOKENIZERS)}. Received: tokenizer={self.tokenizer!r}.")
        if self.subwords and self.tokenizer in UNITS:
            raise ValueError(
                f"`subwords` needs a tokenizer that splits text into words: pass another one, or subwords=0. "
                f"Received: tokenizer={self.tokenizer!r}."
            )
        if self.subwords and self.vocabulary is not None:
            raise ValueError("A corpus of sub-words has its own vocabulary: pass `subwords` or `vocabulary`, not both.")
        if self.max_words is not None and self.max_words < 1:
            raise ValueError(f"`max_words` must be positive. Received: max_words={self.max_words}.")

    def recorded(self):
        """Returns the entries of `corpus.json` that record the choices."""
        unit = unit_of(self.tokenizer, bool(self.subwords))
        entries = {**recorded(self.tokenizer), "unit": unit, "min_count": self.min_count}
        if self.subwords:
            entries["subwords"] = self.subwords
        if self.vocabulary is not None:
            return {**entries, "min_count": None, "dictionary": self.vocabulary.sha256}
        return {**entries, "max_words": self.max_words} if self.max_words else entries


class _Part(NamedTuple):
    """Part of a text, and the folder for the index of its words."""

    split: str
    text: str | Path
    start: int
    stop: int
    checksum: int
    folder: Path


def prepare(
    folder: str | os.PathLike,
    data_dir: str | os.PathLike,
    *,
    tokenizer: str = "whitespace",
    min_count: int = 3,
    max_words: int | None = None,
    source: str | None = None,
    subwords: int = 0,
    vocabulary: Vocabulary | None = None,
    processes: int = 1,
    executor: concurrent.futures.Executor | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Corpus:
    """Converts the text files of a folder into a corpus: token ids on disk and their vocabulary.

    The text is streamed, so that memory holds little more than the distinct words. Each line ends with `</s>`,
    including blank lines. Words that occur fewer than `min_count` times in `train` become `<unk>`, like a literal
    `<unk>`. `data_dir` appears complete or not at all. An existing corpus of the same text and the same arguments is
    kept. Anything else in `data_dir` is refused.

    A warning says what to do if most letters are in words of more than 20 letters, because the language does not
    separate words by spaces, or if "whitespace" splits raw text, whose words end with marks.

    The text is read in parts of 64 MB, each of which becomes a shard of tokens, whatever the number of processes and
    the executor. Finished parts are kept in `data_dir`.partial (4 bytes per word, and the distinct words) until the
    corpus is complete. If a call is killed or a worker fails, the next call resumes from them, provided that the text
    is the same.

    Args:
        folder: Folder with `train.txt`, `valid.txt` and `test.txt` (or WikiText's `wiki.train.tokens`, …) in UTF-8, or
            its address for fsspec, such as "s3://bucket/texts". `split_text` divides any other text.
        data_dir: Folder to create; see `Corpus` for its files.
        tokenizer: "whitespace" for tokenized text; "words" for raw text (`tokenize`); "characters" or "bytes" for a
            corpus of characters or bytes, including spaces; "ptb_characters" for characters that are separated by
            spaces, with `_` for a space. A text of bytes need not be UTF-8.
        min_count: Smallest number of occurrences in `train` of a word to keep. WikiText and Billion Word were published
            with 3. With 1, raw text contains no `<unk>` to learn from.
        max_words: Number of the most frequent words of `train` to keep; the others become `<unk>`. All by default.
        source: Name of the source in `corpus.json`; the folder by default.
        subwords: Number of merges of a byte-pair encoding (`Subwords`), which is learned on `train` and whose pieces
            are the units of the corpus; 0 for a corpus of words. All pieces are kept. `min_count` applies to the words,
            which a corpus of sub-words holds too.
        vocabulary: A `Vocabulary` to use instead of the words of `train`, such as the vocabulary of a published model.
            All other words become `<unk>`, and `min_count` and `max_words` have no effect. Optional.
        processes: Number of parts that are read at the same time, each in its own process if there are several.
        executor: Any `concurrent.futures.Executor` whose workers read the parts instead, such as
            `dask.distributed.Client().get_executor()`. All workers must see `folder` and `data_dir` under the same
            paths, and need the same versions of this package and of Python. It is not shut down. Optional.
        report: Function that is called with lines of progress.

    Returns:
        The `Corpus`.

    Raises:
        ValueError: If a file is missing, has no word, is not UTF-8 or changes while it is read, `data_dir` holds
            something else or a damaged corpus, or another process is writing it.
        OSError: If an address cannot be read, or the disk is full.
        ModuleNotFoundError: If `subwords` is not 0 and the package `tokenizers` is not installed.
        ChildProcessError: If a process is killed, the executor fails, or a worker has another version.

    Example:

    ```python
    Path("texts").mkdir()
    for split in ("train", "valid", "test"):
        Path(f"texts/{split}.txt").write_text("The cat sat. The dog ran. " * 9)
    corpus = prepare("texts", "data/texts", tokenizer="words", min_count=1)
    corpus.vocabulary.decode(corpus.tokens("valid")[:4])  # ["The", "cat", "sat", "."]
    ```
    """
    choices = Choices(tokenizer, min_count, max_words, subwords, vocabulary)
    how = {"source": source, "processes": processes, "executor": executor, "report": report}
    return write_corpus(folder, data_dir, choices, **how)


def write_corpus(
    folder, data_dir, choices, *, source=None, check=lambda corpus: None, processes=1, executor=None, report
):
    """Converts the text files of a folder into a corpus, as `prepare` does, by the `Choices` that decide the tokens.

    The function `check` gets the finished `Corpus` before `data_dir` appears. If it raises an error, the corpus is
    removed.
    """
    choices.check()
    if processes < 1:
        raise ValueError(f"`processes` must be positive. Received: processes={processes}.")
    if executor is not None and (processes > 1 or not callable(getattr(executor, "submit", None))):
        raise ValueError(
            "`executor` must be a `concurrent.futures.Executor`, which has workers of its own: omit `processes`. "
            f"Received: executor={executor!r}, processes={processes}."
        )
    free = is_free(data_dir)  # raises an error before the work begins
    # A worker may have another working directory.
    place = folder if executor is None or is_address(folder) else os.path.abspath(folder)
    texts = {split: find_text(place, split) for split in SPLITS}
    ranges, inputs = {}, {}
    for split, path in texts.items():
        ranges[split], inputs[split] = _identity(path)
    if not free:
        return _existing(data_dir, choices.recorded(), inputs, check)
    threads = concurrent.futures.ThreadPoolExecutor(os.cpu_count() if executor else processes)
    with workspace(data_dir) as work, writing(work), threads:
        cut = [
            part
            for split in SPLITS
            for part in _parts(split, texts[split], ranges[split], inputs[split], choices.tokenizer, work)
        ]
        folders = _number(cut, choices.tokenizer, _caller(executor, processes, threads), report)
        new = work / "corpus"
        shutil.rmtree(new, ignore_errors=True)  # a killed process may have left it
        new.mkdir()
        contents = _write_tokens(folders, new, threads.map, choices)
        sizes = {split: {"text_bytes": text_size(texts[split], choices.tokenizer == "bytes")} for split in SPLITS}
        splits = {split: inputs[split] | sizes[split] | contents["splits"][split] for split in SPLITS}
        _check_words(texts, splits, choices)
        metadata = {"source": str(source or folder), **choices.recorded(), **contents, "splits": splits}
        (new / "corpus.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
        check(Corpus(new))
        flush(new)
        new.replace(data_dir)
    return Corpus(data_dir)


def _write_tokens(folders, new, mapped, choices):
    """Writes the token ids and the vocabulary of the indexed parts, and returns their entries of `corpus.json`."""
    limits = choices.min_count, choices.max_words
    if choices.subwords:
        return write_subword_corpus(folders, new, mapped, *limits, choices.subwords)
    inspect = functools.partial(warn_about_words, tokenizer=choices.tokenizer)
    return write_word_corpus(folders, new, mapped, *limits, choices.vocabulary, inspect)


def _check_words(texts, splits, choices):
    """Raises a ValueError if a text has no word, or the training text no word of the vocabulary."""
    for split in SPLITS:
        if splits[split]["tokens"] == splits[split]["lines"]:
            raise ValueError(
                f"{texts[split]} contains no word. It must contain text, a paragraph or a sentence per line."
            )
    train, vocabulary = splits["train"], choices.vocabulary
    if train["tokens"] - train["lines"] == train["unknown"]:
        received = f"min_count={choices.min_count}" if vocabulary is None else f"{len(vocabulary)} words"
        raise ValueError(
            f"No word of {texts['train']} is in the vocabulary: pass a smaller `min_count`, or the vocabulary of "
            f"this text. Received: {received}."
        )


def find_text(folder, split):
    """Returns the path of the text of a split in a folder, which must not be empty."""
    paths = [join(folder, name.format(split)) for name in _NAMES]
    path = next(filter(is_file, paths), None)
    if path is None:
        raise ValueError(
            f"{paths[0]} is missing. A folder needs train.txt, valid.txt and test.txt, which `split_text` "
            "makes of a text."
        )
    with open_file(path) as file:
        if not file.read(1):
            raise ValueError(f"{path} is empty. It must contain text, a paragraph or a sentence per line.")
    return path


def is_divided(folder):
    """Returns whether a folder contains a training text, and thus the texts of all splits."""
    return any(is_file(join(folder, name.format("train"))) for name in _NAMES)


def _identity(path):
    """Returns the (start, stop, CRC-32) of the parts of a text, and its entries of `corpus.json`."""
    digest, ranges = hashlib.sha256(), parts(path, _PART)
    sums = checksums(path, ranges, digest.update)
    facts = {"bytes": ranges[-1][1], "sha256": digest.hexdigest()}
    return [(*bounds, checksum) for bounds, checksum in zip(ranges, sums, strict=True)], facts


def is_free(data_dir):
    """Returns whether `prepare` must create a corpus in `data_dir`, since there is none yet, and checks that it can."""
    if os.path.exists(os.path.join(data_dir, "corpus.json")):
        return False
    if os.path.exists(data_dir) and not (os.path.isdir(data_dir) and not os.listdir(data_dir)):
        raise _other(data_dir)
    check_new_folder(data_dir)
    return True


def _existing(data_dir, recipe, inputs, check):
    """Returns the corpus in `data_dir` if it equals the corpus that `prepare` would write."""
    corpus = Corpus(data_dir)
    splits = corpus.metadata["splits"]
    same_text = all(inputs[split].items() <= splits[split].items() for split in SPLITS)
    same_words = recipe.get("max_words") == corpus.metadata.get("max_words")
    if not same_text or not same_words or not recipe.items() <= corpus.metadata.items():
        raise _other(data_dir)
    corpus.verify(*SPLITS)
    check(corpus)
    return corpus


def _other(data_dir):
    return ValueError(f"{data_dir} exists and is not this corpus. Remove it, or choose another data_dir.")


def _caller(executor, processes, threads):
    """Returns the function that calls another one with many lists of arguments: here, in processes or elsewhere."""
    if executor is None and processes == 1:
        return workers.call_here
    return functools.partial(workers.call_in, executor or threads)


def _parts(split, text, ranges, identity, tokenizer, work):
    """Returns the parts of a text. The name of a part's folder contains everything that its contents depend on."""
    name = f"{split}-{identity['sha256'][:16]}-{tokenizer}-{RULES}"
    return [
        _Part(split, text, start, stop, checksum, work / f"{name}-{start}-{stop}") for start, stop, checksum in ranges
    ]


def _number(cut, tokenizer, called, report):
    """Indexes the words of all parts that are not yet indexed, and returns the folders of each split."""
    known = {part for part in cut if part.folder.exists()}
    calls = [(str(part.text), *part[2:5], tokenizer, str(part.folder)) for part in cut if part not in known]
    ends = called(index_words, calls)
    folders = {split: [] for split in SPLITS}
    for part in cut:
        if part not in known:
            next(ends)
        folders[part.split].append(part.folder)
        report(f"{part.text}: {part.stop / 1e6:,.1f} MB" + (", which were read before" if part in known else ""))
    return folders
