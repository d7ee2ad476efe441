import os

_CHUNK = 1 << 20  # bytes of text in memory at a time


def parts(path, size):
    """Returns the (start, stop) of the parts of a text of about `size` bytes. All but the first follow white space.

    No word is cut, so that a part may be longer. The cuts depend on the text and `size` alone.
    """
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        cuts = [_behind_white_space(file, place) for place in range(size, end, size)]
    cuts = sorted({0, *cuts, end})
    return list(zip(cuts[:-1], cuts[1:]))


def read_words(path, tokenize, start=0, stop=None, any_bytes=False):
    """Yields the words of a part of a text, some at a time, with `</s>` at the end of each line, blank lines too.

    Only a line feed ends a line: other separators of lines are white space within one. A line may be of any length.
    With `any_bytes` the text need not be UTF-8: other bytes come as lone surrogates, as `surrogateescape` makes them.
    """
    for text in _read_text(path, start, stop, any_bytes):
        words = []
        for line in text.split("\n"):
            words += tokenize(line)
            words.append("</s>")
        words.pop()  # the text after the last line feed is not complete yet
        yield words


def _behind_white_space(file, place):
    """Returns the first place from `place` on that follows a space or a line feed, or the end."""
    file.seek(place - 1)
    while chunk := file.read(_CHUNK):
        found = [chunk.find(mark) for mark in (b" ", b"\n")]
        if max(found) >= 0:
            return file.tell() - len(chunk) + min(place for place in found if place >= 0) + 1
    return file.tell()


def _read_text(path, start, stop, any_bytes):
    """Yields a part of a text in pieces that end with white space; the text ends with a line feed."""
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        stop = end if stop is None else stop
        file.seek(start)
        rest = b""
        while chunk := file.read(min(_CHUNK, stop - file.tell())):
            begin = file.tell() - len(chunk) - len(rest)
            chunk = rest + chunk
            size = len(chunk) if file.tell() == stop else 1 + max(chunk.rfind(b" "), chunk.rfind(b"\n"))
            rest = chunk[size:]
            text = chunk[:size].decode(errors="surrogateescape") if any_bytes else _decode(chunk[:size], path, begin)
            text = text.removeprefix("\ufeff") if begin == 0 and not any_bytes else text  # of some editors, no word
            yield text + "\n" if begin + size == end and not text.endswith("\n") else text


def _decode(chunk, path, begin):
    try:
        return chunk.decode()
    except UnicodeDecodeError as error:
        line, byte = _line_and_byte(path, begin + error.start)
        where = f"{path}:{line}, byte {byte} of the line"
        raise ValueError(f"{where}: not valid UTF-8. Convert the file to UTF-8.") from None


def _line_and_byte(path, offset):
    """Returns the number of the line that a byte is in, and its place there, both from 1 on."""
    lines = place = begin = 0
    with open(path, "rb") as file:
        while chunk := file.read(min(_CHUNK, offset - place)):
            lines += chunk.count(b"\n")
            begin = place + chunk.rfind(b"\n") + 1 if b"\n" in chunk else begin
            place += len(chunk)
    return lines + 1, offset - begin + 1
