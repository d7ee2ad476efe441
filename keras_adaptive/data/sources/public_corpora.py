"""Public corpora on which language models are compared, with their mirrors and published counts."""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from keras_adaptive.data.codecs.vocabulary import Vocabulary
from keras_adaptive.data.corpus import SPLITS, Corpus
from keras_adaptive.data.preparation.prepare import Choices, find_text, is_free, write_corpus
from keras_adaptive.data.sources.archives import check_sum, unpack
from keras_adaptive.data.sources.downloads import download

# Upper bounds of the bytes of a text per published unit.
_BYTES = {"bytes": 1, "tokens": 16, "lines": 1000, "million_words": 8_000_000}


class PublicCorpus(NamedTuple):
    """Description of a public corpus.

    Attributes:
        mirrors: Addresses of its archive, the best one first.
        members: Dict from a split to the ends of the names of its files in the archive, in order.
        min_count: Smallest number of occurrences in the training text of a word to keep.
        published: Dict from a split to the entries that `corpus.json` must have. Counts include one `</s>` per line.
        max_words: Number of the most frequent words to keep; None for all.
        types: Number of distinct words that are kept, including `<unk>` and `</s>`; None if it is not published.
        archive_sums: Dict from the name of an archive to its published SHA-256.
        text_sums: Dict from a split to the published SHA-1 of its text, or from "all" for all texts together.
        sizes: Dict from a split to its size in bytes, if a single text contains all splits one after the other.
        tokenizer: Name of the tokenizer, in `TOKENIZERS`.
    """

    mirrors: tuple
    members: dict
    min_count: int
    published: dict
    max_words: int | None = None
    types: int | None = None
    archive_sums: dict = {}
    text_sums: dict = {}
    sizes: dict = {}
    tokenizer: str = "whitespace"

    @property
    def most_bytes(self) -> int:
        """Largest number of bytes that the archive may unpack to, far above the published size."""
        texts = [min(_BYTES[fact] * count for fact, count in facts.items()) for facts in self.published.values()]
        return (1 << 20) + 2 * sum(texts)


_WIKITEXT = {split: (f"wiki.{split}.tokens",) for split in SPLITS}
_BILLION_WORD = {
    "train": tuple(f"training-monolingual.tokenized.shuffled/news.en-{i:05d}-of-00100" for i in range(1, 100)),
    "valid": ("heldout-monolingual.tokenized.shuffled/news.en.heldout-00001-of-00050",),
    "test": ("heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050",),
}

