"""Noise words of sampled losses, drawn without replacement, and their expected counts.

Candidates are drawn with replacement until `num_samples` different words are found, as TensorFlow's samplers with
`unique=True` do. The number of tries determines the expected count of every word, which is the probability that the
word is among the noise. All shapes are static, because `number_of_candidates` fixes the number of candidates. The cost
of a draw does not depend on the vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_adaptive.backend.compiled import constant
from keras_adaptive.backend.first_of_runs import first_of_runs
from keras_adaptive.backend.replicas import gather_over_replicas
from keras_adaptive.ops.sampled_losses import LAST, SampledValues
from keras_adaptive.typing import Tensor

PIECES = 1024  # number of pieces of a log-uniform distribution, a power of two
MOST_CANDIDATES = 16  # maximum per noise word, if some words are too rare to be found
MARGIN = 6.0  # in standard deviations of the number of different words


class Noise(NamedTuple):
    """Noise words of an update, and the number of candidates that it took to find them.

    Args:
        ids: Int32 tensor (num_samples,), different words in ascending order. If there are too few different words among
            the candidates, a repeated word fills the last places.
        found: Bool tensor (num_samples,), False for repeated words.
        tries: Float32 scalar, the number of candidates.
    """

    ids: Any
    found: Any
    tries: Any

    def expected_counts(self, probabilities: Tensor) -> Tensor:
        """Returns the probability that a word is among the noise, given its probability per draw: (…) float32."""
        return -ops.expm1(ops.multiply(self.tries, ops.log1p(-ops.convert_to_tensor(probabilities))))

    def sampled_values(self, targets: Tensor, probabilities: Callable[[Tensor], Tensor]) -> SampledValues:
        """Returns the noise as losses take it.

        Args:
            targets: (rows,) int32, −1 for rows that do not count.
            probabilities: Function from ids (…) to their probabilities per draw.
        """
        samples = self.ids.shape[0]
        known = ops.where(targets >= 0, targets, self.ids[0])
        counts = self.expected_counts(probabilities(ops.concatenate([self.ids, known])))
        return SampledValues(self.ids, counts[samples:], ops.where(self.found, counts[:samples], 0.0))


class Uniform:
    """Uniform noise: p(id) = 1 / vocabulary_size.

    A float32 number has 2²³ or 2²⁴ values, so that it would draw some of a million ids half as often again as others.
    The sum of two numbers modulo the size of the vocabulary is uniform to a much smaller error.

    Args:
        vocabulary_size: Number of words.
    """

    def __init__(self, vocabulary_size: int) -> None:
        self.vocabulary_size = vocabulary_size

    def probabilities(self, ids: Tensor) -> Tensor:
        """Returns the probability of drawing each id: (…) int to (…) float32."""
        return ops.full(ops.shape(ids), 1.0 / self.vocabulary_size, "float32")

    def all_probabilities(self) -> np.ndarray:
        """Returns the probabilities of all words per draw: float64 (vocabulary_size,)."""
        return np.full(self.vocabulary_size, 1.0 / self.vocabulary_size)

    def candidates(self, uniform: Tensor) -> Tensor:
        """Maps numbers (2, candidates) in [0, 1) to ids (candidates,) int32."""
        first, second = ops.cast(uniform[0] * self.vocabulary_size, "int32"), uniform[1] * self.vocabulary_size
        return (first + ops.cast(second, "int32")) % self.vocabulary_size


class LogUniform:
    """Zipfian noise: p(id) = log((id + 2) / (id + 1)) / log(vocabulary_size + 1), for ids by descending frequency.

    This is the distribution of `tf.random.log_uniform_candidate_sampler`. The logarithm of id + 1 is uniform. A single
    float32 number cannot distinguish all rare words, so a first number chooses one of `PIECES` pieces of equal
    probability, and a second number the place within the piece.

    Args:
        vocabulary_size: Number of words.
    """

    def __init__(self, vocabulary_size: int) -> None:
        self.vocabulary_size = vocabulary_size
        self._total = np.log1p(float(vocabulary_size))
        starts = np.exp(np.arange(PIECES) * (self._total / PIECES))
        whole = np.floor(starts)
        self._starts, self._rest = (constant(part.astype("float32")) for part in (starts, starts - whole))
        self._whole = constant(whole.astype("int32"))

    def probabilities(self, ids: Tensor) -> Tensor:
        """Returns the probability of drawing each id: (…) int to (…) float32."""
        return ops.log1p(1.0 / (ops.cast(ids, "float32") + 1.0)) / float(self._total)

    def all_probabilities(self) -> np.ndarray:
        """Returns the probabilities of all words per draw: float64 (vocabulary_size,)."""
        return np.log1p(1.0 / np.arange(1, self.vocabulary_size + 1)) / self._total

    def candidates(self, uniform: Tensor) -> Tensor:
        """Maps numbers (2, candidates) in [0, 1) to ids (candidates,) int32."""
        piece = ops.cast(uniform[0] * PIECES, "int32")
        starts, whole, rest = (ops.take(table, piece) for table in (self._starts, self._whole, self._rest))
        beyond = rest + starts * ops.expm1(uniform[1] * float(self._total / PIECES))
        return ops.minimum(whole + ops.cast(beyond, "int32") - 1, self.vocabulary_size - 1)


class Unigram:
    """Unigram noise: p(id) = counts[id] / sum. A count of 0 is replaced by 1.

    The time of a draw does not depend on the vocabulary, by Walker's alias method.

    Args:
        counts: Count of each word, integers (vocabulary_size,).
    """

    def __init__(self, counts: Sequence[int] | np.ndarray) -> None:
        positive = np.maximum(np.asarray(counts, "float64"), 1.0)
        self.vocabulary_size = len(positive)
        self._probabilities = positive / positive.sum()
        shares, aliases = alias_table(self._probabilities)
        self._table, self._shares = (constant(part.astype("float32")) for part in (self._probabilities, shares))
        self._aliases = constant(aliases)

    def probabilities(self, ids: Tensor) -> Tensor:
        """Returns the probability of drawing each id: (…) int to (…) float32."""
        return ops.take(self._table, ids)

    def all_probabilities(self) -> np.ndarray:
        """Returns the probabilities of all words per draw: float64 (vocabulary_size,)."""
        return self._probabilities

    def candidates(self, uniform: Tensor) -> Tensor:
        """Maps numbers (2, candidates) in [0, 1) to ids (candidates,) int32."""
        cell = ops.cast(uniform[0] * self.vocabulary_size, "int32")
        cell = ops.minimum(cell, self.vocabulary_size - 1)
        return ops.where(uniform[1] < ops.take(self._shares, cell), cell, ops.take(self._aliases, cell))


class DrawnNoise:
    """Noise words drawn from a distribution, which depend on the seed only.

    Args:
        distribution: A `LogUniform`, `Uniform` or `Unigram`.
        num_samples: Number of noise words.
    """

    def __init__(self, distribution: LogUniform | Uniform | Unigram, num_samples: int) -> None:
        self.distribution = distribution
        self.num_samples = num_samples
        self.candidates = number_of_candidates(distribution, num_samples)

    def draw(self, targets: Tensor, weights: Tensor, seed: Any) -> SampledValues:
        """Returns the noise of an update.

        Args:
            targets: (rows,) int32, −1 for rows that do not count.
            weights: (rows,) float32, which noise from a distribution ignores.
            seed: A `keras.random.SeedGenerator`, or an integer.
        """
        noise = draw_noise(self.distribution, self.num_samples, self.candidates, seed)
        return noise.sampled_values(targets, self.distribution.probabilities)


class InBatchNoise:
    """The first different targets of a batch, of all replicas together, as noise words.

    Targets of a batch are draws from the unigram distribution. The expected count of a word is the probability that one
    of the targets is the word. Without a distribution, its probability per draw is its share in the batch.

    Args:
        num_samples: Maximum number of noise words.
        distribution: The `Unigram` distribution of the targets. Optional.
    """

    def __init__(self, num_samples: int, distribution: Unigram | None = None) -> None:
        self.num_samples = num_samples
        self.distribution = distribution

    def draw(self, targets: Tensor, weights: Tensor, seed: Any) -> SampledValues:
        """Returns the noise of an update, as `DrawnNoise` does; rows of weight 0 do not count either."""
        ids = gather_over_replicas(ops.where(weights != 0, targets, -1))
        known = ids >= 0
        total = ops.sum(ops.cast(known, "int32"))
        order = ops.argsort(ops.cast(~known, "int32"))  # stable: targets that count come first
        in_order = ops.take(ids, order)
        candidates = ops.maximum(ops.where(in_order >= 0, in_order, in_order[0]), 0)
        noise = first_different(candidates, min(self.num_samples, ids.shape[0] or self.num_samples))
        noise = noise._replace(tries=ops.minimum(noise.tries, ops.cast(total, "float32")))
        if self.distribution is not None:
            return noise.sampled_values(targets, self.distribution.probabilities)
        ordered = ops.sort(ops.where(known, ids, LAST))

        def shares(ids):
            last, first = (ops.searchsorted(ordered, ids, side=side) for side in ("right", "left"))
            return ops.cast(last - first, "float32") / ops.cast(ops.maximum(total, 1), "float32")

        return noise.sampled_values(targets, shares)


def alias_table(probabilities):
    """Divides the probabilities (n,) of n words among n cells of equal size, each for at most two words.

    Words with a probability below 1/n leave part of their cell to the first of the other words that has a surplus. A
    word whose surplus runs out receives the rest of its own cell from the word after it.

    Returns:
        `(shares, aliases)`: the share of each cell that belongs to its own word, float64 (n,), and the id of the other
        word, int32 (n,).

    Reference:
        Walker, An efficient method for generating discrete random variables with general distributions, ACM TOMS 1977.
    """
    sizes = probabilities * len(probabilities)
    least = min(1.0, sizes.max())  # below 1 by rounding
    rare, frequent = np.flatnonzero(sizes < least), np.flatnonzero(sizes >= least)
    needed, surplus = np.cumsum(1.0 - sizes[rare]), np.cumsum(sizes[frequent] - 1.0)
    shares, aliases = np.ones_like(sizes), np.arange(len(sizes), dtype="int32")
    last = len(frequent) - 1
    donor = np.searchsorted(surplus, np.concatenate([[0.0], needed[:-1]])[: len(rare)], side="right")
    shares[rare], aliases[rare] = sizes[rare], frequent[np.minimum(donor, last)]
    recipient = np.searchsorted(needed, surplus[:-1], side="right")  # the rare word that exhausts each surplus
    exhausted = np.flatnonzero(recipient < len(rare))
    deficit = needed[recipient[exhausted]] - surplus[exhausted]
    shares[frequent[exhausted]], aliases[frequent[exhausted]] = 1.0 - deficit, frequent[exhausted + 1]
    return shares, aliases


def number_of_candidates(distribution, num_samples):
    """Returns a number of candidates that contains `num_samples` different words almost surely, up to a maximum.

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
    """Draws a `Noise`, which depends on the seed only, from the `number_of_candidates` of a distribution."""
    uniform = keras.random.uniform((2, candidates), dtype="float32", seed=seed)
    return first_different(distribution.candidates(uniform), num_samples)


def first_different(candidates, num_samples):
    """Returns the `Noise` of the first `num_samples` different ids among `candidates`, int32 (candidates,)."""
    count = ops.shape(candidates)[0]
    order = ops.argsort(candidates)  # stable
    in_order = ops.take(candidates, order)
    first = first_of_runs(in_order)
    new = ops.scatter_update(ops.zeros_like(candidates), order[:, None], ops.cast(first, "int32"))
    different = ops.cumsum(new)  # the number of different words up to each try
    tries = ops.minimum(ops.sum(ops.cast(different < num_samples, "int32")) + 1, count)
    kept = first & (order < tries)
    place = ops.where(kept, ops.cumsum(ops.cast(kept, "int32")) - 1, num_samples)
    repeated = ops.broadcast_to(candidates[:1], (num_samples + 1,))
    ids = ops.scatter_update(repeated, place[:, None], in_order)[:num_samples]
    found = ops.arange(num_samples) < ops.sum(ops.cast(kept, "int32"))
    return Noise(ids, found, ops.cast(tries, "float32"))
