"""Tables of the surprisal of every word of a scored text."""

import math
from collections.abc import Iterator

from keras_adaptive.data import TextCodec
from keras_adaptive.data.codecs.units import Unit

CARRIED = ("surprisal", "entropy", "log_frequency", "length")  # columns that are repeated for the word before
COLUMNS = ("sentence", "position", "word", "surprisal", "rank", "log_frequency", "entropy", "length")
COLUMNS += tuple(f"previous_{name}" for name in CARRIED)
# Columns of lm-zoo's `get-surprisals` (docs/schemas/get_surprisals_output.json there), and ours.
LM_ZOO = {"sentence_id": "sentence", "token_id": "position", "token": "word", "surprisal": "surprisal"}
END = "</s>"


def surprisal_rows(number: int, record: dict, codec: TextCodec) -> Iterator[dict]:
    """Yields a dict of `COLUMNS` for every word of a record of `TextModel.score`.

    Sentence `number` is the first line of the text; `</s>` is the last word of a line. Surprisals and entropies are in
    bits. A word of several pieces has the sum of their surprisals, and neither rank nor entropy. `log_frequency` is the
    natural logarithm of a word's relative frequency in the training text, `None` for pieces and for words that it
    lacks. Entropies need a record with alternatives. The previous word is the last one of the text that is no `</s>`.
    """
    counts, total = codec.vocabulary.counts, int(codec.vocabulary.counts.sum())
    ids, entropies = codec.encode(record["tokens"]), record.get("entropies")
    position, previous = 0, {}
    for places in places_of_words(record["tokens"], codec.unit):
        surprisal = -math.fsum(record["log_probs"][place] for place in places) / math.log(2)
        rank = frequency = entropy = None
        if len(places) == 1:
            (place,) = places
            rank = record["ranks"][place]
            count = int(counts[ids[place]]) if not codec.unit.is_piece else 0
            frequency = round(math.log(count / total), 6) if count else None
            entropy = round(entropies[place] / math.log(2), 6) if entropies else None
        text = "".join(codec.detokenize([record["tokens"][place] for place in places], begins_line=True))
        word, position = text.replace("\n", END), position + 1
        length = None if word == END else len(word)
        values = (number, position, word, round(surprisal, 6), rank, frequency, entropy, length)
        row = dict(zip(COLUMNS, values))
        yield {**row, **{f"previous_{name}": previous.get(name) for name in CARRIED}}
        if word == END:
            number, position = number + 1, 0
        else:
            previous = row


def places_of_words(tokens: list[str], unit: Unit) -> list[list[int]]:
    """Returns the positions of the tokens of each word, a list of lists."""
    words = []
    for place, token in enumerate(tokens):
        if unit.begins_word(token) or not words:
            words.append([])
        words[-1].append(place)
    return words
