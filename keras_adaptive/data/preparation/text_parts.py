import codecs
import os
import re
import zlib

from keras_adaptive.data.codecs.lines import split_lines
from keras_adaptive.data.sources.text_files import open_file

_CHUNK = 1 << 20  # bytes of text in memory at a time
_RETURNS = re.compile(rb"(?<!\r)\r+(?=\n)")  # the look-behind makes its time linear


def parts(path, size):
    """Divides a text into parts of about `size` bytes and returns their (start, stop).

    Every part except the first begins after white space, so that no word is cut, and a part may be longer. The cuts
    depend on the text and `size` only.
    """
    with open_file(path) as file:
        end = file.seek(0, os.SEEK_END)
        cuts = [_after_white_space(file, place) for place in range(size, end, size)]
    cuts = sorted({0, *cuts, end})
    return list(zip(cuts[:-1], cuts[1:]))


def checksums(path, parts, digest):
    """Returns the CRC-32 of each part of a text, whose bytes are also passed to the function `digest`, in order."""
    sums = []
    with open_file(path) as file:
        for start, stop in parts:
            checksum = 0
            for place in range(start, stop, _CHUNK):
                chunk = file.read(min(_CHUNK, stop - place))
                digest(chunk)
                checksum = zlib.crc32(chunk, checksum)
            sums.append(checksum)
    return sums


def read_words(path, tokenize, start=0, stop=None, any_bytes=False, digest=lambda chunk: None):
    """Yields lists of the words of a part of a text, with `</s>` at the end of each line, including blank lines.

    Lines are those of `split_lines`. A line may have any length. With `any_bytes`, the text need not be UTF-8: other
    bytes become lone surrogates, as with `surrogateescape`. The function `digest` gets all bytes of the part, in order.
    """
    for text in _read_text(path, start, stop, any_bytes, digest):
        words = []
        for line in split_lines(text):
            words += tokenize(line)
            words.append("</s>")
        words.pop()  # the line after the last line feed continues in the next piece
        yield words


def text_size(path, any_bytes=False):
    """Returns the number of bytes of a text as it is read: each line ends with one byte, and a mark is left out."""
    size = held = 0  # carriage returns are held until it is known what follows them
    ended = True
    with open_file(path) as file:
        if any_bytes or file.read(3) != codecs.BOM_UTF8:
            file.seek(0)
        while chunk := file.read(_CHUNK):
            text = chunk.lstrip(b"\r")
            held += len(chunk) - len(text)
            if text:
                body = text.rstrip(b"\r")
                size += len(_RETURNS.sub(b"", body) if b"\r" in body else body)
                size += 0 if body.startswith(b"\n") else held
                held = len(text) - len(body)
                ended = body.endswith(b"\n")
    return size + (held > 0 or not ended)


def _after_white_space(file, place):
    """Returns the first position, at or after `place`, that follows a space or a line feed, or the end."""
    file.seek(place - 1)
    while chunk := file.read(_CHUNK):
        places = [chunk.find(mark) for mark in (b" ", b"\n")]
        if max(places) >= 0:
            return file.tell() - len(chunk) + min(place for place in places if place >= 0) + 1
    return file.tell()


def _read_text(path, start, stop, any_bytes, digest):
    """Yields a part of a text in pieces that end with white space. A line feed is added at the end of the text."""
    with open_file(path) as file:
        end = file.seek(0, os.SEEK_END)
        stop = end if stop is None else stop
        file.seek(start)
        rest, begin = [], start  # chunks without white space are joined once, since such a run may be long
        while chunk := file.read(min(_CHUNK, stop - file.tell())):
            digest(chunk)
            size = len(chunk) if file.tell() == stop else 1 + max(chunk.rfind(b" "), chunk.rfind(b"\n"))
            if not size:
                rest.append(chunk)
                continue
            piece, rest = b"".join([*rest, chunk[:size]]), [chunk[size:]]
            text = piece.decode(errors="surrogateescape") if any_bytes else _decode(piece, path, begin)
            text = text.removeprefix("\ufeff") if begin == 0 and not any_bytes else text  # the byte order mark
            begin += len(piece)
            yield text + "\n" if begin == end and not text.endswith("\n") else text


def _decode(chunk, path, begin):
    try:
        return chunk.decode()
    except UnicodeDecodeError as error:
        line, byte = _line_and_byte(path, begin + error.start)
        where = f"{path}:{line}, byte {byte} of the line"
        raise ValueError(f"{where}: not valid UTF-8. Convert the file to UTF-8.") from None


def _line_and_byte(path, offset):
    """Returns the line of a byte and its position in the line, both counted from 1."""
    lines = place = begin = 0
    with open_file(path) as file:
        while chunk := file.read(min(_CHUNK, offset - place)):
            lines += chunk.count(b"\n")
            begin = place + chunk.rfind(b"\n") + 1 if b"\n" in chunk else begin
            place += len(chunk)
    return lines + 1, offset - begin + 1
