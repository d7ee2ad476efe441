import errno
import gzip
import json
import shutil
import tarfile
import zipfile

import pytest

from keras_adaptive.data.sources import downloads
from keras_adaptive.data.sources.downloads import download
from keras_adaptive.data.sources.public_corpora import PUBLIC_CORPORA, fetch_texts, unpack
from tests.support.archives import MEMBERS, NAMED, TEXTS, files_in, read, tarred, zipped
from tests.support.refusals import refused

pytestmark = pytest.mark.once

BODY, OTHER = (bytes((i * i * step) % 251 for i in range(10_000)) for step in (3, 5))


def failed(url, path, match, **how):
    """Begins a download, which must end with an error in one line."""
    refused(download, url, path, **how, match=match, error=OSError)


def damaged(archive):
    """Returns the archive with another byte in the longest text, which only the checksum detects."""
    assert archive.count(BODY) == 1
    return archive.replace(BODY, BODY[:5_000] + b"!" + BODY[5_001:])


# --- one file ---


@pytest.mark.parametrize("has_length", [True, False])
def test_a_download_is_the_file_and_nothing_else_stays(site, tmp_path, has_length):
    url = site.add("file.zip", BODY, has_length=has_length)
    assert download(url, tmp_path / "new" / "file.zip") == tmp_path / "new" / "file.zip"
    assert (tmp_path / "new" / "file.zip").read_bytes() == BODY
    assert files_in(tmp_path) == {"new/file.zip"}
    assert not site.requests[0][1]["User-Agent"].startswith("Python")  # which wikitext.smerity.com refuses


@pytest.mark.parametrize("etag, modified", [('"1"', None), (None, "Tue, 01 Mar 2016 12:00:00 GMT")])
def test_an_interrupted_download_goes_on_where_it_stopped(site, tmp_path, etag, modified):
    path = tmp_path / "file.zip"
    url = site.add("file.zip", BODY, etag=etag, modified=modified, stops_after=6_000)
    failed(url, path, "stopped after 6,000 of 10,000 bytes; the next call resumes")
    assert not path.exists()
    site.files["file.zip"].stops_after = 3_000
    failed(url, path, "stopped after 9,000 of 10,000 bytes")
    site.files["file.zip"].stops_after = None
    assert download(url, path).read_bytes() == BODY
    asked = [(headers.get("Range"), headers.get("If-Range")) for _, headers in site.requests]
    assert asked == [(None, None), ("bytes=6000-", etag or modified), ("bytes=9000-", etag or modified)]
    assert site.sent == [6_000, 3_000, 1_000]
    assert files_in(tmp_path) == {"file.zip"}


@pytest.mark.parametrize(
    "first, second",
    [
        ({}, {"etag": '"2"'}),
        ({}, {"etag": '"2"', "heeds_if_range": False}),
        ({}, {"etag": None, "heeds_if_range": False, "body": OTHER[:8_000]}),
        ({}, {"knows_ranges": False}),
        ({"etag": None}, {"etag": None}),
        ({"etag": 'W/"1"'}, {"etag": 'W/"1"'}),
        ({"has_length": False, "etag": None}, {}),
    ],
    ids=["changed", "If-Range ignored", "other size", "no ranges", "no version", "weak version", "no length"],
)
def test_two_versions_are_never_joined(site, tmp_path, first, second):
    url = site.add("file.zip", BODY, stops_after=6_000, **{"etag": '"1"', **first})
    if first.get("has_length", True):
        failed(url, tmp_path / "file.zip", "stopped after 6,000")
    else:  # the end cannot be told from the end of the file
        download(url, tmp_path / "file.zip")
    site.add("file.zip", **{"body": OTHER, **second})
    download(url, tmp_path / "file.zip")
    assert (tmp_path / "file.zip").read_bytes() == second.get("body", OTHER)


def test_a_part_from_another_address_is_not_continued(site, tmp_path):
    failed(site.add("a/file.zip", BODY, stops_after=6_000), tmp_path / "file.zip", "stopped")
    assert download(site.add("b/file.zip", OTHER), tmp_path / "file.zip").read_bytes() == OTHER
    assert "Range" not in site.requests[1][1]


