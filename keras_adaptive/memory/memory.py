import functools
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_adaptive.data import ContextWindows
from keras_adaptive.fields import number, whole
from keras_adaptive.files import reading, write_json
from keras_adaptive.memory import datastore
from keras_adaptive.memory.mixing import SHARES, mixed
from keras_adaptive.memory.nearest import nearest

NEIGHBORS = 1024
PAIRS = 2**23  # neighbors of places at a time: 64 MiB of distances and ids
TEMPERATURES = 2.0 ** np.arange(-4, 4)  # candidates, in units of the mean distance of the neighbors
FARTHEST = -1e300  # score of a neighbor at a distance that is not infinite
FEWEST = 8  # neighbors that are tried, unless there are fewer
SETTINGS = {"neighbors": whole(1, 2**20), "temperature": number(1e-30, 1e30), "share": number(0, 1)}


class Memory:
    """Datastore of what a model has read: the key of every place and the word that followed it (kNN-LM).

    The probability of a word is (1 − share) · p of the model + share · p of the memory. That of the memory is the
    softmax of −d/temperature over the nearest `neighbors`, summed over those that the word followed; d is the squared
    Euclidean distance of the keys. The key of a place is the input of the feed-forward layers of the last block of a
    Transformer, and the hidden state of other bodies.

    Args:
        shards: List of pairs `(keys, ids)`: (rows, dim), of any float type, and (rows,).
        neighbors: Number of neighbors, at most the number of all keys.
        temperature: Divisor of the distances, above 0.
        share: Weight of the memory, from 0 to 1.
        index: Index of faiss with the keys of all shards in this order, for approximate neighbors. Optional.

    Raises:
        ValueError: If a number is out of range.

    Reference:
        Khandelwal et al., Generalization through Memorization: Nearest Neighbor Language Models, ICLR 2020, section 2.

    Example:

    >>> keys, ids = np.eye(3, dtype="float16"), np.array([5, 6, 5])
    >>> memory = Memory([(keys, ids)], neighbors=2, temperature=1.0, share=0.5)
    >>> np.exp(-memory.nll(keys[:1], ids[:1], nll=np.log([10.0]))).round(3).tolist()
    [0.49]
    """

    def __init__(
        self,
        shards: Sequence[tuple[np.ndarray, np.ndarray]],
        neighbors: int = NEIGHBORS,
        temperature: float = 1.0,
        share: float = 0.25,
        index: Any = None,
    ) -> None:
        self.shards = list(shards)
        self.index = index
        dims = {np.shape(keys)[1:] for keys, _ in self.shards}
        if len(dims) != 1 or any(len(keys) != len(ids) for keys, ids in self.shards):
            raise ValueError(
                "`shards` must be pairs of keys of one dimension and of as many ids. "
                f"Received: shapes={[(np.shape(keys), np.shape(ids)) for keys, ids in self.shards][:3]}."
            )
        self.neighbors = neighbors
        self.temperature = temperature
        self.share = share
        for name, field in SETTINGS.items():
            if not field.holds(getattr(self, name)):
                raise ValueError(f"`{name}` must be {field.expected}. Received: {name}={getattr(self, name)!r}.")
        if neighbors > len(self):
            raise ValueError(
                f"`neighbors` must be at most {len(self):,}, the number of keys. Received: neighbors={neighbors}."
            )

    def __len__(self) -> int:
        return sum(len(ids) for _, ids in self.shards)

    @property
    def dim(self) -> int:
        """Dimension of the keys."""
        return self.shards[0][0].shape[1]

    @classmethod
    def build(
        cls,
        folder: str | os.PathLike,
        model: Any,
        tokens: np.ndarray,
        block: int,
        context: int,
        *,
        identity: dict[str, str],
        batch_size: int = 16,
        report: Callable[[int, int], None] | None = None,
    ) -> None:
        """Writes a datastore of a text, whose every token is read in a window of `ContextWindows`.

        A call that was interrupted goes on after the last whole shard.

        Args:
            folder: Folder to write.
            model: A `LanguageModel`.
            tokens: Ids of the text (tokens,).
            block: Number of tokens of a window that are kept.
            context: Number of tokens before them.
            identity: What the memory belongs to: `model`, `vocabulary` and `text`, such as their digests.
            batch_size: Number of windows at a time.
            report: Function `(kept, tokens)` of the number of tokens so far and of all tokens. Optional.

        Raises:
            ValueError: If the folder holds another memory.
        """
        windows = ContextWindows(tokens, block, context, batch_size=batch_size, by_lines=False)
        dim = model.keys(next(iter(windows))[0]).shape[-1]
        batches = max(1, datastore.SHARD // (block * batch_size))

        def parts(kept):
            rest = itertools.islice(windows, -(-kept // (block * batch_size)), None)
            while some := list(itertools.islice(rest, batches)):
                arrays = []
                for inputs, targets, weights in some:
                    scored = weights > 0
                    arrays.append((model.keys(inputs)[scored], targets[scored]))
                    kept += np.count_nonzero(scored)
                    if report:
                        report(kept, len(windows.tokens))
                yield tuple(map(np.concatenate, zip(*arrays)))

        read = f"{block} tokens after {context} of context, {batch_size} at a time"
        datastore.write_shards(folder, {"dim": dim, "tokens": len(windows.tokens), "read": read, **identity}, parts)

    @classmethod
    def load(cls, folder: str | os.PathLike, identity: dict[str, str] | None = None) -> "Memory":
        """Opens a datastore with the settings that `tune` has found, without reading it into memory.

        Args:
            folder: Folder that `build` wrote.
            identity: Fields of the `identity` of `build` that must agree. Optional.

        Raises:
            ValueError: If it is incomplete or damaged, or belongs to something else.
        """
        facts = datastore.read_facts(folder)
        for name, value in (identity or {}).items():
            if facts[name] != value:
                raise ValueError(f"{folder} is the memory of another {name}: make one for this {name}.")
        shards, index = list(datastore.read_shards(folder, facts)), datastore.read_its_index(folder, facts)
        if "settings" not in facts:
            return cls(shards, min(NEIGHBORS, facts["tokens"]), index=index)
        with reading(
            Path(folder, datastore.FACTS), "the description of a memory", "Run the command that makes it again."
        ):
            if not isinstance(facts["settings"], dict) or facts["settings"].keys() != SETTINGS.keys():
                raise ValueError(f"its settings must be {', '.join(SETTINGS)}")
            return cls(shards, **facts["settings"], index=index)

    @property
    def settings(self) -> dict[str, Any]:
        """Neighbors, temperature and share."""
        return {name: getattr(self, name) for name in SETTINGS}

    def save_settings(self, folder: str | os.PathLike) -> None:
        """Writes the settings beside the datastore, for `load`."""
        write_json(Path(folder, datastore.FACTS), {**datastore.read_facts(folder), "settings": self.settings})

    def nll(self, keys: np.ndarray, targets: np.ndarray, nll: np.ndarray) -> np.ndarray:
        """Returns the negative log-likelihoods of the words of a text, in nats, float64 (tokens,).

        Args:
            keys: Keys of the places before each word (tokens, dim).
            targets: Ids of the words (tokens,).
            nll: Negative log-likelihoods by the model (tokens,).
        """
        parts = [_log_probs(*part, self.temperature) for part in self._parts(keys, targets)]
        return mixed(nll, np.concatenate(parts), self.share)

    def log_probs(self, keys: np.ndarray, log_probs: np.ndarray) -> np.ndarray:
        """Returns the log-probabilities of all words at some places, in nats, float32 (tokens, words).

        Args:
            keys: Keys of the places (tokens, dim).
            log_probs: Log-probabilities by the model (tokens, words).
        """
        of_memory = np.zeros(np.shape(log_probs), "float32")
        for distances, ids, rows in self._parts(keys, np.arange(len(keys))):
            np.add.at(of_memory, (rows[:, None], ids), _weights(distances, self.temperature))
        with np.errstate(divide="ignore"):  # a share of 0 or 1, and words that no neighbor has
            of_memory = np.log(of_memory) + np.log(self.share)
            return np.logaddexp(log_probs + np.log1p(-self.share), of_memory, dtype="float32")

    def tune(self, keys: np.ndarray, targets: np.ndarray, nll: np.ndarray) -> float:
        """Sets all settings to those of a grid with the lowest loss of a text, and returns the loss.

        The number of neighbors can only become smaller, by powers of 4. Arguments are those of `nll`.
        """
        found, grid = [], None
        for distances, ids, words in self._parts(keys, targets):
            if grid is None:
                mean = np.mean(distances, where=np.isfinite(distances)) or 1.0
                temperatures = list(map(float, TEMPERATURES * mean))
                numbers = [self.neighbors >> 2 * step for step in range(12) if self.neighbors >> 2 * step >= FEWEST]
                grid = list(itertools.product(numbers or [self.neighbors], temperatures))
            order = np.argsort(distances, axis=1)
            distances, ids = (np.take_along_axis(array, order, axis=1) for array in (distances, ids))
            found.append([_log_probs(distances[:, :most], ids[:, :most], words, heat) for most, heat in grid])
        losses = {
            (*settings, share): float(mixed(nll, np.concatenate(of_memory), share).mean())
            for settings, of_memory in zip(grid, zip(*found))
            for share in SHARES
        }
        best = min(losses, key=losses.__getitem__)
        self.neighbors, self.temperature, self.share = best
        return losses[best]

    def _parts(self, keys, targets):
        """Yields `(distances, ids, targets)` of some places at a time, since each has `neighbors` numbers."""
        keys = np.asarray(keys)
        if keys.ndim != 2 or len(keys) != len(targets) or not len(keys) or not np.isfinite(keys).all():
            raise ValueError(
                "A memory needs one finite key for each word, and at least one word. "
                f"Received: keys of shape {keys.shape} for {len(targets)} words."
            )
        places = max(1, PAIRS // self.neighbors)
        for start in range(0, len(targets), places):
            part = slice(start, start + places)
            if self.index is None:
                yield *nearest(self.shards, keys[part], self.neighbors), targets[part]
            else:
                distances, rows = self.index.search(keys[part].astype("float32"), self.neighbors)
                distances[rows < 0] = np.inf  # fewer were found
                yield distances, self._words[rows], targets[part]

    @functools.cached_property
    def _words(self):
        return np.concatenate([ids for _, ids in self.shards])


def _log_probs(distances, ids, targets, temperature):
    """Returns log p of the targets by the memory (tokens,), −∞ for a word that no neighbor has."""
    same = ids == np.asarray(targets)[:, None]
    with np.errstate(divide="ignore"):
        return np.log(np.sum(_weights(distances, temperature), axis=1, where=same))


def _weights(distances, temperature):
    """Returns the softmax of −distances/temperature (tokens, neighbors), float64; 0 where nothing was found."""
    scores = -distances.astype("float64") / temperature
    exps = np.exp(scores - np.maximum(scores.max(axis=1, keepdims=True), FARTHEST))
    return exps / np.maximum(exps.sum(axis=1, keepdims=True), 1e-300)
