"""Checks of the words of a recognizer."""

from collections.abc import Sequence

from keras_adaptive.text import TextModel


def check_some_known(text: TextModel, words: Sequence[str], name: str) -> None:
    """Raises a ValueError if a model knows no word of a recognizer, as if their letters have another case."""
    if len(text.vocabulary.unknown(words)) == len(words):
        raise ValueError(
            f"`{name}` must have words of the model, written as in its training text. Received: a list of "
            f"{len(words):,} words that it does not know, such as {', '.join(map(repr, words[:3]))}."
        )