# WikiText: rare words were replaced by `<unk>` before publication, so every word of the text is kept. The last mirror
# in the list is the first publication, which has refused all requests since February 2024.
#
# Billion Word: the test set is held-out shard 00000, on which its authors and later papers report. The authors leave
# the choice of a validation set among the other 49 shards to the user; 00001 is the usual one (in Lingvo, for example).
# The published counts (768,648,884 words for training, 793,471 types with `<S>`, `</S>` and `<UNK>`) do not define
# white space. `prepare` also splits at white space outside ASCII, as fairseq does, and may count slightly differently.
# The numbers of lines and bytes do not depend on white space.
#
# enwik8: it was published as one text without splits. Papers train on the first 90 million bytes.
#
# LAMBADA: the training text is the novels in the order of their names, since the archive defines no order. The number
# of words is published as 203 million, without an exact number. The number of novels (2,662) is not verified. Valid and
# test are passages, one per line. `control.txt` holds 5,000 more for `trainers.last_words`. The 60,000 words are the
# most frequent words of the training text; the program of Sun and Iyyer also counts the words of valid and test.
#
# docs/archives.md says where the checksums are published, and which archives have none.
PUBLIC_CORPORA = {
    "wikitext-103": PublicCorpus(
        mirrors=(
            "https://wikitext.smerity.com/wikitext-103-v1.zip",
            "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/gluon/dataset/wikitext-103/wikitext-103-v1.zip",
            "https://paddlenlp.bj.bcebos.com/data/benchmark/wikitext-103.tar.gz",
            "https://dax-cdn.cdn.appdomain.cloud/dax-wikitext-103/1.0.1/wikitext-103.tar.gz",
            "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-103-v1.zip",
        ),
        members=_WIKITEXT,
        min_count=1,
        published={"train": {"tokens": 103_227_021}, "valid": {"tokens": 217_646}, "test": {"tokens": 245_569}},
        types=267_735,
        archive_sums={"wikitext-103-v1.zip": "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590"},
        text_sums={
            "train": "b7497e2dfe77e72cfef5e3dbc61b7b53712ac211",
            "valid": "c326ac59dc587676d58c422eb8a03e119582f92b",
            "test": "8a5befc548865cec54ed4273cf87dbbad60d1e47",
        },
    ),
    "wikitext-2": PublicCorpus(
        mirrors=(
            "https://wikitext.smerity.com/wikitext-2-v1.zip",
            "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/gluon/dataset/wikitext-2/wikitext-2-v1.zip",
            "https://paddlenlp.bj.bcebos.com/data/benchmark/wikitext-2.tar.gz",
            "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
        ),
        members=_WIKITEXT,
        min_count=1,
        published={"train": {"tokens": 2_088_628}, "valid": {"tokens": 217_646}, "test": {"tokens": 245_569}},
        types=33_278,
        archive_sums={"wikitext-2-v1.zip": "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c"},
        text_sums={
            "train": "863f29c46ef9d167fff4940ec821195882fe29d1",
            "valid": "0418625c8b4da6e4b5c7a0b9e78d4ae8f7ee5422",
            "test": "c7b8ce0aa086fb34dab808c5c49224211eb2b172",
        },
    ),
    "billion-word": PublicCorpus(
        mirrors=(
            "https://www.statmt.org/lm-benchmark/1-billion-word-language-modeling-benchmark-r13output.tar.gz",
            "https://paddlerec.bj.bcebos.com/word2vec/1-billion-word-language-modeling-benchmark-r13output.tar",
        ),
        members=_BILLION_WORD,
        min_count=3,
        published={
            "train": {"lines": 30_301_028, "bytes": 4_147_291_308},
            "valid": {"lines": 6_206},
            "test": {"lines": 6_075},
        },
        archive_sums={
            "1-billion-word-language-modeling-benchmark-r13output.tar.gz": (
                "01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e"
            )
        },
    ),
    "enwik8": PublicCorpus(
        mirrors=("http://mattmahoney.net/dc/enwik8.zip", "http://cs.fit.edu/~mmahoney/compression/enwik8.zip"),
        members={"all": ("enwik8",)},
        min_count=1,
        published={"train": {"bytes": 90_000_000}, "valid": {"bytes": 5_000_000}, "test": {"bytes": 5_000_000}},
        text_sums={"all": "57b8363b814821dc9d47aa4d41f58733519076b2"},
        sizes={"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000},
        tokenizer="bytes",
    ),
    "lambada": PublicCorpus(
        mirrors=(
            "https://zenodo.org/records/2630551/files/lambada-dataset.tar.gz",
            "http://clic.cimec.unitn.it/lambada/lambada-dataset.tar.gz",
        ),
        members={
            "train": ("train-novels.tar",),
            "valid": ("lambada_development_plain_text.txt",),
            "test": ("lambada_test_plain_text.txt",),
            "control": ("lambada_control_test_data_plain_text.txt",),
        },
        min_count=1,
        max_words=60_000,
        published={"train": {"million_words": 203}, "valid": {"lines": 4_869}, "test": {"lines": 5_153}},
        types=60_002,
        archive_sums={"lambada-dataset.tar.gz": "8fbe499096ddbdcbbd0cac406861b5026fb451d15b8fe04e0e4f3d082f2ad5d7"},
    ),
}


def prepare_public(
    name: str,
    download_dir: str | os.PathLike,
    data_dir: str | os.PathLike,
    *,
    min_count: int | None = None,
    subwords: int = 0,
    mirrors: Sequence[str] = (),
    report: Callable[[str], None] = print,
    vocabulary: Vocabulary | None = None,
    processes: int = 1,
    checksums: bool = True,
) -> Corpus:
    """Downloads, unpacks and prepares one of `PUBLIC_CORPORA`, and verifies its published checksums and counts.

    The archive and the texts stay in `download_dir`, so that the next call needs no network. Both can be removed once
    the corpus is complete.

    Args:
        name: Key of `PUBLIC_CORPORA`.
        download_dir: Folder for the archive and for the texts, which are in its folder `name`.
        data_dir: Folder to create, as in `prepare`.
        min_count: Smallest number of occurrences in `train` of a word to keep; the published number by default. With
            another number, the number of types is not verified.
        subwords: Number of merges of a byte-pair encoding; 0 for a corpus of words.
        mirrors: Addresses to use instead of the public ones.
        report: Function that is called with lines of progress.
        vocabulary: A `Vocabulary` to use instead of the words of `train`, as in `prepare`. The number of types is then
            not verified. Optional.
        processes: Number of parts of the texts that are read at the same time, as in `prepare`.
        checksums: Whether to refuse archives and texts that differ from the published checksums.

    Returns:
        The `Corpus`.

    Raises:
        ValueError: If `name` is unknown, these units are not supported, the counts differ from the published counts, or
            `data_dir` holds something else.
        OSError: If no mirror has the archive.
    """
    public = _named(name)
    choices = Choices(public.tokenizer, min_count or public.min_count, public.max_words, subwords, vocabulary)
    choices.check()  # raises errors before the work begins
    is_free(data_dir)
    texts = fetch_texts(name, download_dir, mirrors, report, checksums)
    report(f"Reading {texts}")
    check = functools.partial(_check_counts, public, texts)
    return write_corpus(texts, data_dir, choices, source=name, check=check, processes=processes, report=report)


def fetch_texts(name, download_dir, mirrors=(), report=print, checksums=True):
    """Downloads and unpacks one of `PUBLIC_CORPORA` from the first mirror that has it, as `prepare_public` does.

    Returns the folder in `download_dir` with `train.txt`, `valid.txt` and `test.txt`, and for LAMBADA `control.txt`. An
    archive that `download_dir` already holds is used.
    """
    public = _named(name)
    texts = Path(download_dir, name)
    if texts.is_dir():
        if checksums:
            _check_kept(public, texts)
        return texts
    archives = {url: Path(download_dir, Path(urlsplit(url).path).name or name) for url in mirrors or public.mirrors}
    existing = {archive for archive in archives.values() if archive.is_file()}
    failures, urls = [], {archive: url for url, archive in reversed(archives.items()) if archive in existing}
    for url in (*urls.values(), *(url for url, archive in archives.items() if archive not in existing)):
        try:
            _fetch_archive(url, archives[url], report, public.most_bytes)
        except (OSError, ValueError) as error:
            failures.append(_failure(url, error, report))
            continue
        try:
            check_sum(public.archive_sums.get(archives[url].name) if checksums else None, archives[url])
            report(f"Unpacking {archives[url]}")
            sums = public.text_sums if checksums else {}
            return unpack(archives[url], public.members, texts, sums, public.sizes, public.most_bytes)
        except ValueError as error:
            if archives[url] in existing:
                error = f"{error} {archives[url]} was there already: remove it to download it."
            else:
                archives[url].unlink()
            failures.append(_failure(url, error, report))
    raise OSError(
        f"No mirror has {name}: {'; '.join(failures)}. Download it by hand to {next(iter(archives.values()))} and run "
        "this again, or pass --source=FOLDER with the unpacked texts."
    )


def _check_kept(public, texts):
    """Raises a ValueError if existing texts have other checksums than the published ones."""
    try:
        for name, published in public.text_sums.items():
            check_sum(published, *(find_text(texts, split) for split in (SPLITS if name == "all" else [name])))
    except ValueError as error:
        raise ValueError(f"{error} {texts} was there already: remove it to download it.") from None


def _named(name):
    """Returns one of `PUBLIC_CORPORA`."""
    if name not in PUBLIC_CORPORA:
        raise ValueError(f"`name` must be one of {list(PUBLIC_CORPORA)}. Received: name={name!r}.")
    return PUBLIC_CORPORA[name]


def _fetch_archive(url, archive, report, most):
    if archive.is_file():
        report(f"Using {archive}, which exists already")
    else:
        report(f"Downloading {url}")
        download(url, archive, report, most)


def _failure(url, error, report):
    line = f"{url}: {' '.join(str(error).split())}"
    report(line)
    return line


def _check_counts(public, texts, corpus):
    """Raises a ValueError unless a corpus has the published counts."""
    splits = corpus.metadata["splits"]
    splits = {split: facts | {"tokens": facts.get("words", facts["tokens"])} for split, facts in splits.items()}
    for facts in splits.values():
        facts["million_words"] = round((facts["tokens"] - facts["lines"]) / 1e6, 3)
    pairs = {
        f"{split} {fact}": (expected, splits[split][fact])
        for split, facts in public.published.items()
        for fact, expected in facts.items()
    }
    if public.types and corpus.metadata["min_count"] == public.min_count:
        pairs["types"] = public.types, np.count_nonzero(corpus.word_vocabulary.counts)
    wrong = [
        f"{what.replace('_', ' ')} {actual:,} (published: {expected:,})"
        for what, (expected, actual) in pairs.items()
        if abs(expected - actual) >= (1 if "million" in what else 0.5)  # millions may have been rounded up or down
    ]
    if wrong:
        raise ValueError(
            f"{texts} does not have the published counts: {', '.join(wrong)}. Remove it and its archive to download "
            "it again, or prepare it as it is with --source=FOLDER."
        )
