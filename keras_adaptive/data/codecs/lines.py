def split_lines(text: str) -> list[str]:
    r"""Splits a text into lines, in the one way in which all parts of the package read a text.

    A line feed ends a line. Carriage returns before it, or at the end of the text, belong to the end of the line, as
    `\r\n` of Windows. No other character ends a line: a carriage return elsewhere, U+000B, U+000C, U+0085, U+2028 and
    U+2029 are white space within a line.

    Example:

    >>> split_lines("one\r\ntwo\u2028three\n")
    ['one', 'two\u2028three', '']
    """
    return [line.rstrip("\r") for line in text.split("\n")]
