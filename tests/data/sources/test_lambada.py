"""LAMBADA: novels in an archive within the archive, the most frequent words, and words published in millions."""

import io
import re
import tarfile

import pytest

from keras_adaptive.data import PUBLIC_CORPORA, prepare_public
from keras_adaptive.data.sources.archives import unpack
from tests.support.archives import files_in, read, tarred
from tests.support.refusals import refused

pytestmark = pytest.mark.once

NOVELS = {
    "train-novels/Young_Adult/b.txt": b"the cat sat\nthe dog",
    "train-novels/Adventure/z.txt": b"a cat\n",
    "train-novels/Adventure/._z.txt": b"\0 of some systems",
    "train-novels/list": b"b z",
}
PASSAGES = {
    "lambada_development_plain_text.txt": b"the dog sat\n",
    "lambada_test_plain_text.txt": b"the cat sat\nthe dog sat\n",
    "lambada_control_test_data_plain_text.txt": b"the cat\n",
    "lambada-vocab-2.txt": b"sat 1\n",
}
PUBLISHED = {"train": {"million_words": 0}, "valid": {"lines": 1}, "test": {"lines": 2}}
TRAIN = b"a cat\nthe cat sat\nthe dog\n"  # by the names of the novels, each with its last line ended
MEMBERS = PUBLIC_CORPORA["lambada"].members


def packed(novels):
    return tarred({**PASSAGES, "train-novels.tar": novels})


@pytest.fixture
def small(site, tiny):
    """`small(**fields)` publishes LAMBADA with two novels and two words under the name `tiny`."""

    def change(**fields):
        mirrors = (site.add("lambada.tar.gz", packed(tarred(NOVELS, "w"))),)
        fields = {"published": PUBLISHED, "max_words": 2, "types": 4, **fields}
        tiny(mirrors=mirrors, members=MEMBERS, **fields)

    return change


def test_novels_become_the_training_text_and_rare_words_unknown(small, tmp_path):
    small()
    corpus = prepare_public("tiny", tmp_path / "in", tmp_path / "out")
    texts = read(tmp_path / "in" / "tiny")
    assert texts.keys() == {"train", "valid", "test", "control"}
    assert texts["train"] == TRAIN and texts["control"] == b"the cat\n"
    assert corpus.vocabulary.words[4:6] == ["cat", "the"] and corpus.metadata["max_words"] == 2
    assert corpus.vocabulary.decode(corpus.tokens("valid")) == ["the", "<unk>", "<unk>", "</s>"]
    assert prepare_public("tiny", tmp_path / "in", tmp_path / "out").metadata == corpus.metadata


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"published": {**PUBLISHED, "train": {"million_words": 203}}}, "train million words 0.0 (published: 203)"),
        ({"published": {**PUBLISHED, "test": {"lines": 5_153}}}, "test lines 2 (published: 5,153)"),
        ({"max_words": 9, "types": 11}, "types 6 (published: 11)"),
    ],
    ids=["words", "passages", "types"],
)
def test_another_text_is_refused(small, tmp_path, fields, message):
    small(**fields)
    refused(prepare_public, "tiny", tmp_path / "in", tmp_path / "out", match=re.escape(message))
    assert not (tmp_path / "out").exists()


def test_published_millions_may_be_rounded_up_or_down(small, tmp_path):
    small(published={**PUBLISHED, "train": {"million_words": 0.9}})
    prepare_public("tiny", tmp_path / "in", tmp_path / "out")


def headed(**fields):
    """A tar of two novels, the second with these fields of pax."""
    member = tarfile.TarInfo("train-novels/x.txt")
    contents = b"1\n0\n0\n".ljust(512, b"\0")
    member.size, member.pax_headers = len(contents), {name.replace("_", "."): text for name, text in fields.items()}
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("train-novels/y.txt"))
        archive.addfile(member, io.BytesIO(contents))
    return file.getvalue()


SPARSE = {"GNU_sparse_major": "1", "GNU_sparse_minor": "0", "GNU_sparse_name": "x.txt"}
BAD = {
    "text": b"novels",
    "empty": b"",
    "truncated": tarred({"train-novels/x.txt": bytes(4_000)}, "w")[:1_024],
    "no text": tarred({"train-novels/x": b"x"}, "w"),
    "compressed": tarred(NOVELS),
    "sparse": headed(**SPARSE, GNU_sparse_realsize=str(10**9)),
    "a size that leads back": headed(size="-1536"),
}


@pytest.mark.parametrize("kind", BAD)
def test_an_archive_within_the_archive_is_not_trusted(tmp_path, kind):
    archive, match = tmp_path / "archive", "train-novels.tar (in .*archive is not a zip or tar|unpacks to more than)"
    archive.write_bytes(packed(BAD[kind]))
    refused(unpack, archive, MEMBERS, tmp_path / "texts", most=10**6, match=match)
    assert files_in(tmp_path) == {"archive"}


def test_sizes_that_lead_back_are_not_followed(tmp_path):
    """The archive itself would be read without end."""
    archive = tmp_path / "archive"
    archive.write_bytes(BAD["a size that leads back"])
    refused(unpack, archive, MEMBERS, tmp_path / "texts", most=10**6, match="archive (is not a zip or tar|lacks)")


def test_links_to_novels_are_not_followed(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            link = tarfile.TarInfo("train-novels/x.txt")
            link.type, link.linkname = kind, str(tmp_path / "secret.txt")
            archive.addfile(link)
        novel = tarfile.TarInfo("train-novels/y.txt")
        novel.size = 2
        archive.addfile(novel, io.BytesIO(b"y\n"))
    (tmp_path / "archive").write_bytes(packed(file.getvalue()))
    unpack(tmp_path / "archive", MEMBERS, tmp_path / "texts")
    assert (tmp_path / "texts" / "train.txt").read_bytes() == b"y\n"
