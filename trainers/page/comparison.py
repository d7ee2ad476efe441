"""Compares runs word by word, whatever their tokens are."""

import math
import re

import numpy as np

from keras_adaptive.data import TOKENIZERS
from keras_adaptive.metrics import loss_by_frequency, perplexity

CHUNK = re.compile(r"(?:^\s++)?\S+\s*+")  # a word and the white space after it, and before the first word


def compare(runs, text, records):
    """Returns the losses of two runs on the words of a text, in bits.

    If both runs have the same tokenizer, it defines the words; otherwise white space separates them. The bits of a word
    are the sum over its tokens. White space of a character model belongs to the word before it. The end of a line is a
    word, too.

    Args:
        runs: Two `ServedRun`.
        text: The text.
        records: For each run, the list of the records of the lines.

    Returns:
        Dict of `words`, `by_frequency`, `perplexity` and `reading`, as the API returns them.
    """
    codecs = [run.codec for run in runs]
    count = next((run.count_of for run in runs if run.count_of), None)
    words = []
    for number, line in enumerate(runs[0].lines_of(text)):
        chunks = chunks_of(line, codecs)
        tokens = [list(map(codec.tokenize_part, chunks)) for codec in codecs]
        columns = [bits_of(parts, own[number]["log_probs"]) for parts, own in zip(tokens, records)]
        unknown = [any(codec.vocabulary.unknown(part) for codec, part in zip(codecs, parts)) for parts in zip(*tokens)]
        words += [
            {"text": chunk.strip(), "bits": list(bits), "count": count and count(chunk), "unknown": is_unknown}
            for chunk, bits, is_unknown in zip(chunks, zip(*columns), unknown)
        ]
        words.append({"text": "\n", "bits": [column[-1] for column in columns], "count": None, "unknown": False})
    totals = [sum(word["bits"][run] for word in words) for run in range(len(runs))]
    return {
        "words": words,
        "by_frequency": by_frequency(words),
        "perplexity": [perplexity(total * math.log(2) / len(words)) for total in totals],
        "reading": [" or ".join(dict.fromkeys(line["reading"] for line in own)) for own in records],
    }


def chunks_of(line, codecs):
    """Returns the words of a line by which runs are compared."""
    tokenizers = {codec.tokenizer for codec in codecs}
    if len(tokenizers) == 1 and not codecs[0].unit.is_character:
        return TOKENIZERS[tokenizers.pop()](line)
    return CHUNK.findall(line)


def bits_of(chunks, log_probs):
    """Returns the bits of each chunk of tokens and, last, of the end of the line with all other tokens."""
    bits, sums, start = [-value / math.log(2) for value in log_probs], [], 0
    for chunk in chunks:
        stop = start + len(chunk)
        sums.append(sum(bits[start:stop]))
        start = stop
    return [*sums, sum(bits[start:])]


def by_frequency(words):
    """Returns the mean bits of the words of each frequency in the training text."""
    known = [word for word in words if word["count"] is not None]
    if not known:
        return []
    counts = np.array([word["count"] for word in known])
    columns = [loss_by_frequency(bits, np.arange(len(known)), counts) for bits in zip(*(w["bits"] for w in known))]
    return [
        {"from": bins[0]["low"], "to": bins[0]["high"], "words": bins[0]["tokens"], "bits": [b["nll"] for b in bins]}
        for bins in zip(*columns)
    ]
