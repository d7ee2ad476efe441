_CHUNK = 1 << 20  # bytes of text in memory at a time


def read_words(path, tokenize):
    """Yields the words of a text, some lines at a time, with `</s>` at the end of each line, blank lines too.

    Only a line feed ends a line: other separators of lines are white space within one.
    """
    for lines in _read_lines(path):
        words = []
        for line in lines:
            words += tokenize(line)
            words.append("</s>")
        yield words


def _read_lines(path):
    number = 1
    with open(path, "rb") as file:
        while lines := file.readlines(_CHUNK):
            yield [_decode(line, path, number + i) for i, line in enumerate(lines)]
            number += len(lines)


def _decode(line, path, number):
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        where = f"{path}:{number}, byte {error.start + 1} of the line"
        raise ValueError(f"{where}: not valid UTF-8. Convert the file to UTF-8.") from None
