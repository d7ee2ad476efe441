"""Tables of text."""


def aligned(rows, justify=str.rjust):
    """Returns rows of cells as lines of text: the first column to the left, the others by `justify`."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(justify, row[1:], widths[1:])]).rstrip() for row in rows]
