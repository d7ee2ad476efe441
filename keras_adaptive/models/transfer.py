"""Weights of one model as the start of another, whose vocabulary may differ."""

import numpy as np
from keras import ops


def transfer(model, vocabulary, source, source_vocabulary):
    """Copies the weights of a model into another of the same sizes; vectors of words follow their words.

    A word that lies in another band than before, where vectors have another dimension, gets the vector whose projection
    is nearest to its old one (least squares). A word that the source does not have keeps its vector. An output of
    another class than the source's keeps its weights.

    Args:
        model: A built `LanguageModel`, which changes.
        vocabulary: Its `Vocabulary`.
        source: A `LanguageModel` of the same input and body, and of the same or another output.
        source_vocabulary: Its `Vocabulary`.

    Returns:
        The number of words that have the vectors of the source.

    Raises:
        ValueError: If the inputs, the bodies or the shapes of the weights differ, or a frozen output is of another
            class than the source's. The message names the first.

    Example:

    >>> old, new = (Vocabulary.from_counts(counts) for counts in ({"the": 9, "cat": 2}, {"the": 5, "dog": 3}))
    >>> sizes = {"dim": 16, "num_blocks": 1, "num_heads": 2, "ffn_dim": 32, "cutoffs": ()}
    >>> source, model = (transformer_lm(len(vocabulary), **sizes) for vocabulary in (old, new))
    >>> transfer(model, new, source, old)  # all of the 8 words, symbols and fillers included, but "dog"
    7
    """
    words = vocabulary.words
    known = np.array([word in source_vocabulary for word in words])
    ids = np.where(known, source_vocabulary.encode(words), -1)
    tables, source_tables = {}, {}
    _check_parts(model, source)
    parts = [(model.word_input, source.word_input), (model.word_output, source.word_output)]
    if not same_output(model, source):
        tables, source_tables = ({id(weight): weight for weight in _own_weights(one)} for one in (model, source))
        parts = parts[:1]
    for new, old in parts:
        own, its = list(new.tables), list(old.tables)
        if own and id(own[0]) not in tables:  # tied ones are copied once
            _copy_words(new, old, ids, _spaces(old, transposed=new is model.word_output))
        tables |= {id(table): table for table in own}
        source_tables |= {id(table): table for table in its}
    biases = model.word_output.bias, source.word_output.bias
    if same_output(model, source) and all(bias is not None for bias in biases):
        _copy_biases(*biases, ids)
        tables[id(biases[0])], source_tables[id(biases[1])] = biases
    weights = [weight for weight in model.weights if id(weight) not in tables]
    source_weights = [weight for weight in source.weights if id(weight) not in source_tables]
    if len(weights) != len(source_weights):
        raise _different("number of weights", len(weights), len(source_weights))
    same_words = vocabulary.words == source_vocabulary.words
    of_words = {id(weight) for part in (model.word_input, model.word_output) for weight in part.weights}
    for weight, its in zip(weights, source_weights):
        if not same_words and id(weight) in of_words and its.shape[:1] == (len(source_vocabulary),):
            raise ValueError(
                f"{weight.path} has rows for words in an unknown order: keep the vocabulary of the source."
            )
        if weight.shape != its.shape:
            raise _different(f"shape of {weight.path}", tuple(weight.shape), tuple(its.shape))
    for weight, its in zip(weights, source_weights):
        weight.assign(its.value)
    return int(known.sum())


def same_output(model, source):
    """Returns whether the outputs of two models are of the same class."""
    return type(model.word_output) is type(source.word_output)


def _own_weights(model):
    """Returns the weights of the output that do not belong to the input too."""
    tied = set(map(id, model.word_input.weights))
    return [weight for weight in model.word_output.weights if id(weight) not in tied]


def _check_parts(model, source):
    """Raises a ValueError if inputs, bodies or frozen outputs are of other classes, or only the second is untied."""
    for name in ("word_input", "body", "word_output"):
        new, old = (type(getattr(one, name)).__name__ for one in (model, source))
        if new != old and name != "word_output":
            raise _different(name, new, old)
        if new != old and not model.word_output.trainable:
            raise ValueError(
                "A frozen output must be of the same class as the output that its weights come from: freeze input and "
                f"body only. Received: a frozen {new} here, and {old} there."
            )
    if (
        same_output(model, source) and model.word_output.tied_to is not None and source.word_output.tied_to is None
    ):  # one table cannot hold both
        raise _different("word_output", "tied to the input", "not tied")


def _copy_words(layer, source, ids, spaces):
    """Sets the rows of the tables of a layer to the vectors that the words `ids` of the source have there.

    The matrices `spaces`, (dim_i, dim) for each band, take vectors to the space that all bands share.
    """
    tables, dims = layer.tables, [table.shape[1] for table in layer.tables]
    bounds, its_bounds = _bounds(layer), _bounds(source)
    if dims != [table.shape[1] for table in source.tables]:
        raise _different(f"dimensions of the word vectors of {layer.name}", dims, [t.shape[1] for t in source.tables])
    bands = np.searchsorted(its_bounds[1:], ids, side="right")  # of the words in the source
    values = [ops.convert_to_numpy(table.value) for table in source.tables]
    for band, (table, low, high) in enumerate(zip(tables, bounds, bounds[1:])):
        rows = np.array(ops.convert_to_numpy(table.value))
        for its_band in range(len(values)):
            places = np.flatnonzero((ids[low:high] >= 0) & (bands[low:high] == its_band))
            vectors = values[its_band][ids[low:high][places] - its_bounds[its_band]]
            if its_band != band:
                vectors = np.linalg.lstsq(spaces[band].T, (vectors @ spaces[its_band]).T, rcond=None)[0].T
            rows[places] = vectors
        table.assign(rows)


def _bounds(layer):
    """Returns the first id of every table and, last, the number of words; bands may share one table."""
    return layer.boundaries if len(layer.tables) > 1 else (0, layer.boundaries[-1])


def _copy_biases(bias, its_bias, ids):
    """Sets the biases of words that the source has."""
    values, its = (np.array(ops.convert_to_numpy(one.value)) for one in (bias, its_bias))
    bias.assign(np.where(ids >= 0, its[ids], values))


def _spaces(layer, transposed):
    """Returns the projection of each band as a matrix (dim_i, dim), or the identity."""
    projections = list(layer.projections) or [None]
    matrices = []
    for table, projection in zip(layer.tables, projections):
        matrix = np.eye(table.shape[1]) if projection is None else ops.convert_to_numpy(projection.value)
        matrices.append((matrix.T if transposed else matrix).astype("float64"))
    return matrices


def _different(what, new, old):
    return ValueError(
        f"Weights can be taken over from a model of the same parts and sizes only: pass its flags. The {what} is {new} "
        f"here, and {old} there."
    )
