from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.checks import check_finite
from keras_adaptive.models.decoding import segments
from keras_adaptive.special_words import EOS
from keras_adaptive.speech.rescoring import check_oov
from keras_adaptive.text import TextModel
from keras_adaptive.typing import Tensor

SMALLEST_CAPACITY = 32  # tokens of the smallest state of attention, which doubles as a text grows


class Hypothesis:
    """The tokens of a text so far: a node of the tree that a search makes.

    Args:
        parent: The hypothesis without the last token, `None` for the beginning of a line.
        id: Id of the last token.

    Attributes:
        place: Number of tokens before the last one.
    """

    __slots__ = ("_children", "id", "parent", "place")

    def __init__(self, parent: Optional["Hypothesis"], id: int) -> None:
        self.parent, self.id = parent, id
        self.place: int = 0 if parent is None else parent.place + 1
        self._children: dict[int, Hypothesis] = {}

    def child(self, id: int) -> "Hypothesis":
        """Returns the hypothesis with one token more, the same object in every call."""
        if id not in self._children:
            self._children[id] = Hypothesis(self, id)
        return self._children[id]

    def ids(self, count: int) -> list[int]:
        """Returns the ids of the last `count` tokens."""
        hypothesis, ids = self, [self.id]
        while len(ids) < count:
            hypothesis = hypothesis.parent  # type: ignore[assignment]
            ids.append(hypothesis.id)
        return ids[::-1]


class _Read(NamedTuple):
    """What was computed of a hypothesis: the log-probabilities of all next tokens, and a state of one row."""

    log_probs: np.ndarray
    state: Tensor


class Hypotheses:
    """Log-probabilities of the words that continue hypotheses, computed when a search asks for them.

    A hypothesis is read from the state of its parent, and hypotheses of one length together. The results of the last
    `kept` hypotheses are in memory; others are read again. Long texts are read in the windows of the `TextModel`.

    Args:
        text: The `TextModel`.
        oov: Word of the vocabulary that words outside of it are read and scored as.
        kept: Number of hypotheses whose state and log-probabilities are kept, at least the width of the beam.

    Raises:
        ValueError: If `oov` is not in the vocabulary, or `kept` is below 1.

    Example:

    ```python
    hypotheses = Hypotheses(keras_adaptive.load("runs/books"))
    start = hypotheses.start()
    it, log_prob = hypotheses.after(start, hypotheses.ids_of("It"))
    hypotheses.end(it)  # log-probability that the text ends here
    ```
    """

    def __init__(self, text: TextModel, *, oov: str = "<unk>", kept: int = 256) -> None:
        check_oov(text, oov)
        if kept < 1:
            raise ValueError(f"`kept` must be at least 1. Received: kept={kept}.")
        self.text, self.oov, self.kept = text, oov, kept
        self._kept: OrderedDict[Hypothesis, _Read] = OrderedDict()

    def start(self) -> Hypothesis:
        """Returns the hypothesis without words, at the beginning of a line."""
        return Hypothesis(None, EOS)

    def ids_of(self, words: str) -> list[int]:
        """Returns the ids of the tokens of one or several words, as `encode` does."""
        return self.encode(self.text.codec.tokenize_part(words))

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """Returns the ids of tokens, and the ids of `oov` for tokens outside the vocabulary."""
        unknown = set(self.text.vocabulary.unknown(tokens))
        return self.text.codec.encode([self.oov if token in unknown else token for token in tokens]).tolist()

    def after(self, hypothesis: Hypothesis, ids: Iterable[int]) -> tuple[Hypothesis, float]:
        """Returns the hypothesis with further tokens, and the log-probability of these tokens in nats."""
        log_prob = 0.0
        for id in ids:
            log_prob += float(self.log_probs([hypothesis])[0][id])
            hypothesis = hypothesis.child(id)
        return hypothesis, log_prob

    def end(self, hypothesis: Hypothesis) -> float:
        """Returns the log-probability, in nats, that a text ends after a hypothesis."""
        return float(self.log_probs([hypothesis])[0][EOS])

    def log_probs(self, hypotheses: Sequence[Hypothesis]) -> list[np.ndarray]:
        """Returns the log-probabilities of the next token, float32 (vocabulary,), of each hypothesis."""
        found = {hypothesis: self._kept[hypothesis] for hypothesis in hypotheses if hypothesis in self._kept}
        groups: dict[tuple, list[Hypothesis]] = {}
        for hypothesis in dict.fromkeys(hypotheses):
            if hypothesis not in found:
                groups.setdefault(self._way(hypothesis), []).append(hypothesis)
        for (steps, capacity), group in groups.items():
            found |= zip(group, self._read_together(group, steps, capacity))
        for hypothesis, read in found.items():
            self._kept[hypothesis] = read
            self._kept.move_to_end(hypothesis)
        while len(self._kept) > self.kept:
            self._kept.popitem(last=False)
        return [found[hypothesis].log_probs for hypothesis in hypotheses]

    def _way(self, hypothesis):
        """Returns how many tokens to read from the beginning of the window, 0 from the parent, and the capacity."""
        window, parent = self._window(hypothesis), hypothesis.parent
        begin, capacity = window
        follows = parent in self._kept and self._window(parent) == window
        return 0 if follows else hypothesis.place + 1 - begin, capacity

    def _window(self, hypothesis):
        """Returns the place of the first token that a hypothesis sees, and the capacity of its state."""
        reading, place = self.text.reading, hypothesis.place
        if reading.window is None:  # the state has a fixed size
            return 0, 1
        begin = int(reading.begin(place))
        return begin, min(reading.window, max(SMALLEST_CAPACITY, 1 << (place - begin).bit_length()))

    def _read_together(self, group, steps, capacity):
        """Returns the `_Read` of hypotheses of one length."""
        model, count = self.text.model, len(group)
        rows = [*group, *group[:1] * ((1 << (count - 1).bit_length()) - count)]  # few sizes to compile for
        if steps:
            state = model.body.initial_state(len(rows), capacity)
        else:
            states = [self._kept[row.parent].state for row in rows]
            state = keras.tree.map_structure(lambda *parts: ops.concatenate(parts), *states)
        tokens = np.array([row.ids(steps or 1) for row in rows], "int32")
        for part in segments(tokens.shape[1]):
            log_probs, _, state = model.compiled_next()(ops.convert_to_tensor(tokens[:, part]), state)
        log_probs = check_finite(ops.convert_to_numpy(log_probs))[:count]
        return [
            _Read(row.copy(), keras.tree.map_structure(lambda array, i=i: ops.copy(array[i : i + 1]), state))
            for i, row in enumerate(log_probs)
        ]
