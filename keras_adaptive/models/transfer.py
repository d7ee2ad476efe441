"""Initialization of a model from the weights of another model, whose vocabulary may differ."""

import re

import numpy as np
from keras import ops

from keras_adaptive.layers.quantizable import check_floats

# Settings in which a model may differ from its source: names, types, words, and what acts in training only. Ties are
# compared by the number of weights.
OTHER_SETTINGS = re.compile(
    "name|module|registered_name|build_config|trainable|dtype|seed|vocabulary_size|words|cutoffs|counts|noise|loss|"
    "num_samples|tied_to|tie_projections|variational|zoneout|.*dropout|.*penalty"
)


def transfer(model, vocabulary, source, source_vocabulary):
    """Copies the weights of a model to another model of the same sizes, and the vectors of words by their words.

    A word whose band differs between the models, where vectors have another dimension, gets the vector whose projection
    is nearest to the projection of the source's vector (least squares). A word that is not in the source's vocabulary
    keeps its vector. An output layer keeps its weights if its class differs from the source's.

    Args:
        model: A built `LanguageModel`, whose weights change.
        vocabulary: The `Vocabulary` of `model`.
        source: A `LanguageModel` with the same input and body. Its output may differ.
        source_vocabulary: The `Vocabulary` of `source`.

    Returns:
        The number of words whose vectors come from the source.

    Raises:
        ValueError: If the inputs, the bodies, the shapes of the weights or the settings that define what the layers
            compute differ, or a frozen output has another class
            than the source's. The message names the first difference.

    Example:

    >>> old, new = (Vocabulary.from_counts(counts) for counts in ({"the": 9, "cat": 2}, {"the": 5, "dog": 3}))
    >>> sizes = {"dim": 16, "num_blocks": 1, "num_heads": 2, "ffn_dim": 32, "cutoffs": ()}
    >>> source, model = (transformer_lm(len(vocabulary), **sizes) for vocabulary in (old, new))
    >>> transfer(model, new, source, old)  # all of the 8 words, symbols and fillers included, but "dog"
    7
    """
    for each in (model, source):
        check_floats(each, "`transfer`")
    words = vocabulary.words
    known = np.array([word in source_vocabulary for word in words])
    ids = np.where(known, source_vocabulary.encode(words), -1)
    tables, source_tables = {}, {}
    _check_parts(model, source)
    parts = [(model.word_input, source.word_input), (model.word_output, source.word_output)]
    if not same_output(model, source):
        tables, source_tables = ({id(weight): weight for weight in _output_weights(each)} for each in (model, source))
        parts = parts[:1]
    for new, old in parts:
        if new.tables and id(new.tables[0]) not in tables:  # tied tables are copied once
            copy_words(new, old, ids, spaces_of(old, transposed=new is model.word_output))
        tables |= {id(table): table for table in new.tables}
        source_tables |= {id(table): table for table in old.tables}
    if same_output(model, source):
        for new, old in zip(row_variables(model.word_output), row_variables(source.word_output)):
            if id(new) not in tables:
                copy_rows(new, old, ids)
                tables[id(new)], source_tables[id(old)] = new, old
    weights = [weight for weight in model.weights if id(weight) not in tables]
    source_weights = [weight for weight in source.weights if id(weight) not in source_tables]
    if len(weights) != len(source_weights):
        raise _different("number of weights", len(weights), len(source_weights))
    same_words = vocabulary.words == source_vocabulary.words
    of_words = {id(weight) for part in (model.word_input, model.word_output) for weight in part.weights}
    for weight, old in zip(weights, source_weights):
        if not same_words and id(weight) in of_words and old.shape[:1] == (len(source_vocabulary),):
            raise ValueError(
                f"{weight.path} has rows for words in an unknown order: keep the vocabulary of the source."
            )
        if weight.shape != old.shape:
            raise _different(f"shape of {weight.path}", tuple(weight.shape), tuple(old.shape))
    _check_meaning(model, source)
    for weight, old in zip(weights, source_weights):
        weight.assign(old.value)
    return int(known.sum())


def same_output(model, source):
    """Returns whether the outputs of two models have the same class."""
    return type(model.word_output) is type(source.word_output)


def _output_weights(model):
    """Returns the weights of the output that are not weights of the input."""
    tied = set(map(id, model.word_input.weights))
    return [weight for weight in model.word_output.weights if id(weight) not in tied]


