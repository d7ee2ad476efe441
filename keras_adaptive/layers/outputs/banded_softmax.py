"""All that is computed from the weights of a softmax whose words are divided into bands."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_adaptive.backend.ordering import computed_once, with_dependencies
from keras_adaptive.backend.products import matmul
from keras_adaptive.ops.active_rows import update_rows
from keras_adaptive.ops.chunks import tail_chunk_rows
from keras_adaptive.ops.linear_cross_entropy import checked_inputs, linear_nll, sliced_total_and_rows, total_and_rows
from keras_adaptive.ops.logit_chunks import Wanted, capped
from keras_adaptive.ops.long_rows import count_before, draw, pick, top_k
from keras_adaptive.ops.long_tables import Classes, best_classes, columns_of, rows_at_once
from keras_adaptive.ops.quantized_matrix import floats, rows_of
from keras_adaptive.typing import Tensor


class Band(NamedTuple):
    """The weights of a band of words.

    Attributes:
        table: (size, dim), the vectors of the words; a tensor or a `QuantizedMatrix`.
        bias: (size,), or `None`.
        project: Function from hidden states (…, hidden_dim) to (…, dim).
    """

    table: Any
    bias: Tensor | None
    project: Callable[[Tensor], Tensor]


class BandedSoftmax:
    """Softmax over a head, whose last columns stand for the tails, and a softmax within each tail.

    It holds tensors, no variables, so that a layer may compute its word vectors in any way, once for a whole method.

    Args:
        bands: List of a `Band` for the head and for each tail.
        boundaries: Integers (0, …, number of words): the first word of every band, then the number of words.
        class_logits: Function from hidden states (…, hidden_dim) to the logits of the tails (…, tails) float32.
        whole: `(table, bias)` of all words, if the tables of the bands are slices of one. Optional.
        soft_cap: Bound of all logits. Optional.
    """

    def __init__(
        self,
        bands: Sequence[Band],
        boundaries: Sequence[int],
        class_logits: Callable[[Tensor], Tensor] | None = None,
        *,
        whole: tuple[Tensor, Tensor | None] | None = None,
        soft_cap: float | None = None,
    ) -> None:
        self.bands = bands
        self.boundaries = boundaries
        self.class_logits = class_logits
        self.whole = whole
        self.soft_cap = soft_cap
        self.tails = len(bands) - 1

    def total_and_rows(self, inputs: Sequence[Any], wanted: Wanted) -> tuple[Tensor, list[Any]]:
        """Returns the sum of the losses of all bands, and the `RowResults` of each; see `inputs`."""
        inputs = list(inputs)
        chunk_rows = [None, *(tail_chunk_rows(part.x, self._size(place + 1)) for place, part in enumerate(inputs[1:]))]
        if self.whole is not None and self.tails:
            table, bias = self.whole
            inputs = [part._replace(table=floats(table), bias=bias) for part in inputs]
            return sliced_total_and_rows(inputs, self.boundaries, chunk_rows, wanted)
        total, results = 0.0, []
        for part, rows in zip(inputs, chunk_rows):
            part = part._replace(x=with_dependencies(part.x, total))  # one band after the other
            loss, of_band = total_and_rows(part, rows, wanted)
            total, results = total + loss, [*results, of_band]
        return total, results

    def inputs(self, x: Tensor, targets: Tensor, weights: Tensor, drop: Callable[[Tensor], Tensor]) -> list[Any]:
        """Returns the `Inputs` of a `linear_cross_entropy` for each band, given (rows, hidden_dim) and (rows,) tensors.

        `drop` is the dropout of the projected hidden states of the tails.
        """
        inputs = []
        for number, (band, places) in enumerate(zip(self.bands, self._places(targets))):
            rows = band.project(x)
            extra = self.class_logits(x) if number == 0 and self.tails else None
            rows = drop(rows) if number else rows
            inputs.append(checked_inputs(rows, places, weights, extra, None, floats(band.table), band.bias))
        return inputs

    def _places(self, targets):
        """Returns the column of each target in the softmax of each band, −1 for none: a list of (rows,) int32."""
        bounds = self.boundaries
        tail = sum(ops.cast(targets >= low, "int32") for low in bounds[1:-1]) if self.tails else 0
        head = ops.where(targets < bounds[1], targets, bounds[1] - 1 + tail)
        places = [ops.where(targets < bounds[-1], head, -1)]
        for low, high in zip(bounds[1:], bounds[2:]):
            places.append(ops.where((targets >= low) & (targets < high), targets - low, -1))
        return places

    def nll(self, x: Tensor, targets: Tensor) -> Tensor:
        """Returns −log p(target): (rows,) float32."""
        nll = 0.0
        for number, (band, places) in enumerate(zip(self.bands, self._places(targets))):
            extra = self.class_logits(x) if number == 0 and self.tails else None
            rows = band.project(x)
            chunk_rows = tail_chunk_rows(rows, self._size(number)) if number else None
            nll = nll + linear_nll(rows, floats(band.table), places, extra, chunk_rows, band.bias, self.soft_cap)
        return nll

    def log_probs(self, x: Tensor) -> Tensor:
        """Returns the log-probabilities (…, words) float32."""
        words, classes = self.head(x)
        tails = [self._tail(x, tail) + classes[..., tail : tail + 1] for tail in range(self.tails)]
        return ops.concatenate([words, *tails], axis=-1)

    def top_k(self, x: Tensor, k: int, allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Computes a tail only for rows where one of its words can still be among the k best.

        The words for which `allowed` (words,) is false have the log-probability −∞.
        """
        rows, width = ops.shape(x)[0], min(k, self.boundaries[1])
        outputs = [ops.zeros((rows, width)), ops.zeros((rows, width), "int32"), ops.zeros((rows, self.tails))]
        outputs = outputs[: 3 if self.tails else 2]
        function, every = functools.partial(self._best_of_head, width, allowed), ops.ones(rows, "bool")
        best, ids, *classes = self._update_best(0, function, every, [x], outputs)
        for tail in range(self.tails):
            best, ids = self._merge_tail(tail, k, allowed, x, classes[0][:, tail, None], best, ids)
        return best, ids

    def _best_of_head(self, k, allowed, x):
        columns = capped(self.class_logits(x), self.soft_cap) if self.tails else None
        return best_classes(self._classes(0, allowed), self.bands[0].project(x), k, columns)

    def _merge_tail(self, tail, k, allowed, x, column, best, ids):
        """Merges a tail's best words into the best ones; the tail's log-probability `column` (rows, 1) bounds them.

        Of equally probable words those before the tail come first. All rows need the tail while there are fewer than k
        words before it.
        """
        first, width = self.boundaries[tail + 1], min(k, self.boundaries[tail + 2])

        def merge(x, column, best, ids):
            classes = self._classes(tail + 1, allowed)
            values, places = best_classes(classes, self.bands[tail + 1].project(x), min(k, classes.size))
            best, order = top_k(ops.concatenate([best, values + column], axis=-1), width)
            ids = ops.take_along_axis(ops.concatenate([ids, places + first], axis=-1), order, axis=-1)
            return [best, ids]

        missing = width - best.shape[-1]
        active = ids[:, 0] == ids[:, 0] if missing else ~(column[:, 0] <= best[:, -1])  # or NaN
        outputs = [ops.pad(tensor, [[0, 0], [0, missing]]) for tensor in (best, ids)] if missing else [best, ids]
        return self._update_best(tail + 1, merge, active, [x, column, best, ids], outputs)

    def _update_best(self, band, function, active, inputs, outputs):
        at_once = rows_at_once(active.shape[0], self._size(band), few=band > 0)
        return update_rows(function, active, inputs, outputs, chunk_rows=at_once)

    def _classes(self, number, allowed):
        """Returns the `Classes` of a band for projected hidden states."""
        (table, bias, _), low = self.bands[number], self.boundaries[number]
        size = self._size(number)

        def logits(x, start, count):
            band = Band(columns_of(table, start, count), None if bias is None else columns_of(bias, start, count), None)
            return self._logits_of(band, x)

        def logits_at(x, columns):
            vectors = ops.cast(rows_of(table, columns), x.dtype)
            logits = ops.cast(ops.matmul(vectors, x[..., None])[..., 0], "float32")
            logits = logits if bias is None else logits + ops.cast(ops.take(bias, columns), "float32")
            return capped(logits, self.soft_cap)

        return Classes(size, logits, logits_at, None if allowed is None else allowed[low : low + size])

    def score(self, x: Tensor, targets: Tensor, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores in three passes, which compute no band's logits twice for a row.

        The first pass computes, within the target's tail, its log-probability and the number of better words. The head
        then gives the target's log-probability. The last pass counts the better words of all tails above it. Of equally
        probable words the one with the smaller id is better. The ids `exclude` (rows, n), which are all different and
        not the target, count nowhere.
        """
        exclude = [] if exclude is None else [exclude]
        within, better = ops.zeros(ops.shape(targets), "float32"), ops.zeros_like(targets)
        columns, in_tail = targets, []
        for tail, (low, high) in enumerate(zip(self.boundaries[1:], self.boundaries[2:])):
            in_tail.append((targets >= low) & (targets < high))
            function, inputs = functools.partial(self._score_own_tail, tail), [x, targets - low, *exclude]
            within, better = self._update(tail + 1, function, in_tail[-1], inputs, [within, better])
            columns = ops.where(in_tail[-1], self.boundaries[1] + tail, columns)
        known = (targets >= 0) & (targets < self.boundaries[-1])
        outputs = [ops.zeros_like(within), better]
        if self.tails:
            outputs.append(ops.zeros((ops.shape(targets)[0], self.tails), "float32"))
        inputs = [x, columns, within, better, *exclude]
        log_probs, better, *classes = self._update(0, self._score_head, known, inputs, outputs)
        for tail in range(self.tails):
            column = classes[0][:, tail]
            after = targets >= self.boundaries[tail + 2]
            active = known & ~in_tail[tail] & ((column > log_probs) | after & (column == log_probs))
            function = functools.partial(self._count_in_tail, tail)
            inputs = [x, column, targets, log_probs, better, *exclude]
            (better,) = self._update(tail + 1, function, active, inputs, [better])
        return log_probs, better + 1

    def _score_own_tail(self, tail, x, places, *exclude):
        words = computed_once(self._tail(x, tail))
        picked = pick(words, places)
        return [picked, self._count_before(words, picked, places, tail + 1, exclude)]

    def _count_before(self, words, threshold, columns, band, exclude):
        """Counts the words of a band before a column, except for the ids `exclude`, `[(rows, n)]` or empty."""
        return count_before(words, threshold, columns, *(ids - self.boundaries[band] for ids in exclude))

    def _score_head(self, x, columns, within, better, *exclude):
        both = computed_once(ops.log_softmax(self.head_logits(x)))
        log_probs = pick(both, columns) + within
        better = better + self._count_before(both[:, : self.boundaries[1]], log_probs, columns, 0, exclude)
        classes = both[:, self.boundaries[1] :]
        return [log_probs, better, classes] if self.tails else [log_probs, better]

    def _count_in_tail(self, tail, x, column, targets, log_probs, better, *exclude):
        words, places = self._tail(x, tail) + column[:, None], targets - self.boundaries[tail + 1]
        return [better + self._count_before(words, log_probs, places, tail + 1, exclude)]

    def draw(self, x: Tensor, uniform: Tensor) -> Tensor:
        """Draws from the head first and computes a tail only for rows that drew its column."""
        ids = columns = draw(self.head_logits(x), uniform[0])
        for tail in range(self.tails):
            drawn, function = columns == self.boundaries[1] + tail, functools.partial(self._draw_within, tail)
            (ids,) = self._update(tail + 1, function, drawn, [x, uniform[1]], [ids])
        return ids

    def _draw_within(self, tail, x, uniform):
        places = draw(self._logits(x, tail + 1), uniform)
        return [ops.where(places < 0, -1, places + self.boundaries[tail + 1])]

    def hits(self, inputs: Sequence[Any], results: Sequence[Any]) -> Tensor:
        """Returns which targets are the most probable words, from the pass of the loss; without gradients.

        Within its band a target is compared in that pass, and a word of a tail with the head too. Only the other tails
        are left. A tail is computed for a row only if the tail as a whole is more probable than the target, which is
        then the best of all words so far.

        Args:
            inputs: The `inputs`, and with them the dropout, of the loss.
            results: The `RowResults` of each band, with the best classes.

        Returns:
            (rows,) float32: 1 if the target is the most probable word, else 0. Among equally probable words, the one
            with the smallest id counts as the most probable.
        """
        head, *tails = results
        log_probs = -sum(of_band.nll for of_band in results)
        above_head = ops.cast(head.best_log_probs < log_probs, "float32")  # the head wins a tie, by its smaller id
        hits = head.hits + sum(of_band.hits * above_head for of_band in tails)
        for tail, part in enumerate(inputs[1:]):
            constants = Band(*(None if one is None else ops.stop_gradient(one) for one in part[-2:]), None)
            function = functools.partial(self._unless_beaten, constants)
            column = head.extra_log_probs[:, tail]
            targets_after = sum(ops.cast(later.targets >= 0, "int32") for later in inputs[tail + 2 :])
            comes_first = ops.broadcast_to(targets_after, ops.shape(column)) > 0
            active = (hits > 0) & (part.targets < 0) & (column >= log_probs)
            rows = [ops.stop_gradient(part.x), column, log_probs, comes_first, hits]
            (hits,) = self._update(tail + 1, function, active, rows, [hits])
        return hits

    def _unless_beaten(self, band, x, column, log_probs, comes_first, hits):
        best = ops.max(ops.log_softmax(self._logits_of(band, x)), axis=1) + column
        return [ops.where((best > log_probs) | (best == log_probs) & comes_first, 0.0, hits)]

    def retrieval_vectors(self) -> np.ndarray:
        """Returns a vector of each word (words, dim) float32, whose columns `Softmax.retrieval_vectors` describes."""
        self._check_linear()
        starts, width = self._columns_of_bands()
        biases = [band.bias for band in self.bands if band.bias is not None]
        vectors = np.zeros((self.boundaries[-1], width + bool(biases) + self.tails), "float32")
        for number, ((table, bias, _), start, low) in enumerate(zip(self.bands, starts, self.boundaries)):
            rows = vectors[low : low + self._size(number)]
            rows[:, start : start + table.shape[1]] = ops.convert_to_numpy(ops.cast(floats(table), "float32"))
            if bias is not None:
                rows[:, width] = ops.convert_to_numpy(ops.cast(bias, "float32"))
            if number:
                rows[:, number - 1 - self.tails] = 1.0
        return vectors

    def retrieval_queries(self, x: Tensor) -> Tensor:
        """Returns the query of each row (rows, dim) float32.

        The log-probability of a word given its tail is its logit less the log-normalizer of the tail, so that the
        columns of tails are the logits of the tails less these. The log-normalizer of the head is left out, the same
        for all words.
        """
        self._check_linear()
        bands = self.bands if self.whole is None else self.bands[:1]
        parts = [ops.cast(band.project(x), "float32") for band in bands]
        column = ops.ones((ops.shape(x)[0], 1), "float32")
        parts += [column] if self.bands[0].bias is not None else []
        if self.tails:
            every = column[:, 0] > 0
            totals = [self._log_totals(tail, x, every) for tail in range(self.tails)]
            parts.append(self.class_logits(x) - ops.stack(totals, axis=-1))
        return ops.concatenate(parts, axis=-1)

    def _check_linear(self):
        if self.tails and self.soft_cap is not None:
            raise ValueError(
                "An index compares words by inner products, which bounded logits of tails are not: pass cutoffs=() or "
                f"a loss without a bound. Received: soft_cap={self.soft_cap}."
            )

    def _columns_of_bands(self):
        """Returns the first column of the vectors of each band, and the number of these columns of all bands."""
        if self.whole is not None:
            return [0] * len(self.bands), self.whole[0].shape[1]
        *starts, width = np.cumsum([0, *(band.table.shape[1] for band in self.bands)]).tolist()
        return starts, width

    def _log_totals(self, tail, x, every):
        log_totals = lambda x: [ops.logsumexp(self._logits(x, tail + 1), axis=-1)]  # noqa: E731
        return self._update(tail + 1, log_totals, every, [x], [ops.zeros(ops.shape(x)[0], "float32")])[0]

    def head(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the log-probabilities of the head's words (…, cutoff_0) and of the tails (…, tails)."""
        both = ops.log_softmax(self.head_logits(x))
        return both[..., : self.boundaries[1]], both[..., self.boundaries[1] :]

    def head_logits(self, x: Tensor) -> Tensor:
        """Returns the logits of the head's words, followed by the columns of the tails."""
        logits = self._logits(x, 0)
        return ops.concatenate([logits, capped(self.class_logits(x), self.soft_cap)], axis=-1) if self.tails else logits

    def _tail(self, x, tail):
        """Returns the log-probabilities (…, size) of a tail's words given the tail."""
        return ops.log_softmax(self._logits(x, tail + 1))

    def _logits(self, x, band):
        return self._logits_of(self.bands[band], self.bands[band].project(x))

    def _logits_of(self, band, x):
        """Returns the logits of a band's words for projected hidden states."""
        logits = ops.cast(matmul(x, ops.transpose(ops.cast(floats(band.table), x.dtype))), "float32")
        return capped(logits if band.bias is None else logits + ops.cast(band.bias, "float32"), self.soft_cap)

    def _update(self, band, function, active, inputs, outputs):
        return update_rows(function, active, inputs, outputs, self._size(band))

    def _size(self, band):
        return self.boundaries[band + 1] - self.boundaries[band]
