"""Public corpora: their checksums and their counts."""

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from keras_adaptive.data import PUBLIC_CORPORA, SPECIAL_WORDS, SPLITS, Vocabulary, prepare, prepare_public
from keras_adaptive.data.sources.public_corpora import fetch_texts
from tests.support.archives import NAMED, TEXTS, TOKENS, files_in, read, tarred, zipped
from tests.support.refusals import refused
from tests.support.text import write_splits

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[3]


# --- checksums ---


def test_an_archive_of_another_checksum_is_refused_and_the_next_mirror_asked(site, tmp_path, tiny):
    right = tarred(NAMED)
    bad, good = site.add("a/tiny.zip", zipped({**NAMED, "more": b"!"})), site.add("b/tiny.tgz", right)
    sums = {"tiny.zip": "0" * 64, "tiny.tgz": hashlib.sha256(right).hexdigest()}
    tiny(archive_sums=sums)
    match = "tiny.zip must have the published sha256 0{64}: .* --nochecksums .* Received: "
    refused(fetch_texts, "tiny", tmp_path, [bad], match=match, error=OSError)
    assert files_in(tmp_path) == set()
    assert read(fetch_texts("tiny", tmp_path, [bad, good])) == TEXTS
    assert read(fetch_texts("tiny", tmp_path / "other", [bad], checksums=False)) == TEXTS


def test_an_archive_that_was_there_is_never_removed(site, tmp_path, tiny):
    right, wrong = zipped(NAMED), zipped({**NAMED, "more": b"!"})
    mirrors = [site.add("a/tiny.zip", right), site.add("b/tiny.zip", right)]
    tiny(archive_sums={"tiny.zip": hashlib.sha256(right).hexdigest()})
    archive = tmp_path / "tiny.zip"
    for content in (wrong, b"no archive"):
        archive.write_bytes(content)
        kept = f"Received: .* {archive} was there already: remove it to download it"
        with pytest.raises(OSError, match=kept) as error:
            fetch_texts("tiny", tmp_path, mirrors)
        assert archive.read_bytes() == content and str(error.value).count("was there already") == 1
    assert not site.requests
    other = site.add("c/tiny.tar", tarred(NAMED, "w"))
    assert read(fetch_texts("tiny", tmp_path, [*mirrors, other])) == TEXTS and archive.read_bytes() == content


def test_a_text_of_another_checksum_is_refused_whatever_its_archive(site, tmp_path, tiny):
    sums = {split: hashlib.sha1(text).hexdigest() for split, text in TEXTS.items()}
    tiny(text_sums=sums)
    changed = {**NAMED, "wikitext-tiny/wiki.valid.tokens": b"the god\n\n"}  # of the same length and counts
    bad, good = site.add("a/tiny.tgz", tarred(changed)), site.add("b/tiny.tar", tarred(NAMED, "w"))
    match = f"valid.txt must have the published sha1 {sums['valid']}"
    refused(fetch_texts, "tiny", tmp_path, [bad], match=match, error=OSError)
    assert files_in(tmp_path) == set()
    assert read(fetch_texts("tiny", tmp_path, [bad, good])) == TEXTS
    assert read(fetch_texts("tiny", tmp_path / "other", [bad], checksums=False))["valid"] == b"the god\n\n"


@pytest.mark.parametrize("of", ["each", "all"])
def test_texts_that_were_there_are_compared_too(tmp_path, tiny, of):
    """The texts of enwik8 have one checksum together."""
    parts = [TEXTS[split] for split in SPLITS]
    each = dict(zip(SPLITS, parts)) if of == "each" else {"all": b"".join(parts)}
    tiny(text_sums={name: hashlib.sha1(text).hexdigest() for name, text in each.items()})
    texts = write_splits(tmp_path / "tiny", "", **TEXTS)
    assert fetch_texts("tiny", tmp_path) == texts
    (texts / "valid.txt").write_bytes(b"the god\n\n")  # of the same length and counts
    changed = f"valid.txt.* must have the published sha1 .* {texts} was there already: rem"
    refused(fetch_texts, "tiny", tmp_path, match=changed)
    assert fetch_texts("tiny", tmp_path, checksums=False) == texts
    (texts / "valid.txt").unlink()
    refused(fetch_texts, "tiny", tmp_path, match=f"valid.txt is missing. .* {texts} was there already: remove")


