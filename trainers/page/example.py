"""Finds a passage of the valid text of a run without unknown words."""

import numpy as np

from keras_adaptive.data import EOS, UNK

SEARCHED = 20_000  # tokens of the valid text, at most
SHORTEST, LONGEST = 200, 600  # characters of an example, if there are such lines


def example(codec, tokens):
    """Returns the first lines of ids (tokens,) without unknown words, or the longest passage if they are too short."""
    lines, best = [], ""
    tokens = np.array(tokens[:SEARCHED])
    for line in np.split(tokens, np.flatnonzero(tokens == EOS) + 1):
        parts = [_text(codec, part) for part in np.split(line, np.flatnonzero(line == UNK))]
        lines = [*lines, *filter(None, parts)] if len(parts) == 1 else []
        if len(passage := "\n".join(lines)) >= SHORTEST:
            best = passage
            break
        best = max(best, passage, *parts, key=len)
    return best if len(best) <= LONGEST else best[:LONGEST].rsplit(maxsplit=1)[0]


def _text(codec, ids):
    ids = ids[(ids != UNK) & (ids != EOS)]
    return "".join(codec.detokenize(codec.decode(ids))).strip()
