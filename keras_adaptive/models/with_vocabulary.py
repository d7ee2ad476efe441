"""Models whose words change: new words are added, old ones leave, or the order of the ids is renewed."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.layers.outputs.tied_output import with_nested
from keras_adaptive.layers.quantizable import check_floats
from keras_adaptive.models.transfer import bounds_of_tables, copy_rows, copy_words, row_variables, spaces_of


def with_vocabulary(
    model: keras.Model,
    vocabulary: Any,
    new_vocabulary: Any,
    neighbors: Mapping[Hashable, Sequence[Hashable]] | None = None,
) -> keras.Model:
    """Returns a copy of a model for another vocabulary, in which every word keeps its vectors.

    - New words, without training: append them by `vocabulary.with_words` and name neighbors. The old words keep their
      ids and logits, so that their probabilities shrink by the share of the new words only.
    - Renewed order: pass the vocabulary of a newer text or log. A word whose band changes gets the vector whose
      projection is nearest to the projection of its old vector (least squares), so train the model further.
    - Words that the new vocabulary lacks are dropped.

    The cutoffs stay, so that the last band grows or shrinks. The copy is not compiled, and its optimizer starts anew.

    Args:
        model: A built functional model, such as a `WordModel` or a `LanguageModel`, whose words are read by an `Input`
            or predicted by an `Output`.
        vocabulary: The `Vocabulary` of the model.
        new_vocabulary: The `Vocabulary` of the copy.
        neighbors: Dict from new words to lists of words of `vocabulary`. The vectors of a new word are the means of
            theirs. New words without neighbors keep their random initial vectors. Optional.

    Returns:
        A model of the same class.

    Raises:
        ValueError: If `vocabulary` is not the one of the model, `neighbors` names a word that is not new or a neighbor
            that is not old, a band would be empty, or the model has other weights with a row for each word.

    Example:

    >>> vocabulary = Vocabulary.from_counts({"tea": 9, "cup": 4, "pot": 2})
    >>> model = transformer_lm(len(vocabulary), dim=16, num_blocks=1, num_heads=2, ffn_dim=32, cutoffs=(5,))
    >>> larger = vocabulary.with_words(["mug"])
    >>> new = with_vocabulary(model, vocabulary, larger, neighbors={"mug": ["cup", "pot"]})
    >>> new.log_probs(larger.encode(["tea"])[None]).shape
    (1, 1, 9)
    """
    check_floats(model, "`with_vocabulary`")
    old_layers = _layers_of_words(model, len(vocabulary))
    near = _ids_of_neighbors(vocabulary, new_vocabulary, neighbors or {})
    ids = np.where([word in vocabulary for word in new_vocabulary.words], vocabulary.encode(new_vocabulary.words), -1)
    config = _renewed(model.get_config(), vocabulary, new_vocabulary, ids)
    new = type(model).from_config(config)
    copied: dict[int, Any] = {}
    for layer, old in zip(_layers_of_words(new, len(new_vocabulary)), old_layers, strict=True):
        if layer.tables and id(layer.tables[0]) not in copied:  # tied tables are copied once
            spaces = spaces_of(old, transposed=isinstance(old, Output))
            copy_words(layer, old, ids, spaces)
            _fill_tables(layer, old, near, spaces)
            copied |= {id(table): table for table in layer.tables}
        rows = row_variables(layer) if isinstance(layer, Output) else []
        old_rows = row_variables(old) if isinstance(layer, Output) else []
        for variable, old_variable in zip(rows, old_rows, strict=True):
            if id(variable) not in copied:
                copy_rows(variable, old_variable, ids)
                _fill_rows(variable, old_variable, near)
                copied[id(variable)] = variable
    for variable, old_variable in zip(new.weights, model.weights, strict=True):
        if id(variable) not in copied:
            if variable.shape != old_variable.shape:
                raise ValueError(
                    "Only the inputs and outputs of this package can change their words. Received: a weight "
                    f"{old_variable.path} of the shape {tuple(old_variable.shape)}."
                )
            variable.assign(old_variable.value)
    return new


def _layers_of_words(model, size):
    """Returns the inputs and then the outputs of a model that have one row per word."""
    layers = [nested for layer in model.layers for nested in with_nested(layer)]
    if (output := getattr(model, "word_output", None)) is not None and output not in layers:
        layers.append(output)
    layers_of_keras = [layer for layer in layers if isinstance(layer, keras.layers.Embedding)]
    layers = [layer for kind in (Input, Output) for layer in layers if isinstance(layer, kind)]
    layers = [layer for layer in layers if layer.vocabulary_size == size]
    tables = [layer for layer in layers_of_keras if layer.input_dim == size]
    if tables:
        raise ValueError(
            "A model reads the words whose number changes by an input of this package, such as a `WordEmbedding`. "
            f"Received: the `keras.layers.Embedding` {tables[0].name!r} of {size} words."
        )
    if not layers:
        raise ValueError(
            "The vocabulary must be the one of an input or output layer of the model. "
            f"Received: a vocabulary of {size} words."
        )
    return layers


def _ids_of_neighbors(vocabulary, new_vocabulary, neighbors):
    """Returns the new id of each word in `neighbors`, and the old ids of its neighbors: a dict."""
    found = {}
    for word, near in neighbors.items():
        if word in vocabulary or word not in new_vocabulary:
            raise ValueError(f"`neighbors` must map words of the new vocabulary only. Received: the word {word!r}.")
        if isinstance(near, str) or not len(near) or (unknown := vocabulary.unknown(near)):
            wrong = near if isinstance(near, str) or not len(near) else unknown
            raise ValueError(f"The neighbors of {word!r} must be a list of words of the model. Received: {wrong!r}.")
        found[int(new_vocabulary.encode([word])[0])] = vocabulary.encode(near)
    return found


def _renewed(config, vocabulary, new_vocabulary, ids):
    """Returns the config of a model with the sizes, words and counts of the new vocabulary."""
    size = len(vocabulary)
    if isinstance(config, dict):
        if config.get("class_name") == "__numpy__" and len(config["config"]["value"]) == size:
            raise ValueError(
                "The model must not hold an array with a row for each word, such as the categories of items, whose new "
                f"rows are not known: make the model anew, and copy its weights. Received: an array of {size} rows."
            )
        changed = {}
        for name, value in config.items():
            listed = isinstance(value, (list, tuple)) and len(value) == size
            if name == "vocabulary_size" and value == size:
                value = len(new_vocabulary)
            elif name == "words" and listed:
                value = list(new_vocabulary.words)
            elif name == "counts" and listed:
                value = [value[id] if id >= 0 else 1 for id in ids.tolist()]
            else:
                value = _renewed(value, vocabulary, new_vocabulary, ids)
            changed[name] = value
        return changed
    if isinstance(config, (list, tuple)):
        return type(config)(_renewed(value, vocabulary, new_vocabulary, ids) for value in config)
    return config


def _fill_tables(layer, old, near, spaces):
    """Sets the vectors of new words to the means of their neighbors' vectors, in the space that all bands share."""
    bounds, old_bounds = bounds_of_tables(layer), bounds_of_tables(old)
    values = [ops.convert_to_numpy(table.value) for table in old.tables]
    tables = [np.array(ops.convert_to_numpy(table.value)) for table in layer.tables]
    for word, ids in near.items():
        bands = np.searchsorted(old_bounds[1:], ids, side="right")
        vectors = [values[band][id - old_bounds[band]] @ spaces[band] for band, id in zip(bands, ids)]
        band = np.searchsorted(bounds[1:], word, side="right")
        row = np.linalg.lstsq(spaces[band].T, np.mean(vectors, axis=0), rcond=None)[0]
        tables[band][word - bounds[band]] = row
    for variable, table in zip(layer.tables, tables):
        variable.assign(table)


def _fill_rows(variable, old_variable, near):
    rows, old_rows = (np.array(ops.convert_to_numpy(each.value)) for each in (variable, old_variable))
    for word, ids in near.items():
        rows[word] = old_rows[ids].mean(axis=0)
    variable.assign(rows)
