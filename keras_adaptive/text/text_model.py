import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_adaptive.data import EOS, TextCodec, Vocabulary
from keras_adaptive.models import LanguageModel
from keras_adaptive.models.generation import SAMPLERS, Reading
from keras_adaptive.models.reading import reading_of
from keras_adaptive.text.nearest import nearest
from keras_adaptive.text.scoring import as_record, perplexity_of, score_lines
from keras_adaptive.text.surprisals import COLUMNS, surprisal_rows

FORBIDDEN = ("<unk>",)  # what generated texts do not contain by default


class TextModel:
    """A language model that takes and returns strings. `keras_adaptive.load` makes one of the folder of a run.

    A text is read as the training text was: after a `</s>`, split by the same tokenizer. A line break in it ends a line
    with `</s>`. Words outside the vocabulary are read and scored as `<unk>`. With an open vocabulary they are read by
    their bytes, and still scored as `<unk>`; the vectors of all words are then computed again for every text with new
    ones.

    A model with attention reads a long text in windows of the length that it was trained on, half of which is context.
    Every method reads a text in the same way.

    Args:
        model: A `LanguageModel`.
        codec: Its `TextCodec`.
        open_vocabulary: Whether words outside the vocabulary are read by their bytes. Needs a `CharCNN` input.
        window: Number of tokens of a window, by default the model's `trained_length`. Optional.
        context: Number of tokens of a window that are read but not scored, by default half of it. Optional.

    Attributes:
        codec: The `TextCodec`.
        reading: The `Reading`, by which every method divides texts into windows.
        trained: The model as it was trained, which computes the vectors of words from their bytes.

    Raises:
        ValueError: If `open_vocabulary` is asked of a model that knows words by their ids alone, the model and the
            codec have vocabularies of different sizes, or `window` or `context` is out of range.

    Example:

    ```python
    lm = keras_adaptive.load("runs/books")
    lm.perplexity(["It was the best of times", "It was the worst of times"])
    lm.next_words("It was the", k=3)  # [(word, probability), …]
    lm.generate("It was", length=20, temperature=0.8, seed=1)
    ```
    """

    def __init__(
        self,
        model: LanguageModel,
        codec: TextCodec,
        *,
        open_vocabulary: bool = False,
        window: int | None = None,
        context: int | None = None,
    ) -> None:
        if len(codec.vocabulary) != model.vocabulary_size:
            raise ValueError(
                f"`codec` must have the vocabulary of the model, of {model.vocabulary_size:,} words. "
                f"Received: {len(codec.vocabulary):,} words."
            )
        self.codec = codec
        self.reading: Reading = reading_of(model, window, context)
        self.trained, self._model, self._extra = model, None, [] if open_vocabulary else None
        if open_vocabulary and not self.reads_bytes:
            model.for_inference([])  # says why not

    def __repr__(self) -> str:
        parts = (self.trained.word_input, self.trained.body, self.trained.word_output)
        names = ", ".join(type(part).__name__ for part in parts)
        words, weights = f"{len(self.vocabulary):,} {self.codec.unit}s", f"{self.trained.count_params():,} parameters"
        return f"<TextModel: {names}; {words}, {weights}>"

    @property
    def model(self) -> LanguageModel:
        """The `LanguageModel`, in which everything that depends on the weights alone is computed once."""
        if self._model is None:
            self._model = self.trained.for_inference(self._extra)
        return self._model

    @property
    def vocabulary(self) -> Vocabulary:
        """The `Vocabulary` of the model."""
        return self.codec.vocabulary

    @property
    def reads_bytes(self) -> bool:
        """Whether the model reads words by their bytes, so that strings outside the vocabulary have `neighbors` too."""
        return self.trained.word_input.max_bytes is not None

    def score(
        self,
        texts: str | Iterable[str],
        alternatives: int = 0,
        batch_size: int = 16,
        *,
        context: str = "",
        end: bool = True,
    ) -> dict | list[dict]:
        """Returns the log-probability, rank and band of every token of a text, each with its `</s>` at the end.

        Args:
            texts: A string, or a list of them.
            alternatives: Number of the most probable words to return at every place.
            batch_size: Number of texts to compute at a time.
            context: Text that precedes each text. It is read and not scored. A context of whole lines ends with a line
                break.
            end: Whether to score the `</s>` after each text.

        Returns:
            A dict, or a list with a dict for each text. `tokens`, `log_probs` (in nats), `ranks` (1 is the most
            probable token) and `bands` (0 is the head of an adaptive softmax) have an element per token. `words` is
            the number of words, `log_prob` the sum of the log-probabilities, `perplexity` is per word, and `unknown`
            lists the tokens outside the vocabulary. `reading` says how the text was read, such as "in windows of 64
            tokens, 32 of them context". With alternatives, `entropies` has the entropy (in nats) of each
            place, and `alternatives` its most probable words as `[[word, probability], …]`.
        """
        before = self._tokens(context) if context else []
        lines = [[*before, *self._line(text, end)] for text in as_list(texts)]
        batches = (lines[start : start + batch_size] for start in range(0, len(lines), batch_size))
        scored = (self.score_tokens(batch, alternatives, skip=len(before)) for batch in batches)
        records = [record for of_batch in scored for record in of_batch]
        return records[0] if isinstance(texts, str) else records

    def surprisals(self, texts: str | Iterable[str], *, context: str = "", end: bool = True) -> list[dict]:
        """Returns the surprisal of every word, in bits, with what experiments compare it with.

        Args:
            texts, context, end: As in `score`.

        Returns:
            A list with a dict for each word: `sentence` (the number of the text) and `position`, both from 1; `word`;
            `surprisal`, −log2 of its probability, of all its pieces together; `rank`, `None` for several pieces; and
            `log_frequency`, the natural logarithm of its relative frequency in the training text, `None` if that is
            unknown.
        """
        records = enumerate(self.score(as_list(texts), context=context, end=end), 1)
        return [dict(zip(COLUMNS, row)) for pair in records for row in surprisal_rows(*pair, self.codec)]

    def score_tokens(
        self, lines: Sequence[list[str]], alternatives: int = 0, reporter: Callable | None = None, skip: int = 0
    ) -> Iterator[dict]:
        """Yields what `score` returns, for lines of tokens that are computed together.

        Args:
            lines: Tokens of each line, `</s>` at its end included.
            alternatives: As in `score`.
            reporter: As in `score_lines`.
            skip: Number of tokens at the beginning of each line that are read and not scored.
        """
        if any(len(line) <= skip for line in lines):
            raise ValueError("A text must have a token to score. Received: a text without words, and end=False.")
        if not 0 <= alternatives <= len(self.vocabulary):
            raise ValueError(
                f"`alternatives` must be from 0 to {len(self.vocabulary)}, the number of words of the model. "
                f"Received: alternatives={alternatives}."
            )
        inputs = self._read(lines)
        targets = list(map(self.codec.encode, lines))
        scores = score_lines(self.model, targets, inputs, alternatives, reporter, self.reading)
        for tokens, ids, found in zip(lines, targets, scores):
            scored = [array[skip:] for array in found]
            boundaries = self.model.word_output.boundaries
            record = as_record(tokens[skip:], ids[skip:], scored, boundaries, self.codec)
            yield {**record, "reading": self.reading.describe(len(tokens))}

    def perplexity(self, texts: str | Iterable[str], batch_size: int = 16) -> float:
        """Returns the perplexity per word of all texts together; a `</s>` after each counts as a word."""
        return perplexity_of(self.score(as_list(texts), batch_size=batch_size))  # type: ignore[arg-type]

    def next_words(self, prompt: str, k: int = 10) -> list[tuple[str, float]]:
        """Returns the words that most probably follow a prompt, and their probabilities, in descending order.

        Args:
            prompt: A string. The empty one is the beginning of a line.
            k: Number of words, or pieces of words.
        """
        (ids,) = self._prompts([self._tokens(prompt)])
        log_probs, best = self.model.next_words(ids[None], k, reading=self.reading)
        return list(zip(self.codec.decode(best[0]), np.exp(log_probs[0].astype("float64")).tolist()))

    def generate(
        self,
        prompt: str | Iterable[str] = "",
        length: int = 50,
        temperature: float = 1.0,
        *,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | Sequence[int] | None = None,
        stop: str | Iterable[str] | None = None,
        forbid: Iterable[str] = FORBIDDEN,
        repetition_penalty: float = 1.0,
        num_return_sequences: int = 1,
        sampler: Any = None,
    ) -> str | list:
        """Returns the continuation of a prompt, or a list of those of a list of prompts, without the prompts.

        Args:
            prompt: A string, or a list of them. The empty one is the beginning of a line.
            length: Number of words, or pieces of words, to add.
            temperature: Divisor of the log-probabilities. 0 takes the most probable word.
            top_k: Number of the most probable words to draw among. Optional.
            top_p: Draws among the fewest words whose probabilities add up to `top_p` (nucleus sampling). Optional.
            seed: Seed of the draws: one seed gives one text, on every backend, up to rounding.
            stop: Word of the vocabulary, or piece of a word, with which a text ends, or several of them. Optional.
            forbid: Words of the vocabulary that are never drawn, by default `<unk>`.
            repetition_penalty: As in `LanguageModel.generate`.
            num_return_sequences: Number of continuations of each prompt. With more than one, a list of them takes the
                place of each string.
            sampler: As in `LanguageModel.generate`; "beam" is beam search.
        """
        if num_return_sequences < 1:
            raise ValueError(
                f"`num_return_sequences` must be at least 1. Received: num_return_sequences={num_return_sequences}."
            )
        prompts = as_list(prompt)
        rows = [line for line in prompts for _ in range(num_return_sequences)]
        ids = self._prompts(list(map(self._tokens, rows)))
        how = self._how(top_p, stop, forbid, repetition_penalty)
        if sampler in (None, *SAMPLERS):
            new = self.model.generate(ids, length, temperature, top_k, seed, sampler, **how) if ids else []
        else:  # a sampler of KerasHub, which needs prompts of one length
            alone = [self.model.generate(row[None], length, temperature, top_k, seed, sampler, **how) for row in ids]
            new = [row for (row,) in alone]
        texts = [self._continuation(*pair, how["stop"]) for pair in zip(rows, new)]
        if num_return_sequences > 1:
            size = num_return_sequences
            texts = [texts[start : start + size] for start in range(0, len(texts), size)]
        return texts[0] if isinstance(prompt, str) else texts

    def _how(self, top_p, stop, forbid, repetition_penalty):
        """Returns the arguments of the model's `generate` for words of the vocabulary."""
        steering = {"forbid": self._ids_of(forbid, "forbid"), "repetition_penalty": repetition_penalty}
        stops = None if stop is None else self._ids_of(as_list(stop), "stop")
        return {"top_p": top_p, "stop": stops, "reading": self.reading, **steering}

    def _continuation(self, prompt, row, stop):
        """Returns the text of new ids (length,) until the first one that is in `stop`."""
        end = np.append(np.flatnonzero(np.isin(row, [] if stop is None else stop)) + 1, len(row))[0]
        return "".join(self.codec.detokenize(self.codec.decode(row[:end]), ends_line(prompt)))

    def stream(
        self,
        prompt: str | list[str] = "",
        length: int = 50,
        temperature: float = 1.0,
        *,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | Sequence[int] | None = None,
        stop: str | Iterable[str] | None = None,
        forbid: Iterable[str] = FORBIDDEN,
        repetition_penalty: float = 1.0,
        prefix: Iterable[str] = (),
        alternatives: int = 0,
    ) -> Iterator[tuple]:
        """Yields the continuation of a prompt one token at a time, as it is drawn: `(token, text)`.

        The texts, joined, are what `generate` returns. The text of a character whose bytes are divided among tokens
        comes with the last of them; what is left of a character at the end comes with the token "".

        Args:
            prompt: A string, or the list of its tokens.
            length, temperature, top_k, top_p, seed, stop, forbid, repetition_penalty: As in `generate`.
            prefix: Tokens that follow the prompt and were generated before. The texts continue theirs.
            alternatives: Number of the most probable words to yield with every token. The tuples are then `(token,
                text, log_prob, alternatives)`: the log-probability of the token, in nats and without the temperature,
                and the words as `[(word, probability), …]`.
        """
        prefix = list(prefix)
        if unknown := self.vocabulary.unknown(prefix):
            raise ValueError(f"`prefix` must hold tokens of the vocabulary. Received: {unknown[0][:80]!r}.")
        ids = self._prompts([[*self._tokens(prompt), *prefix]])
        how = self._how(top_p, stop, forbid, repetition_penalty)
        new = self.model.stream(ids, length, temperature, top_k, seed, alternatives=alternatives, **how)
        return self._pieces(prefix, map(self._step, new), ends_line(prompt))

    def _step(self, step):
        """Returns the token of a step of the model's `stream`, with its log-probability and alternatives if it has."""
        if not isinstance(step, tuple):
            return (self.vocabulary.words[step[0]],)
        (id, log_prob, best_log_probs, best) = (array[0] for array in step)
        pairs = zip(self.codec.decode(best), np.exp(best_log_probs.astype("float64")).tolist())
        return self.vocabulary.words[id], float(log_prob), list(pairs)

    def neighbors(self, word: str | Iterable[str], k: int = 3) -> list:
        """Returns the words of the vocabulary whose vectors are nearest to that of a word, and their cosines.

        Args:
            word: A string, or a list of strings: any strings for a model that reads words by their bytes (`CharCNN`),
                otherwise words of the vocabulary.
            k: Number of neighbors.

        Returns:
            A list of `(word, cosine)` in descending order, or a list of such lists.

        Raises:
            ValueError: If the model knows words by their ids alone, and a word is outside the vocabulary.
        """
        if not self.reads_bytes:
            words = as_list(word)
            if unknown := self.vocabulary.unknown(words):
                raise ValueError(
                    "`word` must be in the vocabulary: only a model that reads words by their bytes (`CharCNN`, "
                    f"--input=char_cnn) has neighbors of any string. Received: {unknown[0][:80]!r}."
                )
            found = nearest(self.model.word_input, self.vocabulary.encode(words), k) if words else []
            pairs = [[(self.vocabulary.words[id], cosine) for id, cosine in row] for row in found]
            return pairs[0] if isinstance(word, str) else pairs
        table = ops.convert_to_numpy(self.model.word_input.tables[0].value)
        return self.trained.word_input.neighbors(word, k, table[: len(self.vocabulary)])

    def read_unknown(self, words: Iterable[str]) -> None:
        """Lets a model with an open vocabulary read these words by their bytes from now on, in place of earlier ones.

        `score`, `next_words`, `generate` and `stream` do so themselves. Call it first where many texts with unknown
        words follow, so that the vectors of all words are computed once.
        """
        if self._extra is not None:
            unknown = list(dict.fromkeys(self.vocabulary.unknown(words)))
            if not set(unknown) <= set(self._extra):
                self._extra, self._model = unknown, None

    def _read(self, lines):
        """Returns the ids of tokens as the model reads them, for each line."""
        self.read_unknown(itertools.chain.from_iterable(lines))
        return [self.codec.encode(tokens, self._extra or ()) for tokens in lines]

    def _prompts(self, lines):
        """Returns the ids of prompts, which follow a `</s>`, as the model reads them."""
        return [np.append(np.int32(EOS), ids) for ids in self._read(lines)]

    def _line(self, text, end=True):
        """Returns the tokens of a text, with the `</s>` at its end if `end`."""
        return [*self._tokens(as_text(text).removesuffix("\n")), *["</s>"] * end]

    def _tokens(self, text):
        """Returns the tokens of a text, with a `</s>` for each line break. A list of tokens is returned unchanged."""
        return text if isinstance(text, list) else self.codec.tokenize(as_text(text))

    def _ids_of(self, words, name):
        """Returns the ids of words of the vocabulary."""
        words = as_list(words)
        for word in words:
            if word not in self.vocabulary:
                raise ValueError(f"`{name}` must hold words of the vocabulary, or pieces of words. Received: {word!r}.")
        return self.codec.encode(words)

    def _pieces(self, prefix, steps, begins_line):
        """Yields the steps that follow a prefix, with the text of each after its token."""
        read = []

        def tokens():
            for step in itertools.chain(zip(prefix), steps):
                read.append(step)
                yield step[0]

        for number, text in enumerate(self.codec.detokenize(tokens(), begins_line), 1):
            if number > len(read):
                if text:
                    yield "", text, *((0.0, []) if read[-1][1:] else ())
            elif number > len(prefix):
                token, *more = read[-1]
                yield token, text, *more


def as_list(texts: str | Iterable[str]) -> list[str]:
    """Returns a list of strings, of one or of several."""
    return [texts] if isinstance(texts, str) else list(texts)


def ends_line(text: str | list[str]) -> bool:
    """Returns whether what follows a text, or a list of tokens, begins a line."""
    return not text or text[-1] in ("\n", "</s>")


def as_text(text: str) -> str:
    """Returns a text after checking that it is a string of whole characters."""
    if not isinstance(text, str):
        raise ValueError(f"A text must be a string. Received: {text!r:.80}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"A text must hold whole characters. Received: half of a surrogate pair, character {error.start}."
        ) from None
    return text
