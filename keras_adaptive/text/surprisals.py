"""Tables of the surprisal of every word of a scored text."""

import math
from collections.abc import Iterator

from keras_adaptive.data import TextCodec
from keras_adaptive.data.codecs.units import Unit

COLUMNS = ("sentence", "position", "word", "surprisal", "rank", "log_frequency")


def surprisal_rows(number: int, record: dict, codec: TextCodec) -> Iterator[tuple]:
    """Yields a row of `COLUMNS` for every word of a record of `TextModel.score`, of sentence `number`.

    The surprisal is in bits. A word of several pieces has the sum of their surprisals, and no rank. The natural
    logarithm of a word's relative frequency in the training text is `None` for pieces and for words that it lacks.
    """
    counts, total = codec.vocabulary.counts, int(codec.vocabulary.counts.sum())
    ids = codec.encode(record["tokens"])
    for position, places in enumerate(places_of_words(record["tokens"], codec.unit), 1):
        surprisal = -math.fsum(record["log_probs"][place] for place in places) / math.log(2)
        rank = frequency = None
        if len(places) == 1:
            rank = record["ranks"][places[0]]
            count = int(counts[ids[places[0]]]) if not codec.unit.is_piece else 0
            frequency = round(math.log(count / total), 6) if count else None
        word = "".join(codec.detokenize([record["tokens"][place] for place in places], begins_line=True))
        yield number, position, word.replace("\n", "</s>"), round(surprisal, 6), rank, frequency


def places_of_words(tokens: list[str], unit: Unit) -> list[list[int]]:
    """Returns the positions of the tokens of each word, a list of lists."""
    words = []
    for place, token in enumerate(tokens):
        if unit.begins_word(token) or not words:
            words.append([])
        words[-1].append(place)
    return words