def test_the_published_checksums_belong_to_archives_and_splits():
    for public in PUBLIC_CORPORA.values():
        names = {Path(urlsplit(mirror).path).name for mirror in public.mirrors}
        assert (public.archive_sums or public.text_sums) and set(public.archive_sums) <= names
        assert set(public.text_sums) in (set(), set(public.members))
        assert all(re.fullmatch("[0-9a-f]{64}", one) for one in public.archive_sums.values())
        assert all(re.fullmatch("[0-9a-f]{40}", one) for one in public.text_sums.values())


# --- counts ---


def test_a_public_corpus_is_prepared(site, tmp_path, tiny):
    mirrors = [site.add("tiny.zip", zipped(NAMED))]
    corpus = prepare_public("tiny", tmp_path / "in", tmp_path / "out", mirrors=mirrors)
    assert " ".join(corpus.vocabulary.decode(corpus.tokens("train")[:8])) == "= a = </s> </s> the cat <unk>"
    assert (corpus.metadata["source"], corpus.metadata["min_count"], len(corpus.vocabulary)) == ("tiny", 1, 16)
    assert prepare_public("tiny", tmp_path / "in", tmp_path / "out").metadata == corpus.metadata
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    "published, message",
    [
        ({"published": {**TOKENS, "valid": {"tokens": 1_005}}}, "valid tokens 4 (published: 1,005). Remove"),
        ({"published": {"train": {"lines": 5, "bytes": 9}}}, "train lines 4 (published: 5), train bytes 31 (publ"),
        ({"types": 8}, "types 7 (published: 8)"),
    ],
)
def test_other_counts_than_the_published_are_refused(site, tmp_path, tiny, published, message):
    tiny(mirrors=(site.add("tiny.zip", zipped(NAMED)),), **published)
    places = tmp_path / "in", tmp_path / "out"
    refused(prepare_public, "tiny", *places, match=re.escape(message))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    prepare(tmp_path / "in" / "tiny", tmp_path / "out", min_count=1)
    refused(prepare_public, "tiny", *places, match=re.escape(message))  # nor because it is there already


def test_one_text_is_divided_into_the_splits(site, tmp_path, tiny):
    """A text is divided by bytes, even within a character, as enwik8 is."""
    text = "ab\nçd\n".encode()
    url = site.add("tiny.zip", zipped({"tiny": text}))
    whole = {"members": {"all": ("tiny",)}, "text_sums": {"all": hashlib.sha1(text).hexdigest()}}
    sizes = {"train": 4, "valid": 1, "test": 2}
    published = {split: {"bytes": size} for split, size in sizes.items()}
    tiny(mirrors=(url,), sizes=sizes, tokenizer="bytes", types=None, published=published, **whole)
    corpus = prepare_public("tiny", tmp_path / "in", tmp_path / "out")
    assert read(tmp_path / "in" / "tiny") == {"train": text[:4], "valid": text[4:5], "test": text[5:]}
    assert [len(corpus.tokens(split)) for split in SPLITS] == [5, 2, 2] and corpus.metadata["unit"] == "byte"
    tiny(mirrors=(url,), sizes={**sizes, "test": 3}, tokenizer="bytes", **whole)
    places = tmp_path / "other", tmp_path / "new"
    refused(prepare_public, "tiny", *places, match="all.txt must have 8 bytes. Received: 7", error=OSError)


def test_an_unknown_name(tmp_path):
    match = "`name` must be one of .*'wikitext-2'.* Received: name='wikitext-1'"
    refused(prepare_public, "wikitext-1", tmp_path / "in", tmp_path / "out", match=match)


