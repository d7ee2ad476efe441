"""Noise words of sampled losses: drawn without replacement, with the probability that each was drawn.

Candidates are drawn with replacement until `num_samples` different words are found, as TensorFlow's samplers with
`unique=True` do. The number of tries that this takes gives the expected count of every word, which is the probability
that the word is among the noise. All shapes are static and nothing passes over the vocabulary: the number of
candidates is fixed beforehand, by `number_of_candidates`.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.compiled import constant

PIECES = 1024  # of a log-uniform distribution; a power of two
MOST_CANDIDATES = 16  # for each noise word, where some words are too rare to be found
MARGIN = 6.0  # standard deviations of the number of different words


class Noise(NamedTuple):
    """Noise words of an update and the number of candidates that were drawn until they were found.

    Args:
        ids: Int32 tensor (num_samples,), different words in ascending order. Places without a word follow, if there
            are too few different words among the candidates; they repeat a word.
        found: Bool tensor (num_samples,), False in these places.
        tries: Float32 scalar.
    """

    ids: Any
    found: Any
    tries: Any

    def expected_counts(self, probabilities):
        """Returns the probability that a word is among the noise, given the probability of each draw: (…) float32."""
        return -ops.expm1(ops.multiply(self.tries, ops.log1p(-ops.convert_to_tensor(probabilities))))


class LogUniform:
    """Zipfian noise: p(id) = log((id + 2) / (id + 1)) / log(vocabulary_size + 1), for ids by descending frequency.

    This is the distribution of `tf.random.log_uniform_candidate_sampler`. The logarithm of id + 1 is uniform, and 32
    bits of floats cannot tell rare words apart by one number. So a first number chooses one of `PIECES` pieces of equal
    probability and a second one the place within the piece.

    Args:
        vocabulary_size: Number of words.
    """

    def __init__(self, vocabulary_size):
        self.vocabulary_size = vocabulary_size
        self._total = np.log1p(float(vocabulary_size))
        starts = np.exp(np.arange(PIECES) * (self._total / PIECES))
        whole = np.floor(starts)
        self._starts, self._rest = (constant(part.astype("float32")) for part in (starts, starts - whole))
        self._whole = constant(whole.astype("int32"))

    def probabilities(self, ids):
        """Returns the probability of drawing each id: (…) int to (…) float32."""
        return ops.log1p(1.0 / (ops.cast(ids, "float32") + 1.0)) / float(self._total)

    def all_probabilities(self):
        return np.log1p(1.0 / np.arange(1, self.vocabulary_size + 1)) / self._total

    def candidates(self, uniform):
        """Maps numbers (2, candidates) in [0, 1) to ids (candidates,) int32."""
        piece = ops.cast(uniform[0] * PIECES, "int32")
        starts, whole, rest = (ops.take(table, piece) for table in (self._starts, self._whole, self._rest))
        beyond = rest + starts * ops.expm1(uniform[1] * float(self._total / PIECES))
        return ops.minimum(whole + ops.cast(beyond, "int32") - 1, self.vocabulary_size - 1)


class Unigram:
    """Noise by the counts of the words: p(id) = counts[id] / sum. A word that was never counted counts once.

    Draws take the same time for any vocabulary: each of its equal cells holds two words at most (Walker's alias
    method).

    Args:
        counts: Occurrences of each word, integers (vocabulary_size,).
    """

    def __init__(self, counts):
        counts = np.maximum(np.asarray(counts, "float64"), 1.0)
        self.vocabulary_size = len(counts)
        self._probabilities = counts / counts.sum()
        shares, aliases = alias_table(self._probabilities)
        self._table, self._shares = (constant(part.astype("float32")) for part in (self._probabilities, shares))
        self._aliases = constant(aliases)

    def probabilities(self, ids):
        """Returns the probability of drawing each id: (…) int to (…) float32."""
        return ops.take(self._table, ids)

    def all_probabilities(self):
        return self._probabilities

    def candidates(self, uniform):
        """Maps numbers (2, candidates) in [0, 1) to ids (candidates,) int32."""
        cell = ops.cast(uniform[0] * self.vocabulary_size, "int32")
        cell = ops.minimum(cell, self.vocabulary_size - 1)
        return ops.where(uniform[1] < ops.take(self._shares, cell), cell, ops.take(self._aliases, cell))


def alias_table(probabilities):
    """Divides the probabilities of n words among n cells of equal size that hold two words at most.

    Words below 1/n leave a part of their cell to the word that is next in line among the others. A word whose
    surplus is used up by that is filled up by the word after it.

    Args:
        probabilities: Float64 array (n,) with the sum 1.

    Returns:
        `(shares, aliases)`: the part of each cell that its own word has, float64 (n,), and the other word, int32 (n,).

    Reference:
        Walker, An efficient method for generating discrete random variables with general distributions, ACM TOMS 1977.
    """
    sizes = probabilities * len(probabilities)
    least = min(1.0, sizes.max())  # below 1 by rounding
    rare, frequent = np.flatnonzero(sizes < least), np.flatnonzero(sizes >= least)
    needed, surplus = np.cumsum(1.0 - sizes[rare]), np.cumsum(sizes[frequent] - 1.0)
    shares, aliases = np.ones_like(sizes), np.arange(len(sizes), dtype="int32")
    last = len(frequent) - 1
    giver = np.searchsorted(surplus, np.concatenate([[0.0], needed[:-1]])[: len(rare)], side="right")
    shares[rare], aliases[rare] = sizes[rare], frequent[np.minimum(giver, last)]
    taker = np.searchsorted(needed, surplus[:-1], side="right")  # the rare word that uses up each surplus
    used_up = np.flatnonzero(taker < len(rare))
    overdrawn = needed[taker[used_up]] - surplus[used_up]
    shares[frequent[used_up]], aliases[frequent[used_up]] = 1.0 - overdrawn, frequent[used_up + 1]
    return shares, aliases


def number_of_candidates(distribution, num_samples):
    """Returns how many candidates surely hold `num_samples` different words, or the most that are drawn.

    The number of different words has a standard deviation of at most the square root of its mean.
    """
    least_logs = np.log1p(-np.minimum(distribution.all_probabilities(), 1 - 1e-12))
    wanted = num_samples + MARGIN * np.sqrt(num_samples)
    low, high = num_samples, MOST_CANDIDATES * num_samples
    if -np.expm1(high * least_logs).sum() < wanted:
        return high
    while high - low > 0.01 * high + 1:
        middle = (low + high) // 2
        enough = -np.expm1(middle * least_logs).sum() >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return high


def draw_noise(distribution, num_samples, candidates, seed):
    """Draws noise words, a function of the seed alone.

    Args:
        distribution: A `LogUniform` or `Unigram`.
        num_samples: Number of different words.
        candidates: Number of candidates, by `number_of_candidates`.
        seed: Int or `keras.random.SeedGenerator`.

    Returns:
        A `Noise`.
    """
    uniform = keras.random.uniform((2, candidates), dtype="float32", seed=seed)
    return first_different(distribution.candidates(uniform), num_samples)


def first_different(candidates, num_samples):
    """Returns the `Noise` of the first `num_samples` different ids among candidates, int32 (candidates,)."""
    count = candidates.shape[0]
    order = ops.argsort(candidates)  # stable
    in_order = ops.take(candidates, order)
    first = ops.concatenate([in_order[:1] == in_order[:1], in_order[1:] != in_order[:-1]])
    new = ops.scatter_update(ops.zeros(count, "int32"), order[:, None], ops.cast(first, "int32"))
    different = ops.cumsum(new)  # the number of different words up to each try
    tries = ops.minimum(ops.sum(ops.cast(different < num_samples, "int32")) + 1, count)
    kept = first & (order < tries)
    place = ops.where(kept, ops.cumsum(ops.cast(kept, "int32")) - 1, num_samples)
    repeated = ops.broadcast_to(candidates[:1], (num_samples + 1,))
    ids = ops.scatter_update(repeated, place[:, None], in_order)[:num_samples]
    found = ops.arange(num_samples) < ops.sum(ops.cast(kept, "int32"))
    return Noise(ids, found, ops.cast(tries, "float32"))
