"""The first and the last layer: vectors of words, and their log-probabilities."""

import numpy as np

from keras_adaptive.export.onnx.attention import inside
from keras_adaptive.export.onnx.graph import Graph, Value
from keras_adaptive.export.parts import Part


class Embedding:
    """Input: a table for each band of the vocabulary, with a projection or without."""

    def __init__(self, graph: Graph, part: Part) -> None:
        self.graph, self.boundaries, self.output_dim = graph, part.config["boundaries"], part.config["output_dim"]
        self.tables = _numbered(part.weights, "tables")
        self.projections = _numbered(part.weights, "projections")
        self._transposed = {band: array.T for band, array in self.projections.items()}

    def __call__(self, ids: Value) -> Value:
        """Returns the vectors (batch, length, output_dim) of words (batch, length)."""
        graph = self.graph
        if len(self.tables) == 1:
            return self._vectors(0, ids)
        flat = graph.Reshape(ids, [-1])
        vectors = graph.zeros(graph.length(flat, 0), self.output_dim)
        for band, (low, high) in enumerate(zip(self.boundaries, self.boundaries[1:])):
            rows = graph.numbers_of(graph.And(graph.GreaterOrEqual(flat, low), graph.Less(flat, high)))
            vectors = graph.put_rows(vectors, rows, self._vectors(band, graph.Gather(flat, rows) - low))
        return graph.Reshape(vectors, graph.Concat(graph.Shape(ids), [self.output_dim], axis=0))

    def _vectors(self, band, ids):
        rows = self.graph.matrix(self.tables[band]).lookup(ids)
        return self.graph.matrix(self._transposed[band]).product(rows) if self.projections else rows


class Softmax:
    """Output: adaptive or plain softmax, over its own tables or over the tables of the input."""

    def __init__(self, graph: Graph, part: Part, word_input: Embedding) -> None:
        self.graph, self.boundaries, self.config, self.weights = graph, part.config["boundaries"], *part
        self.tails = range(1, len(self.boundaries) - 1)
        self.tables = _numbered(self.weights, "tables") or word_input.tables
        projections = _numbered(self.weights, "projections")
        self.projections = {band: array.T for band, array in projections.items()}
        tied = (band for band, is_tied in enumerate(self.config["tied"]) if is_tied)
        self.projections |= {band: word_input.projections[band] for band in tied if band not in projections}

    def log_probs(self, hidden: Value) -> Value:
        """Returns the log-probabilities of all words (…, words) of hidden states (…, hidden_dim)."""
        graph, first = self.graph, self.boundaries[1]
        head = graph.LogSoftmax(self._head(hidden), axis=-1)
        if not self.tails:
            return head
        bands = [graph.Slice(head, [0], [first], [-1])]
        for band in self.tails:
            column = graph.Slice(head, [first + band - 1], [first + band], [-1])
            bands.append(graph.LogSoftmax(self._logits(hidden, band), axis=-1) + column)
        return graph.Concat(*bands, axis=-1)

    def nll(self, hidden: Value, targets: Value) -> Value:
        """Returns −log p(target), (rows,), of hidden states (rows, hidden_dim). A row computes its own tail."""
        graph = self.graph
        place, first = targets, self.boundaries[1]
        for band in self.tails:
            is_later = graph.GreaterOrEqual(targets, self.boundaries[band])
            place = graph.Where(is_later, first + band - 1, place)
        nll = self._picked(self._head(hidden), place)
        for band in self.tails:
            low, high = self.boundaries[band : band + 2]
            rows = graph.numbers_of(graph.And(graph.GreaterOrEqual(targets, low), graph.Less(targets, high)))
            of_band = self._picked(self._logits(graph.Gather(hidden, rows), band), graph.Gather(targets, rows) - low)
            nll = graph.put_rows(nll, rows, of_band, reduction="add")
        return nll

    def _picked(self, logits, columns):
        """Returns the negative log-probabilities of one column of each row."""
        graph = self.graph
        picked = graph.GatherElements(graph.LogSoftmax(logits, axis=-1), graph.Unsqueeze(columns, [1]), axis=1)
        return graph.Neg(graph.Squeeze(picked, [1]))

    def _projected(self, hidden, band):
        return self.graph.matrix(self.projections[band]).product(hidden) if band in self.projections else hidden

    def _logits(self, hidden, band):
        low, high = self.boundaries[band : band + 2]
        hidden = self._projected(hidden, band)
        if len(self.tables) == len(self.boundaries) - 1:
            logits = self.graph.matrix(self.tables[band]).product(hidden)
        else:
            logits = self.graph.matrix(self.tables[0]).product(hidden, low, high)
        return self._capped(logits, self.weights["bias"][low:high] if self.config["use_bias"] else None)

    def _head(self, hidden):
        """Returns the logits of the words of the head, followed by the logits of the tails."""
        logits = self._logits(hidden, 0)
        if not self.tails:
            return logits
        hidden = self._projected(hidden, 0) if self.config["projects_head"] else hidden
        classes = hidden @ np.ascontiguousarray(self.weights["class_table"].T)
        return self.graph.Concat(logits, self._capped(classes, self.weights.get("class_bias")), axis=-1)

    def _capped(self, logits, bias):
        logits = logits if bias is None else logits + bias
        cap = self.config["soft_cap"]
        return logits if cap is None else self.graph.Tanh(logits * (1 / cap)) * float(cap)


def _numbered(weights, name):
    return {int(number): array for number, array in inside(weights, name).items()}
