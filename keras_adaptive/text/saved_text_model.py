import os
import re
import secrets
from collections.abc import Iterable

from keras_adaptive.text.scoring import perplexity_of
from keras_adaptive.text.text_model import as_list, as_text

NOT_EXPORTED = "A SavedModel has no {}: load the folder of the run it was exported from."


class SavedTextModel:
    """The SavedModel of a run with the `TextModel` methods that a SavedModel supports.

    TensorFlow computes, whatever the backend of Keras. `generate` uses other random numbers than `TextModel` and
    returns another text. Words outside the vocabulary are read as the exported run reads them.

    Args:
        served: What `tf.saved_model.load` returns.
    """

    def __init__(self, served: object) -> None:
        self.served = served

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "SavedTextModel":
        """Reads a folder that `trainers.export` wrote."""
        try:
            import tensorflow as tf
        except ModuleNotFoundError:
            raise ModuleNotFoundError("A SavedModel needs the package tensorflow: pip install tensorflow") from None
        served = tf.saved_model.load(os.fspath(folder))
        for name in ("score", "next_words", "generate"):
            if not hasattr(served, name):
                raise ValueError(f"{folder} is not a SavedModel of trainers.export: it has no signature {name!r}.")
        return cls(served)

    def score(self, texts: str | Iterable[str], alternatives: int = 0, batch_size: int = 16) -> dict | list[dict]:
        """Returns the scores of texts as `TextModel.score`, without ranks, bands and alternatives."""
        if alternatives:
            raise ValueError(NOT_EXPORTED.format("`alternatives`"))
        lines, records = list(map(as_text, as_list(texts))), []
        for start in range(0, len(lines), batch_size):
            found = self._answer("score", lines[start : start + batch_size])
            records += [_record(*row) for row in zip(*(found[name] for name in NAMES))]
        return records[0] if isinstance(texts, str) else records

    def perplexity(self, texts: str | Iterable[str], batch_size: int = 16) -> float:
        """Returns the perplexity per word of all texts together, as `TextModel.perplexity`."""
        return perplexity_of(self.score(as_list(texts), batch_size=batch_size))  # type: ignore[arg-type]

    def next_words(self, prompt: str, k: int = 10) -> list[tuple[str, float]]:
        """Returns the most probable next words and their probabilities, as `TextModel.next_words`."""
        found = self._answer("next_words", [as_text(prompt)], k)
        return list(zip(map(bytes.decode, found["words"][0].tolist()), found["probabilities"][0].tolist()))

    def generate(
        self,
        prompt: str | Iterable[str] = "",
        length: int = 50,
        temperature: float = 1.0,
        *,
        top_k: int | None = None,
        seed: int | None = None,
    ) -> str | list[str]:
        """Returns the continuation of a prompt, or a list of continuations, as `TextModel.generate` does."""
        if top_k == 0:
            raise ValueError("`top_k` must be at least 1. Received: top_k=0.")
        seed = secrets.randbits(31) if seed is None else seed
        lines = list(map(as_text, as_list(prompt)))
        texts = self._answer("generate", lines, length, float(temperature), top_k or 0, seed)["text"] if lines else []
        texts = [text.decode() for text in texts]
        return texts[0] if isinstance(prompt, str) else texts

    def __getattr__(self, name):
        if name in ("model", "vocabulary", "codec", "stream", "neighbors"):
            raise ValueError(NOT_EXPORTED.format(f"`{name}`"))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _answer(self, name, *inputs):
        """Calls a signature and returns its outputs as NumPy arrays by name."""
        import tensorflow as tf

        try:
            found = getattr(self.served, name)(*inputs)
        except (tf.errors.InvalidArgumentError, TypeError, ValueError) as error:
            raise ValueError(_message(error)) from error
        return {key: value.numpy() for key, value in found.items()}


NAMES = ("tokens", "words", "lengths", "log_probs", "log_prob", "perplexity", "unknown", "reading")


def _record(tokens, words, length, log_probs, log_prob, perplexity, unknown, reading):
    tokens = [token.decode() for token in tokens[:length].tolist()]
    return {
        "tokens": tokens,
        "words": int(words),
        "log_probs": [round(value, 6) for value in log_probs[:length].astype("float64").tolist()],
        "log_prob": float(log_prob),
        "perplexity": float(perplexity),
        "unknown": [token for token, is_unknown in zip(tokens, unknown) if is_unknown],
        "reading": reading.decode(),
    }


def _message(error):
    """Extracts the message from a TensorFlow assertion error."""
    found = re.search(r"assertion failed: \[(.*?)\] \[(.*?)\]", str(error))
    return " ".join(found.groups()) + "." if found else " ".join(str(error).split())[:300]
