"""Unpacks archives from untrusted sources within bounds, and compares published checksums."""

import contextlib
import functools
import gzip
import hashlib
import math
import shutil
import tarfile
import zipfile
import zlib
from typing import NamedTuple

from keras_adaptive.files import complete_or_absent

_CHUNK = 1 << 20  # bytes in memory at a time
_LONGEST_HEADER = 1 << 20  # bytes
_IN_MEMORY = {
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
}  # types of headers whose contents tarfile reads into memory
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError)


def unpack(archive, members, folder, sums=None, sizes=None, most=math.inf):
    """Writes the texts of a zip or tar archive. Only the given members are unpacked, under fixed names.

    Args:
        members: Dict from each split to the names of its members, in order. An archive may prefix them with folders. A
            member `NAME.tar` stands for its `.txt` files, in the order of their names.
        folder: Folder to create, with a text for each key of `members`, such as `train.txt`. It appears complete or not
            at all.
        sums: Dict from a split to the published SHA-1 of its text. A split without a sum is not compared. Optional.
        sizes: Dict from each split to the size of its text in bytes, if `members` has a single text, `all`, that
            contains all splits one after the other. Optional.
        most: Largest number of bytes that the archive may unpack to.
    """
    wanted = [name for names in members.values() for name in names]
    with complete_or_absent(folder) as new:
        pieces = {name: new / str(number) for number, name in enumerate(wanted)}
        with _sound(archive):
            _extract(archive, pieces, most)
        missing = [name for name in wanted if not pieces[name].exists()]
        if missing:
            raise ValueError(f"{archive} lacks {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else ""))
        for split, names in members.items():
            for name in names:
                if name.endswith(".tar"):
                    with _sound(f"{name} in {archive}"):
                        _join_texts(pieces[name], name)
            _join([pieces[name] for name in names], new / f"{split}.txt")
            check_sum((sums or {}).get(split), new / f"{split}.txt")
        if sizes:
            _divide(new / "all.txt", sizes)
    return folder


@contextlib.contextmanager
def _sound(archive):
    """Converts the errors that a damaged archive raises while it is read into a ValueError of one line."""
    try:
        yield
    except _BROKEN as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{archive} is not a zip or tar archive, or is damaged: {reason}") from error


def _divide(text, sizes):
    """Divides a text into the texts of the splits. Its size must be the sum of their sizes."""
    if text.stat().st_size != sum(sizes.values()):
        raise ValueError(f"{text.name} must have {sum(sizes.values()):,} bytes. Received: {text.stat().st_size:,}.")
    with open(text, "rb") as source:
        for split, size in sizes.items():
            with open(text.with_name(f"{split}.txt"), "wb") as target:
                for start in range(0, size, _CHUNK):
                    target.write(source.read(min(_CHUNK, size - start)))
    text.unlink()


def check_sum(published, *paths):
    """Raises a ValueError if the concatenation of files has another SHA-1 or SHA-256 than the published one, if any."""
    if published is None:
        return
    algorithm = {40: "sha1", 64: "sha256"}[len(published)]
    digest = hashlib.new(algorithm)
    for path in paths:
        with open(path, "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    if (actual := digest.hexdigest()) != published:
        names = ", ".join(path.name for path in paths)
        raise ValueError(
            f"{names} must have the published {algorithm} {published}: it is damaged or another file. Use another "
            f"mirror, or pass --nochecksums to accept it. Received: {actual}."
        )


class _Bound:
    """Counts the bytes that an archive may still unpack to."""

    def __init__(self, archive, most):
        self.archive, self.most, self.left = archive, most, most

    def take(self, number):
        self.left -= number
        if self.left < 0:
            raise ValueError(f"{self.archive} unpacks to more than {self.most:,} bytes: it is not the published one")


class _Bounded(NamedTuple):
    """File in an archive whose bytes count towards the bound."""

    source: object
    bound: _Bound

    def read(self, size):
        data = self.source.read(size)
        self.bound.take(len(data))
        return data


class _Header(tarfile.TarInfo):
    """Header of a member. Its contents (a long name, the fields of pax) are read into memory, so they are bounded."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        header = super().frombuf(buf, encoding, errors)
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a sparse member, which no published archive has")
        in_memory = header.type in _IN_MEMORY
        if header.size < 0 or in_memory and header.size > _LONGEST_HEADER:
            raise tarfile.ReadError(
                f"a header of {header.size:,} bytes, where at most {_LONGEST_HEADER:,} are expected"
            )
        return header


def _extract(archive, pieces, most):
    """Writes every member whose name ends in one of `pieces` to its path."""
    bound = _Bound(archive, most)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            for member in file.infolist():
                _write_piece(member.filename, functools.partial(file.open, member), pieces, bound)
    else:
        with tarfile.open(archive, tarinfo=_Header) as file:
            for member in _members(file, bound):
                open_member = functools.partial(file.extractfile, member)
                if not (member.isfile() and _write_piece(member.name, open_member, pieces, bound)):
                    bound.take(member.size)  # its bytes are read to reach the next member
            tail = _Bounded(file.fileobj, bound)
            while tail.read(1 << 20):  # gzip compares its checksum at the end
                pass


def _members(file, bound):
    """Yields the members of a tar, whose headers count towards the bound."""
    for member in file:
        if member.size < 0:  # with such a size in the fields of pax, reading would jump back and never end
            raise tarfile.ReadError(f"a member of {member.size:,} bytes")
        bound.take(tarfile.BLOCKSIZE)
        yield member


def _write_piece(name, open_member, pieces, bound):
    """Writes a member if it is wanted, and returns whether it is."""
    piece = next((piece for piece in pieces if f"/{name}".endswith(f"/{piece}")), None)
    if piece:
        with open_member() as source, open(pieces[piece], "wb") as target:
            shutil.copyfileobj(_Bounded(source, bound), target)
    return piece is not None


def _join(pieces, path):
    with open(path, "wb") as file:
        for piece in pieces:
            with open(piece, "rb") as source:
                shutil.copyfileobj(source, file)
            piece.unlink()


def _join_texts(tar, name):
    """Replaces a tar by its texts, concatenated in the order of their names. Each text ends with a line end."""
    bound, whole = _Bound(name, tar.stat().st_size), tar.with_name(f"{tar.name}.txt")
    with tarfile.open(tar, "r:", tarinfo=_Header) as file, open(whole, "wb") as target:
        members = [member for member in _members(file, bound) if member.isfile() and _is_text(member.name)]
        if not members:
            raise tarfile.ReadError("it contains no text")
        for member in sorted(members, key=lambda member: member.name):
            last = b"\n"
            source = _Bounded(file.extractfile(member), bound)
            while chunk := source.read(_CHUNK):
                target.write(chunk)
                last = chunk[-1:]
            target.write(b"" if last == b"\n" else b"\n")
    whole.replace(tar)


def _is_text(name):
    name = name.rpartition("/")[2]
    return name.endswith(".txt") and not name.startswith(".")  # some systems add hidden files
