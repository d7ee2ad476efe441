import concurrent.futures
import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from keras_adaptive.data.corpus import SPLITS, Corpus
from keras_adaptive.data.preparation import workers
from keras_adaptive.data.preparation.text_parts import parts
from keras_adaptive.data.preparation.token_files import write_subword_corpus, write_word_corpus
from keras_adaptive.data.preparation.word_index import index_words
from keras_adaptive.data.text.words import TOKENIZERS
from keras_adaptive.files import complete_or_absent, flush, workspace

_PART = 1 << 26  # bytes of text that become a shard of tokens
_NAMES = ("{}.txt", "wiki.{}.tokens")


class _Part(NamedTuple):
    """A part of a text, and the folder for the numbers of its words."""

    split: str
    text: Path
    start: int
    stop: int
    folder: Path


def prepare(
    folder,
    data_dir,
    tokenizer="whitespace",
    min_count=3,
    source=None,
    subwords=0,
    check=None,
    vocabulary=None,
    processes=1,
    report=lambda line: None,
):
    """Turns the text files of a folder into a corpus: token ids on disk and their vocabulary.

    The text is streamed, so memory holds the distinct words and little else. Each line ends with `</s>`,
    blank lines too; words rarer than `min_count` in `train` become `<unk>`, as a literal `<unk>` does.
    `data_dir` appears complete or not at all. A corpus already there that came from the same text in the same
    way is kept; anything else there is refused.

    The text is read in parts of 64 MB, each of which becomes a shard of tokens, whatever the number of processes. A
    part that is read is kept in `data_dir`.partial until the corpus is complete, so that a call behind one that was
    killed goes on from there, if the text is the same; 4 bytes a word and the words.

    Args:
        folder: Has `train.txt`, `valid.txt` and `test.txt` (or WikiText's `wiki.train.tokens`, …), UTF-8.
        data_dir: Folder to make; `Corpus` says what it holds.
        tokenizer: "whitespace" for text that is tokenised already, "words" for raw text (`tokenize`).
        min_count: Occurrences that a word needs in `train`. WikiText and Billion Word were published with 3;
            with 1, raw text has no `<unk>` to learn.
        source: What `corpus.json` gives as the source; the folder by default.
        subwords: 0 makes a corpus of words. Otherwise its units are the pieces of a byte-pair encoding with so
            many merges, learned on `train` (`Subwords`); no piece is too rare, and `min_count` is for the words,
            whose counts a corpus of pieces has too.
        check: Called with the finished `Corpus` before `data_dir` appears; if it raises, nothing stays.
        vocabulary: A `Vocabulary` to take instead of that of `train`, such as that of a published model; every other
            word becomes `<unk>`, and `min_count` does not matter.
        processes: How many parts are read at the same time, each in a process of its own unless there is but one.
        report: Called with lines of progress.

    Returns:
        The `Corpus`.

    Raises:
        ValueError: If a file is missing, empty or not UTF-8, `data_dir` holds something else or a damaged corpus, or
            another process is making it; and whatever `check` raises.
        ModuleNotFoundError: If sub-words are asked for and `tokenizers` is not installed.
        ChildProcessError: If a process is killed.
    """
    if subwords < 0:
        raise ValueError(f"`subwords` must be a number of merges, or 0 for words. Received: {subwords}")
    if tokenizer not in TOKENIZERS:
        raise ValueError(f"`tokenizer` must be one of {list(TOKENIZERS)}. Received: {tokenizer!r}")
    if subwords and vocabulary is not None:
        raise ValueError("A corpus of sub-words makes its own vocabulary: pass `subwords` or `vocabulary`, not both.")
    if processes < 1:
        raise ValueError(f"`processes` must be positive. Received: {processes}")
    texts = {split: _find(folder, split) for split in SPLITS}
    recipe = {"tokenizer": tokenizer, "unit": "sub-word" if subwords else "word", "min_count": min_count}
    if subwords:
        recipe["subwords"] = subwords
    if vocabulary is not None:
        recipe |= {"min_count": None, "dictionary": vocabulary.sha256}
    inputs = {split: _identity(path) for split, path in texts.items()}
    if not _is_free(data_dir):
        return _existing(data_dir, recipe, inputs, check)
    with workspace(data_dir) as work, _mapping(processes) as mapped:
        cut = [part for split in SPLITS for part in _parts(split, texts[split], inputs[split], tokenizer, work)]
        folders = _number(cut, tokenizer, mapped, workers.call if processes > 1 else _call_here, report)
        new = work / "corpus"
        shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
        new.mkdir()
        if subwords:
            contents = write_subword_corpus(folders, new, mapped, min_count, subwords)
        else:
            contents = write_word_corpus(folders, new, mapped, min_count, vocabulary)
        splits = {split: inputs[split] | contents["splits"][split] for split in SPLITS}
        metadata = {"source": str(source or folder), **recipe, **contents, "splits": splits}
        (new / "corpus.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
        if check:
            check(Corpus(new))
        flush(new)
        new.replace(data_dir)
    return Corpus(data_dir)


def _find(folder, split):
    paths = [Path(folder, name.format(split)) for name in _NAMES]
    path = next(filter(Path.is_file, paths), None)
    if path is None:
        raise ValueError(f"{paths[0]} is missing. A folder needs train.txt, valid.txt and test.txt.")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty. It must hold text, a paragraph or a sentence a line.")
    return path


def _identity(path):
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _is_free(data_dir):
    return not os.path.exists(data_dir) or os.path.isdir(data_dir) and not os.listdir(data_dir)


def _existing(data_dir, recipe, inputs, check):
    """Returns the corpus in `data_dir` if it is what `prepare` would write."""
    if os.path.exists(os.path.join(data_dir, "corpus.json")):
        corpus = Corpus(data_dir)
        splits = corpus.metadata["splits"]
        same_text = all(inputs[split].items() <= splits[split].items() for split in SPLITS)
        if same_text and recipe.items() <= corpus.metadata.items():
            corpus.verify(*SPLITS)
            if check:
                check(corpus)
            return corpus
    raise ValueError(f"{data_dir} exists and is not this corpus. Remove it, or choose another data_dir.")


@contextlib.contextmanager
def _mapping(processes):
    """Gives a `map` that does so many things at a time; they wait for processes, or for NumPy, in threads."""
    if processes == 1:
        yield map
    else:
        with concurrent.futures.ThreadPoolExecutor(processes) as threads:
            yield threads.map


def _call_here(function, *arguments):
    function(*arguments)


def _parts(split, text, identity, tokenizer, work):
    """Returns the parts of a text. The name of a folder tells all that its contents depend on."""
    name = f"{split}-{identity['sha256'][:16]}-{tokenizer}"
    ranges = parts(text, _PART)
    return [_Part(split, text, start, stop, work / f"{name}-{start}-{stop}") for start, stop in ranges]


def _number(cut, tokenizer, mapped, call, report):
    """Numbers the words of all parts of the texts, but of those that are there; returns the folders of each split."""

    def number(part):
        there = part.folder.exists()
        if not there:
            with complete_or_absent(part.folder) as new:
                call(index_words, str(part.text), part.start, part.stop, tokenizer, str(new))
        return part, there

    folders = {split: [] for split in SPLITS}
    for part, there in mapped(number, cut):
        folders[part.split].append(part.folder)
        report(f"{part.text}: {part.stop / 1e6:,.1f} MB" + (", which were read before" if there else ""))
    return folders