def test_a_complete_part_needs_no_request(site, tmp_path):
    url = site.add("file.zip", BODY, stops_after=6_000)
    failed(url, tmp_path / "file.zip", "stopped")
    (partial,) = tmp_path.glob("*.partial")
    partial.write_bytes(BODY)  # as if the process had been killed just before it was done
    assert download(url, tmp_path / "file.zip").read_bytes() == BODY
    assert len(site.requests) == 1


@pytest.mark.parametrize("size, note", [(99, "{"), (10_001, None)], ids=["broken note", "too many bytes"])
def test_parts_that_cannot_be_trusted_start_anew(site, tmp_path, size, note):
    url = site.add("file.zip", BODY)
    partial = tmp_path / "file.zip.127.0.0.1.partial"
    partial.write_bytes(b"x" * size)
    sound = json.dumps({"url": url, "version": '"1"', "size": 10_000})
    partial.with_name(f"{partial.name}.json").write_text(note or sound)
    assert download(url, tmp_path / "file.zip").read_bytes() == BODY


BAD_SERVERS = [("hangs", 0.2, "timed out"), ("talks_nonsense", 60, "not a usable answer: BadStatusLine")]


@pytest.mark.parametrize("how, timeout, message", BAD_SERVERS)
def test_bad_servers_are_errors(site, tmp_path, monkeypatch, how, timeout, message):
    monkeypatch.setattr(downloads, "_TIMEOUT", timeout)
    failed(site.add("file.zip", BODY, **{how: True}), tmp_path / "file.zip", message)
    assert not (tmp_path / "file.zip").exists()


@pytest.mark.parametrize("has_length", [True, False])
def test_a_server_that_drips_is_down(site, tmp_path, monkeypatch, has_length):
    monkeypatch.setattr(downloads, "_TIMEOUT", 0.2)
    url = site.add("file.zip", BODY, drips=True, has_length=has_length)
    failed(url, tmp_path / "file.zip", "less than 1000 bytes a second; the next call resumes after .* bytes")
    assert not (tmp_path / "file.zip").exists()
    site.files["file.zip"].drips = False
    assert download(url, tmp_path / "file.zip").read_bytes() == BODY


@pytest.mark.parametrize("has_length", [True, False])
def test_a_file_that_is_too_large_is_not_kept(site, tmp_path, has_length):
    url = site.add("file.zip", BODY, has_length=has_length)
    failed(url, tmp_path / "file.zip", "10,000 bytes, where at most 9,999 were expected", most=9_999)
    assert sum(path.stat().st_size for path in tmp_path.glob("*.partial")) == 0
    assert download(url, tmp_path / "file.zip", most=10_000).read_bytes() == BODY


def test_a_full_disk_is_named(site, tmp_path):
    (tmp_path / "file.zip.127.0.0.1.partial").symlink_to("/dev/full")
    full = "No space left on device: .*file.zip.127.0.0.1.partial"
    failed(site.add("file.zip", BODY), tmp_path / "file.zip", full)


def test_progress(site, tmp_path, monkeypatch):
    lines = []
    download(site.add("file.zip", BODY), tmp_path / "file.zip", lines.append)
    assert lines == []  # done before the first line was due
    monkeypatch.setattr(downloads, "_REPORT_EVERY", 0)
    monkeypatch.setattr(downloads, "_CHUNK", 4_000)
    download(site.add("big.zip", BODY * 100), tmp_path / "big.zip", lines.append)
    assert lines[-1] == "1.0 MB of 1.0 MB"


# --- archives ---


def test_only_the_wanted_members_are_written_in_their_order(tmp_path):
    members = {"train": ("b/two", "b/ten", "a/two"), "valid": ("v",), "test": ("t",)}
    named = {"x/b/ten": b"2\n", "./x/a/two": b"3\n", "b/two": b"1\n", "notb/two": b"-", "t": b"t\n", "x/v": b"v\n"}
    for kind, archive in (("zip", zipped(named)), ("tgz", tarred(named)), ("tar", tarred(named, "w"))):
        (tmp_path / "archive").write_bytes(archive)
        unpack(tmp_path / "archive", members, tmp_path / kind)
        assert read(tmp_path / kind) == {"train": b"1\n2\n3\n", "valid": b"v\n", "test": b"t\n"}


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_no_member_is_written_outside(tmp_path, pack):
    outside = {"../evil": b"!", "../../wiki.test.tokens": b"!", f"{tmp_path}/evil": b"!", f"{tmp_path}/wiki.v": b"!"}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "archive").write_bytes(pack({**outside, **NAMED}))
    unpack(tmp_path / "in" / "archive", MEMBERS, tmp_path / "in" / "texts")
    assert files_in(tmp_path) == {"in/archive", "in/texts/train.txt", "in/texts/valid.txt", "in/texts/test.txt"}
    assert read(tmp_path / "in" / "texts") == TEXTS


