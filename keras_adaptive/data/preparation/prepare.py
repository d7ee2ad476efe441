import concurrent.futures
import contextlib
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
from keras_adaptive.data.preparation.text_parts import parts, text_size
from keras_adaptive.data.preparation.token_files import write_subword_corpus, write_word_corpus
from keras_adaptive.data.preparation.word_index import index_words
from keras_adaptive.files import check_new_folder, complete_or_absent, flush, workspace, writing

_PART = 1 << 26  # number of bytes of text per shard of tokens
_NAMES = ("{}.txt", "wiki.{}.tokens")


class _Part(NamedTuple):
    """Part of a text, and the folder for the index of its words."""

    split: str
    text: Path
    start: int
    stop: int
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
    check: Callable[[Corpus], None] | None = None,
    vocabulary: Vocabulary | None = None,
    processes: int = 1,
    report: Callable[[str], None] = lambda line: None,
) -> Corpus:
    """Converts the text files of a folder into a corpus: token ids on disk and their vocabulary.

    The text is streamed, so that memory holds little more than the distinct words. Each line ends with `</s>`,
    including blank lines. Words that occur fewer than `min_count` times in `train` become `<unk>`, like a literal
    `<unk>`. `data_dir` appears complete or not at all. An existing corpus of the same text and the same arguments is
    kept. Anything else in `data_dir` is refused.

    A warning says what to do if most letters are in words of more than 20 letters, because the language does not
    separate words by spaces, or if "whitespace" splits raw text, whose words end with marks.

    The text is read in parts of 64 MB, each of which becomes a shard of tokens, whatever the number of processes.
    Finished parts are kept in `data_dir`.partial (4 bytes per word, and the distinct words) until the corpus is
    complete. If a call is killed, the next call resumes from them, provided that the text is the same.

    Args:
        folder: Folder with `train.txt`, `valid.txt` and `test.txt` (or WikiText's `wiki.train.tokens`, …) in UTF-8.
            `split_text` divides any other text.
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
        check: Function that is called with the finished `Corpus` before `data_dir` appears. If it raises an error,
            the corpus is removed. Optional.
        vocabulary: A `Vocabulary` to use instead of the words of `train`, such as the vocabulary of a published model.
            All other words become `<unk>`, and `min_count` and `max_words` have no effect. Optional.
        processes: Number of parts that are read at the same time, each in its own process if there are several.
        report: Function that is called with lines of progress.

    Returns:
        The `Corpus`.

    Raises:
        ValueError: If a file is missing, has no word or is not UTF-8, `data_dir` holds something else or a damaged
            corpus, or another process is writing it. Errors of `check` are raised too.
        ModuleNotFoundError: If `subwords` is not 0 and the package `tokenizers` is not installed.
        ChildProcessError: If a process is killed.

    Example:

    ```python
    Path("texts").mkdir()
    for split in ("train", "valid", "test"):
        Path(f"texts/{split}.txt").write_text("The cat sat. The dog ran. " * 9)
    corpus = prepare("texts", "data/texts", tokenizer="words", min_count=1)
    corpus.vocabulary.decode(corpus.tokens("valid")[:4])  # ["The", "cat", "sat", "."]
    ```
    """
    check_units(tokenizer, subwords, vocabulary)
    for name, value in {"processes": processes, "max_words": max_words}.items():
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be positive. Received: {value}")
    free = is_free(data_dir)  # raises an error before the work begins
    texts = {split: find_text(folder, split) for split in SPLITS}
    recipe = {
        **recorded(tokenizer),
        "unit": unit_of(tokenizer, bool(subwords)),
        "min_count": min_count,
    }
    if subwords:
        recipe["subwords"] = subwords
    if max_words and vocabulary is None:
        recipe["max_words"] = max_words
    if vocabulary is not None:
        recipe |= {"min_count": None, "dictionary": vocabulary.sha256}
    inputs = {split: _identity(path) for split, path in texts.items()}
    if not free:
        return _existing(data_dir, recipe, inputs, check)
    with workspace(data_dir) as work, writing(work), _mapping(processes) as mapped:
        cut = [part for split in SPLITS for part in _parts(split, texts[split], inputs[split], tokenizer, work)]
        folders = _number(cut, tokenizer, mapped, workers.call if processes > 1 else _call_here, report)
        new = work / "corpus"
        shutil.rmtree(new, ignore_errors=True)  # a killed process may have left it
        new.mkdir()
        inspect = functools.partial(warn_about_words, tokenizer=tokenizer)
        if subwords:
            contents = write_subword_corpus(folders, new, mapped, min_count, max_words, subwords)
        else:
            contents = write_word_corpus(folders, new, mapped, min_count, max_words, vocabulary, inspect)
        sizes = {split: {"text_bytes": text_size(texts[split], tokenizer == "bytes")} for split in SPLITS}
        splits = {split: inputs[split] | sizes[split] | contents["splits"][split] for split in SPLITS}
        for split in SPLITS:
            if splits[split]["tokens"] == splits[split]["lines"]:
                raise ValueError(
                    f"{texts[split]} contains no word. It must contain text, a paragraph or a sentence per line."
                )
        if splits["train"]["tokens"] - splits["train"]["lines"] == splits["train"]["unknown"]:
            received = f"min_count={min_count}" if vocabulary is None else f"{len(vocabulary)} words"
            raise ValueError(
                f"No word of {texts['train']} is in the vocabulary: pass a smaller `min_count`, or the vocabulary of "
                f"this text. Received: {received}."
            )
        metadata = {"source": str(source or folder), **recipe, **contents, "splits": splits}
        (new / "corpus.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
        if check:
            check(Corpus(new))
        flush(new)
        new.replace(data_dir)
    return Corpus(data_dir)


def check_units(tokenizer, subwords, vocabulary):
    """Raises a ValueError if `prepare` does not support these arguments together."""
    if subwords < 0:
        raise ValueError(f"`subwords` must be a number of merges, or 0 for a corpus of words. Received: {subwords}")
    if tokenizer not in TOKENIZERS:
        raise ValueError(f"`tokenizer` must be one of {list(TOKENIZERS)}. Received: {tokenizer!r}")
    if subwords and tokenizer in UNITS:
        raise ValueError(
            f"`subwords` needs a tokenizer that splits text into words: pass another one, or subwords=0. "
            f"Received: tokenizer={tokenizer!r}"
        )
    if subwords and vocabulary is not None:
        raise ValueError("A corpus of sub-words has its own vocabulary: pass `subwords` or `vocabulary`, not both.")


def find_text(folder, split):
    """Returns the path of the text of a split in a folder.

    Raises:
        ValueError: If it is missing or empty.
    """
    paths = [Path(folder, name.format(split)) for name in _NAMES]
    path = next(filter(Path.is_file, paths), None)
    if path is None:
        raise ValueError(
            f"{paths[0]} is missing. A folder needs train.txt, valid.txt and test.txt, which `split_text` "
            "makes of a text."
        )
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty. It must contain text, a paragraph or a sentence per line.")
    return path


def is_divided(folder):
    """Returns whether a folder contains a training text, and thus the texts of all splits."""
    return any(Path(folder, name.format("train")).is_file() for name in _NAMES)


def _identity(path):
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def is_free(data_dir):
    """Returns whether `prepare` must create a corpus in `data_dir`, because there is none yet.

    Raises:
        ValueError: If a corpus cannot be created there, or the folder holds something else.
    """
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
    if check:
        check(corpus)
    return corpus


def _other(data_dir):
    return ValueError(f"{data_dir} exists and is not this corpus. Remove it, or choose another data_dir.")


@contextlib.contextmanager
def _mapping(processes):
    """Yields a `map` that runs `processes` calls at a time, in threads that wait for processes or NumPy."""
    if processes == 1:
        yield map
    else:
        with concurrent.futures.ThreadPoolExecutor(processes) as threads:
            yield threads.map


def _call_here(function, *arguments):
    function(*arguments)


def _parts(split, text, identity, tokenizer, work):
    """Returns the parts of a text. The name of a part's folder contains everything that its contents depend on."""
    name = f"{split}-{identity['sha256'][:16]}-{tokenizer}-{RULES}"
    ranges = parts(text, _PART)
    return [_Part(split, text, start, stop, work / f"{name}-{start}-{stop}") for start, stop in ranges]


def _number(cut, tokenizer, mapped, call, report):
    """Indexes the words of all parts that are not yet indexed, and returns the folders of each split."""

    def number(part):
        exists = part.folder.exists()
        if not exists:
            with complete_or_absent(part.folder) as new:
                call(index_words, str(part.text), part.start, part.stop, tokenizer, str(new))
        return part, exists

    folders = {split: [] for split in SPLITS}
    for part, exists in mapped(number, cut):
        folders[part.split].append(part.folder)
        report(f"{part.text}: {part.stop / 1e6:,.1f} MB" + (", which were read before" if exists else ""))
    return folders
