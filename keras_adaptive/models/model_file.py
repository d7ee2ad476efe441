"""Safe reader of the `.keras` files of language models, which may come from anywhere."""

import json
import os
import tempfile
import zipfile

import keras

from keras_adaptive.backend.unallocated import allocate, number_of_values, unallocated
from keras_adaptive.files import check_zip, reading
from keras_adaptive.models.language_model import LanguageModel

NO_SIZES = ("seed", "shared_object_id", "counts", "trained_length", "sequence_length")  # numbers that allocate nothing
NAME = keras.saving.get_registered_name(LanguageModel)


def read_language_model(path: str | os.PathLike[str]) -> LanguageModel:
    """Reads a `LanguageModel` for prediction from a `.keras` file, without its optimizer.

    The file may be damaged or hostile. Keras runs no code of the file. The size of the file bounds the memory that it
    can make the process allocate: it must not unpack to more bytes than it has, nor describe more weights than bytes.
    Weights may be infinite or NaN.

    Args:
        path: Path of the file.

    Returns:
        The `LanguageModel`, not compiled.

    Raises:
        ValueError: If the file is damaged or does not contain a `LanguageModel`. The message names the file.
        OSError: If the file cannot be read.

    Example:

    ```python
    model.save("best.keras")
    loaded = read_language_model("best.keras")
    assert np.allclose(loaded.nll(x, y), model.nll(x, y))
    ```
    """
    with reading(path, "a saved LanguageModel", "Put the file back, or take another model."):
        model = _unallocated(path)
        allocate(model)
        # HDF5 reads at many places of the file, and ZIP would read it from its start for most of them.
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
            model.load_weights(archive.extract("model.weights.h5", folder))
        return model


def read_structure(path: str | os.PathLike[str]) -> LanguageModel:
    """Returns the model that a `.keras` file describes, without its weights, as safely as `read_language_model`."""
    with reading(path, "a saved LanguageModel", "Put the file back, or take another model."):
        return _unallocated(path)


def _unallocated(path):
    """Returns the model that a file describes, not allocated yet.

    Raises an error if reading the file would take more memory than the size of the file.
    """
    size = os.path.getsize(path)
    with zipfile.ZipFile(path) as archive:
        check_zip(archive)
        config = json.loads(archive.read("config.json"))
    if config["registered_name"] != NAME:
        raise ValueError(f"it holds a {config['class_name']}")
    config = {**config, "compile_config": None}  # not read; it may contain any numbers, such as the steps of a schedule
    return described(config, size)


def described(config: dict, size: int) -> keras.Model:
    """Returns the model that a config from anywhere describes, not allocated yet.

    It raises a ValueError if the model would take more memory than `size`, the number of bytes of the file with the
    weights, explains. Keras may raise any other error.
    """
    if (number := _largest(config)) > size:
        raise ValueError(f"its config holds the number {number:.3g}, but there are {size:,} bytes of weights")
    model = unallocated(lambda: keras.saving.deserialize_keras_object(config))
    if (weights := number_of_values(model.variables)) > size:
        raise ValueError(f"its config describes {weights:,} weights, but there are {size:,} bytes of weights")
    return model


def _largest(config):
    """Returns the largest number of a config, except for seeds, ids of objects, counts and trained lengths."""
    if isinstance(config, dict):
        config = [value for key, value in config.items() if key not in NO_SIZES]
    if isinstance(config, list):
        return max(map(_largest, config), default=0)
    return config if isinstance(config, (int, float)) else 0