def test_links_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    with tarfile.open(tmp_path / "archive", "w") as archive:
        for kind, split in ((tarfile.SYMTYPE, "train"), (tarfile.LNKTYPE, "valid"), (tarfile.DIRTYPE, "test")):
            link = tarfile.TarInfo(f"wiki.{split}.tokens")
            link.type, link.linkname = kind, str(tmp_path / "secret")
            archive.addfile(link)
    refused(unpack, tmp_path / "archive", MEMBERS, tmp_path / "texts", match="lacks wiki.train.tokens and 2 more")
    assert files_in(tmp_path) == {"archive", "secret"}


BOMB = b"\0" * 10**6
BOMBS = {
    "zip": zipped({**NAMED, "wiki.train.tokens": BOMB}),
    "tar": tarred({**NAMED, "wiki.train.tokens": BOMB}),
    "tar of others": tarred({"others": BOMB, **NAMED}),
    "tar of empty members": tarred({**{f"empty/{number}": b"" for number in range(200)}, **NAMED}),
    "tail": gzip.compress(tarred(NAMED, "w") + BOMB),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_not_unpacked(tmp_path, kind):
    (tmp_path / "archive").write_bytes(BOMBS[kind])
    assert len(BOMBS[kind]) < 10_000
    match = "archive unpacks to more than 100,000 bytes: it is not the published one"
    refused(unpack, tmp_path / "archive", MEMBERS, tmp_path / "texts", most=100_000, match=match)
    assert files_in(tmp_path) == {"archive"}


def headed(kind, size, stored=None):
    """The archive after a header of a kind, which says that `size` bytes follow."""
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, size
    contents = bytes(abs(size) if stored is None else stored)
    return gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + contents + tarred(NAMED, "w"))


