"""Losses of the hypotheses of a speech recognizer under a model of text."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from keras_adaptive.data import EOS
from keras_adaptive.text import TextModel
from keras_adaptive.text.surprisals import places_of_words


def hypothesis_nll(
    text: TextModel,
    hypotheses: Sequence[str],
    *,
    oov: str = "<unk>",
    batch_size: int = 512,
    report: Callable[[int, int], object] | None = None,
) -> list[np.ndarray]:
    """Returns the negative log-likelihood of every word of hypotheses and of the end of each.

    Each hypothesis is read as a line of text, as by `TextModel.score`. Beginnings that several hypotheses of a batch
    have in common are computed once.

    Args:
        text: The `TextModel`.
        hypotheses: Words of each hypothesis, strings. An empty one has the loss of its end only.
        oov: Word of the vocabulary that words outside of it are read and scored as.
        batch_size: Number of hypotheses to compute at a time.
        report: Function `(hypotheses done, hypotheses)` to call after each batch. Optional.

    Returns:
        A float64 array (words + 1,) for each hypothesis, in nats. The losses of the pieces of a word are added up.

    Raises:
        ValueError: If `oov` is not in the vocabulary.

    Example:

    ```python
    lm = keras_adaptive.load("runs/books")
    costs = [nll.sum() for nll in hypothesis_nll(lm, ["well i'm going", "well i am going"])]
    ```
    """
    check_oov(text, oov)
    results: list[np.ndarray] = []
    for start in range(0, len(hypotheses), batch_size):
        lines = [[*_known(text, line, oov), "</s>"] for line in hypotheses[start : start + batch_size]]
        for tokens, nll in zip(lines, _nll(text, lines)):
            words = places_of_words(tokens, text.codec.unit)
            results.append(np.add.reduceat(nll.astype("float64"), [places[0] for places in words]))
        if report:
            report(len(results), len(hypotheses))
    return results


def check_oov(text: TextModel, oov: str) -> None:
    """Raises a ValueError unless the vocabulary of a model has the word that stands for unknown words."""
    if oov not in text.vocabulary:
        raise ValueError(f"`oov` must be a word of the vocabulary, such as `<unk>`. Received: oov={oov!r}.")


def unknown_words(text: TextModel, hypotheses: Iterable[str]) -> list[str]:
    """Returns the tokens of hypotheses that are outside the vocabulary, in their order, each once."""
    return list(dict.fromkeys(token for line in hypotheses for token in text.vocabulary.unknown(_tokens(text, line))))


def _tokens(text, line):
    return text.codec.tokenize_part(line)


def _known(text, line, oov):
    """Returns the tokens of a hypothesis, with `oov` in place of those outside the vocabulary."""
    tokens = _tokens(text, line)
    unknown = set(text.vocabulary.unknown(tokens))
    return [oov if token in unknown else token for token in tokens]


def _nll(text, lines):
    """Yields the loss of every token of lines, each in the windows of the model's `Reading`."""
    targets = [text.codec.encode(tokens) for tokens in lines]
    windows = [text.reading.windows(len(ids)) for ids in targets]
    rows = [
        (np.append(EOS, ids[:-1])[begin:stop], ids[begin:stop])
        for ids, parts in zip(targets, windows)
        for begin, _, stop in parts
    ]
    found = iter(text.model.nll_of_rows(rows))
    for parts in windows:
        yield np.concatenate([next(found)[start - begin :] for begin, start, _ in parts])