def _check_parts(model, source):
    """Raises a `ValueError` if the classes of inputs, bodies or frozen outputs differ, or only `model` is tied."""
    for name in ("word_input", "body", "word_output"):
        new, old = (type(getattr(each, name)).__name__ for each in (model, source))
        if new != old and name != "word_output":
            raise _different(name, new, old)
        if new != old and not model.word_output.trainable:
            raise ValueError(
                "A frozen output must have the class of the source's output: freeze input and body only. "
                f"Received: a frozen {new}, and a {old} in the source."
            )
    if (
        same_output(model, source) and model.word_output.tied_to is not None and source.word_output.tied_to is None
    ):  # one table cannot hold the vectors of both
        raise _different("word_output", "tied to the input", "not tied")


def _check_meaning(model, source):
    """Raises a `ValueError` if parts of the same shapes compute other functions, such as with other heads."""
    for name in ("word_input", "body", *(["word_output"] if same_output(model, source) else [])):
        new, old = (dict(_meaning(getattr(each, name).get_config(), name)) for each in (model, source))
        for setting in sorted(new.keys() | old.keys()):
            if new.get(setting) != old.get(setting):
                raise _different(f"setting {setting}", new.get(setting), old.get(setting))


def _meaning(config, path):
    """Yields the paths and the values of the settings in the config of a layer that define what the layer computes."""
    if isinstance(config, dict):
        one_band = not config.get("cutoffs", True)  # without tails a factor has no effect
        for name, value in config.items():
            if not (OTHER_SETTINGS.fullmatch(name) or (one_band and name == "factor")):
                yield from _meaning(value, path if name == "config" else f"{path}.{name}")
    elif isinstance(config, (list, tuple)):
        for number, value in enumerate(config):
            yield from _meaning(value, f"{path}.{number}")
    else:
        yield path, config


def copy_words(layer, source, ids, spaces):
    """Copies the vectors of the words `ids` of the source to the rows of the tables of a layer.

    The matrices `spaces`, (dim_i, dim) for each band, project vectors to the space that all bands share.
    """
    tables, dims = layer.tables, [table.shape[1] for table in layer.tables]
    bounds, source_bounds = bounds_of_tables(layer), bounds_of_tables(source)
    if dims != [table.shape[1] for table in source.tables]:
        raise _different(f"dimensions of the word vectors of {layer.name}", dims, [t.shape[1] for t in source.tables])
    bands = np.searchsorted(source_bounds[1:], ids, side="right")  # bands of the words in the source
    values = [ops.convert_to_numpy(table.value) for table in source.tables]
    for band, (table, low, high) in enumerate(zip(tables, bounds, bounds[1:])):
        rows = np.array(ops.convert_to_numpy(table.value))
        for source_band in range(len(values)):
            places = np.flatnonzero((ids[low:high] >= 0) & (bands[low:high] == source_band))
            vectors = values[source_band][ids[low:high][places] - source_bounds[source_band]]
            if source_band != band:
                vectors = np.linalg.lstsq(spaces[band].T, (vectors @ spaces[source_band]).T, rcond=None)[0].T
            rows[places] = vectors
        table.assign(rows)


def bounds_of_tables(layer):
    """Returns the first id of every table, followed by the number of words; bands may share one table."""
    return layer.boundaries if len(layer.tables) > 1 else (0, layer.boundaries[-1])


def row_variables(output):
    """Returns the variables of an output that have a row for each word, such as biases and corrections."""
    return [*output.row_variables, *([] if output.bias is None else [output.bias])]


def copy_rows(variable, source_variable, ids):
    """Copies the rows of the words that the source has."""
    rows, source_rows = (np.array(ops.convert_to_numpy(each.value)) for each in (variable, source_variable))
    rows[ids >= 0] = source_rows[ids[ids >= 0]]
    variable.assign(rows)


def spaces_of(layer, transposed):
    """Returns the projection of each band as a matrix (dim_i, dim), or the identity."""
    projections = list(layer.projections) or [None]
    matrices = []
    for table, projection in zip(layer.tables, projections):
        matrix = np.eye(table.shape[1]) if projection is None else ops.convert_to_numpy(projection.value)
        matrices.append((matrix.T if transposed else matrix).astype("float64"))
    return matrices


def _different(what, new, old):
    return ValueError(
        f"Weights can be copied only from a model of the same parts and sizes: pass its flags. The {what} is {new}, "
        f"and {old} in the source."
    )