HEADERS = {
    "a long name": headed(tarfile.GNUTYPE_LONGNAME, 1 << 21),
    "a long link": headed(tarfile.GNUTYPE_LONGLINK, 1 << 21),
    "fields of pax": headed(tarfile.XHDTYPE, 1 << 21),
    "global fields of pax": headed(tarfile.XGLTYPE, 1 << 40, 0),
    "fields of Solaris": headed(tarfile.SOLARIS_XHDTYPE, 1 << 21),
    "a negative size": headed(tarfile.GNUTYPE_LONGNAME, -512),
    "a sparse member": headed(tarfile.GNUTYPE_SPARSE, 0),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_without_end_is_not_read(tmp_path, kind, first):
    before = b"" if first else gzip.compress(tarred({"others": b""}, "w")[: tarfile.BLOCKSIZE])
    (tmp_path / "archive").write_bytes(before + HEADERS[kind])
    match = "archive is not a .*(a header of -?[0-9,]+ bytes, where|a sparse member)"
    refused(unpack, tmp_path / "archive", MEMBERS, tmp_path / "texts", match=match)
    assert files_in(tmp_path) == {"archive"}


@pytest.mark.parametrize("name", PUBLIC_CORPORA)
def test_a_public_corpus_may_be_as_large_as_it_is_and_no_bomb(name):
    sizes = {"wikitext-103": 541e6, "wikitext-2": 13e6, "billion-word": 4200e6, "enwik8": 100e6, "lambada": 985e6}
    assert 1.5 * sizes[name] < PUBLIC_CORPORA[name].most_bytes < 10 * sizes[name]


LARGE = {**NAMED, "wikitext-tiny/wiki.test.tokens": BODY}
WRONG = {
    "page": b"<html>Sorry, moved.</html>",
    "empty": b"",
    "truncated zip": zipped(NAMED)[:-30],
    "truncated tar": gzip.compress(tarred(LARGE, "w"), 0)[:6_000],
    "damaged zip": damaged(zipped(LARGE, zipfile.ZIP_STORED)),
    "damaged tar": damaged(gzip.compress(tarred(LARGE, "w"), 0)),
    "another zip": zipped({"wiki.train.raw": b"a"}),
    "another tar": tarred({"wiki.train.raw": b"a"}),
    "half a zip": zipped({"wiki.train.tokens": b"a\n", "wiki.valid.tokens": b"a\n"}),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_archive_is_removed_and_the_next_mirror_asked(site, tmp_path, tiny, kind):
    wrong, right = site.add("a/tiny.zip", WRONG[kind]), site.add("b/tiny.zip", zipped(NAMED))
    with pytest.raises(OSError, match=r"is not a zip or tar archive|lacks wiki\.[tv]"):
        fetch_texts("tiny", tmp_path, [wrong])
    assert files_in(tmp_path) == set()
    assert read(fetch_texts("tiny", tmp_path, [wrong, right])) == TEXTS


def test_a_full_disk_is_not_blamed_on_the_archive(site, tmp_path, tiny, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    url = site.add("tiny.zip", zipped(NAMED))
    with monkeypatch.context() as patched, pytest.raises(OSError, match="^.Errno 28. No space left on device"):
        patched.setattr(shutil, "copyfileobj", full)
        fetch_texts("tiny", tmp_path, [url])
    assert files_in(tmp_path) == {"tiny.zip"}
    assert read(fetch_texts("tiny", tmp_path, [url])) == TEXTS


# --- mirrors ---


def test_the_next_mirror_is_asked_when_one_is_down(site, tmp_path, tiny, down):
    lines, archive = [], tarred(NAMED)  # once: it holds the second in which it was made
    stops = site.add("a/tiny.zip", zipped(NAMED), stops_after=20)
    good = site.add("b/tiny.tgz?download=true", archive)
    tiny(mirrors=(down, site.address("nowhere.zip"), stops, good, site.address("never.zip")))
    assert read(fetch_texts("tiny", tmp_path, report=lines.append)) == TEXTS
    assert (tmp_path / "tiny.tgz").read_bytes() == archive
    assert [path for path, _ in site.requests] == ["nowhere.zip", "a/tiny.zip", "b/tiny.tgz?download=true"]
    assert "refused" in lines[1] and "404" in lines[3] and "stopped after 20 of" in lines[5]
    assert all("\n" not in line for line in lines)


def test_the_mirror_after_an_interrupted_one_gives_a_whole_file(site, tmp_path, tiny):
    stops, good = site.add("a/tiny.zip", WRONG["page"], stops_after=9), site.add("b/tiny.zip", zipped(NAMED))
    good = good.replace("127.0.0.1", "localhost")  # another server
    assert read(fetch_texts("tiny", tmp_path, [stops, good])) == TEXTS
    assert files_in(tmp_path) == {"tiny.zip", "tiny/train.txt", "tiny/valid.txt", "tiny/test.txt"}


def test_one_line_names_every_mirror_when_all_fail(site, tmp_path, tiny, down):
    mirrors = [site.address("tiny.zip"), down, site.add("page.zip", WRONG["page"]), "no address"]
    with pytest.raises(OSError, match="^No mirror has tiny: ") as error:
        fetch_texts("tiny", tmp_path, mirrors)
    assert all(f"{mirror}: " in str(error.value) for mirror in mirrors) and "\n" not in str(error.value)
    assert f"by hand to {tmp_path / 'tiny.zip'}" in str(error.value) and "--source=FOLDER" in str(error.value)


def test_an_archive_brought_by_hand_needs_no_network(tmp_path, tiny, down):
    (tmp_path / "archive.zip").write_bytes(zipped(NAMED))
    mirrors = [down.replace("archive", "first"), down]
    lines = []
    assert read(fetch_texts("tiny", tmp_path, mirrors, lines.append)) == TEXTS
    assert lines[0] == f"Using {tmp_path / 'archive.zip'}, which exists already"
    (tmp_path / "archive.zip").unlink()
    assert read(fetch_texts("tiny", tmp_path, mirrors)) == TEXTS  # they are unpacked already
