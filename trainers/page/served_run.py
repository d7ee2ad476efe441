"""A served run: its model and its training status."""

import functools
import itertools
import math
import os
from pathlib import Path

from starlette.exceptions import HTTPException

from keras_adaptive.data import TOKENIZERS
from keras_adaptive.data.codecs.lines import split_lines
from keras_adaptive.metrics import perplexity
from keras_adaptive.models.decoding import SEGMENT
from keras_adaptive.text import TextModel
from trainers.experiments import summary
from trainers.experiments.run_folder import RunFolder
from trainers.page.example import example
from trainers.page.learning import Learning

LINES = 2  # to score in a turn
ALTERNATIVES = 10  # to compute at least, so that few functions are compiled
CAPACITY = 512  # tokens; states hold a multiple of it, since compilers compile for each size
WARM_UP = tuple(itertools.product((1, LINES), (20, 50, 100)))  # (lines, tokens of each) to score before requests
FACTS = ("unit", "vocabulary_size", "parameters", "input", "body", "output", "bands", "reads_bytes", "example")
TOKENS_PER_WORD = 10  # of a text, at most
PROMPTS = tuple(2**power for power in range(SEGMENT.bit_length()))  # tokens to continue before requests


class ServedRun:
    """A run whose model is kept in memory.

    A run that trains and has no model yet is served with its learning curve only. One thread must call all methods that
    use the model, the "best" or the "last" one of the run.
    """

    def __init__(self, path, name, which="best"):
        self.folder = RunFolder(os.path.abspath(path))
        self.name = name
        self.learning = Learning(self.folder)
        self._which = which

    @functools.cached_property
    def trained(self):
        """The model as it was trained, read on the first use."""
        if not self._has_model and self.learning.is_training():
            raise HTTPException(503, f"The run {self.name!r} has no model yet: wait for its first validation.")
        return self.folder.model(self._which)

    @functools.cached_property
    def text_model(self):
        """The `TextModel` of the run."""
        return TextModel(self.trained, self.folder.codec)

    @property
    def _has_model(self):
        return Path(self.folder.path, f"{self._which}.keras").is_file()

    @property
    def codec(self):
        return self.text_model.codec

    @property
    def model(self):
        return self.text_model.model

    def describe(self):
        """Returns the facts of the run for the page, with the `problem` if a file is damaged."""
        facts = {"name": self.name, "training": False, "problem": None, **dict.fromkeys(FACTS)}
        try:
            if "trained" in self.__dict__:
                facts |= self._describe_model()
            facts["training"] = self.learning.is_training()
        except (ValueError, OSError) as error:
            facts["problem"] = str(error)
        return facts

    def _describe_model(self):
        model = self.trained
        parts = {"input": model.word_input, "body": model.body, "output": model.word_output}
        return {
            "example": self.example,
            "bands": list(model.word_output.boundaries),
            "reads_bytes": self.text_model.reads_bytes,
            "unit": self.codec.unit,
            "vocabulary_size": len(self.codec.vocabulary),
            "parameters": sum(self.parameters.values()),
            **{role: type(part).__name__ for role, part in parts.items()},
        }

    def learn(self, after=0):
        """Returns the learning curve after an update, the losses by frequency, and the flags."""
        split, bins = self.learning.frequency()
        return {
            "curve": self.learning.curve(after),
            "frequency": bins,
            "split": split,
            "flags": self.learning.flags(),
            "parameters": self.parameters if "trained" in self.__dict__ else {},
            "training": self.learning.is_training(),
        }

    @functools.cached_property
    def parameters(self):
        """Number of weights of each part of the model."""
        return summary.parameters(self.trained)

    @functools.cached_property
    def example(self):
        """Lines of the valid text without unknown words, or None if the corpus is missing."""
        try:
            return example(self.codec, self.folder.corpus().tokens("valid")) or None
        except (ValueError, OSError):
            return None

    @functools.cached_property
    def count_of(self):
        """Function from a text to the occurrences of its rarest word in the training text, or None."""
        if self.codec.unit.is_character:
            return None
        try:
            vocabulary = self.folder.corpus().word_vocabulary if self.codec.unit.is_piece else self.codec.vocabulary
        except (ValueError, OSError):  # the corpus may be missing
            return None
        tokenize = TOKENIZERS[self.codec.tokenizer]
        return lambda text: min((int(vocabulary.counts[i]) for i in vocabulary.encode(tokenize(text))), default=0)

    def lines_of(self, text):
        """Returns the lines of a text, as trainers.score reads them from a file."""
        return split_lines(self._without_mark(text).removesuffix("\n"))

    def _without_mark(self, text):
        return text if self.codec.keeps_mark else text.removeprefix("\ufeff")

    def score(self, text, most, alternatives=ALTERNATIVES):
        """Yields the record of each line, with the `pieces` to print. A text has at most `most` words."""
        lines = [[*self.codec.tokenize(line), "</s>"] for line in self.lines_of(text)]
        check_size("The text", text, sum(map(len, lines)), most)
        computed = min(max(alternatives, ALTERNATIVES), len(self.codec.vocabulary))
        for start in range(0, len(lines), LINES):
            for record in self.text_model.score_tokens(lines[start : start + LINES], computed):
                texts = self.codec.detokenize(record["tokens"], begins_line=True)
                record["pieces"] = [text for text, _ in zip(texts, record["tokens"])]
                record["alternatives"] = [pairs[:alternatives] for pairs in record["alternatives"]]
                yield record

    def generate(self, prompt, prefix, length, most, alternatives, **how):
        """Yields a dict for each token that continues a prompt and the tokens of `prefix`; `<unk>` is never drawn.

        The prompt has at most `most` words. The other arguments are those of `TextModel.stream`.
        """
        tokens = self.codec.tokenize(self._without_mark(prompt))
        read = len(tokens) + len(prefix) + 1  # with the `</s>` before the prompt
        check_size("The prompt", prompt, read - 1, most)
        room = -(-(read + length) // CAPACITY) * CAPACITY - read
        computed = min(max(alternatives, ALTERNATIVES), len(self.codec.vocabulary))
        stream = self.text_model.stream(tokens, max(room, length), prefix=prefix, alternatives=computed, **how)
        for token, text, log_prob, pairs in itertools.islice(stream, length):
            best = [[word, round(probability, 6)] for word, probability in pairs[:alternatives]]
            yield {"token": token, "text": text, "probability": math.exp(log_prob), "alternatives": best}

    def neighbors(self, names, k):
        """Yields the nearest tokens of each string, as the API returns them; none if a string has no vector."""
        tokens = [name if name in self.codec.vocabulary else self._token(name) for name in names]
        with_vectors = [token for token in tokens if self.text_model.reads_bytes or token in self.codec.vocabulary]
        found = dict(zip(with_vectors, self.text_model.neighbors(with_vectors, k)))
        for name, token in zip(names, tokens):
            nearest = [[word, round(cosine, 6)] for word, cosine in found.get(token, ())]
            yield {"word": name, "known": token in self.codec.vocabulary, "nearest": nearest}

    def _token(self, name):
        """Returns the token of a string, or the string itself if it is not one token."""
        tokens = self.codec.tokenize(name)
        return tokens[0] if len(tokens) == 1 else name

    def warm_up(self):
        """Reads the model and runs every computation once."""
        if not self._has_model and self.learning.is_training():
            return
        for lines, tokens in WARM_UP:
            self._score_tokens(lines, tokens)
        self._continue_prompt(PROMPTS[-1], 1.0)
        list(self.neighbors(self.codec.vocabulary.words[-1:], 1))

    def compile_rest(self):
        """Yields after each further computation, so that no later request waits for a compiler."""
        if not self._has_model:
            return
        for lines, tokens in WARM_UP:  # again, since JAX first compiles a program that is slower
            yield self._score_tokens(lines, tokens)
        for tokens, temperature in itertools.product(PROMPTS, (0.8, 1.0)):
            yield self._continue_prompt(tokens, temperature)

    def _score_tokens(self, lines, tokens):
        words = tokens * 8 // len(self.codec.tokenize("the " * 8))
        return list(self.score(f"{'the ' * words}\n" * lines, math.inf))

    def _continue_prompt(self, tokens, temperature):
        tokens = min(tokens, (self.model.body.max_length or math.inf) - 2)
        prompt = self.codec.vocabulary.words[-1:] * tokens
        return next(self.generate("", prompt, 1, math.inf, ALTERNATIVES, temperature=temperature))


def summed(records):
    """Returns the records of the lines of a text, and the scores of the whole text."""
    total, words = (sum(record[name] for record in records) for name in ("log_prob", "words"))
    return {
        "lines": records,
        "perplexity": perplexity(-total / words),
        "bits": -total / math.log(2),
        "words": words,
        "unknown": sum(len(record["unknown"]) for record in records),
    }


def check_size(what, text, tokens, most):
    """Raises an HTTPException if a text has more than `most` words between white space, or `10 * most` tokens."""
    for found, allowed, unit in ((len(text.split()), most, "words"), (tokens, TOKENS_PER_WORD * most, "tokens")):
        if found > allowed:
            message = f"{what} must have at most {allowed:,} {unit}. Received: {found:,}. Make it shorter."
            raise HTTPException(413, message)