@pytest.mark.parametrize("tokenizer, message", [("bytes", "needs a tokenizer"), ("whitespace", "not both")])
def test_units_that_do_not_fit_are_refused_before_the_download(site, tmp_path, tiny, tokenizer, message):
    tiny(mirrors=(site.add("tiny.zip", zipped(NAMED)),), tokenizer=tokenizer)
    given = Vocabulary([*SPECIAL_WORDS, "the"], [0] * 5)
    places = tmp_path / "in", tmp_path / "out"
    refused(prepare_public, "tiny", *places, subwords=2, vocabulary=given, match=message)
    assert not site.requests and files_in(tmp_path) == set()


def test_types_are_held_to_the_published_min_count_only(site, tmp_path, tiny):
    tiny(mirrors=(site.add("tiny.zip", zipped(NAMED)),))
    assert len(prepare_public("tiny", tmp_path / "in", tmp_path / "out", min_count=2).vocabulary) == 8
    given = Vocabulary([*SPECIAL_WORDS, "the"], [0] * 5)
    assert len(prepare_public("tiny", tmp_path / "in", tmp_path / "given", vocabulary=given).vocabulary) == 5
    tiny(published={**TOKENS, "test": {"tokens": 9}})
    places = tmp_path / "in", tmp_path / "other"
    refused(prepare_public, "tiny", *places, min_count=2, match="test tokens 3")


@pytest.mark.parametrize("name", PUBLIC_CORPORA)
def test_the_table_of_corpora(name):
    corpus = PUBLIC_CORPORA[name]
    assert len({urlsplit(url).hostname for url in corpus.mirrors}) > 1
    assert all(url.startswith("http") and re.search(r"\.(zip|tar|tar\.gz)$", url) for url in corpus.mirrors)
    assert corpus.published.keys() == set(SPLITS)
    more = {"control"} if name == "lambada" else set()
    assert corpus.members.keys() == (set(SPLITS) | more if not corpus.sizes else {"all"})


def test_billion_word_is_99_shards_and_two_held_out_ones():
    members = PUBLIC_CORPORA["billion-word"].members
    assert len(set(members["train"])) == 99 and list(members["train"]) == sorted(members["train"])
    assert members["train"][-1] == "training-monolingual.tokenized.shuffled/news.en-00099-of-00100"
    folder = "heldout-monolingual.tokenized.shuffled/news.en.heldout-0000"
    assert (members["valid"], members["test"]) == ((f"{folder}1-of-00050",), (f"{folder}0-of-00050",))


def test_published_counts_of_the_real_wikitext(site, tmp_path, monkeypatch):
    folder = Path(os.environ.get("WIKITEXT_2", ROOT.parent / "shared" / "data" / "wikitext-2"))
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing; WIKITEXT_2 may name a folder with valid.txt and test.txt of WikiText-2")
    texts = {split: (folder / f"{split}.txt").read_bytes() for split in ("valid", "test")}
    texts["train"] = texts["valid"]
    archive = zipped({f"wikitext-2/wiki.{split}.tokens": text for split, text in texts.items()})
    published = PUBLIC_CORPORA["wikitext-2"].published
    with pytest.raises(ValueError) as error:
        mirrors = [site.add("wikitext-2.zip", archive)]
        prepare_public("wikitext-2", tmp_path, tmp_path / "out", mirrors=mirrors, checksums=False)
    assert "train tokens 217,646 (published: 2,088,628)" in str(error.value)  # it is the valid text
    assert "valid tokens" not in str(error.value) and "test tokens" not in str(error.value)
    assert published["valid"] == PUBLIC_CORPORA["wikitext-103"].published["valid"] == {"tokens": 217_646}
    assert published["test"] == PUBLIC_CORPORA["wikitext-103"].published["test"] == {"tokens": 245_569}
