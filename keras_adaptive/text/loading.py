import os
from pathlib import Path

from keras_adaptive.backend.checks import non_finite
from keras_adaptive.data import TextCodec
from keras_adaptive.models import LanguageModel, read_language_model
from keras_adaptive.text.saved_text_model import SavedTextModel
from keras_adaptive.text.text_model import TextModel

SMALL_MODELS = Path(__file__).parents[2] / "docs" / "models"  # in a clone of the repository


def load(
    path: str | os.PathLike,
    model: str = "best",
    *,
    open_vocabulary: bool = False,
    window: int | None = None,
    context: int | None = None,
) -> TextModel | SavedTextModel:
    """Loads a trained model that takes and returns strings.

    Args:
        path: Folder of a run of `trainers.train`, of a model that `trainers.convert` converted, or of a SavedModel that
            `trainers.export` wrote, which needs TensorFlow. The name of a small model, such as "books-small", stands
            for its folder in docs/models of the repository (docs/models.md) unless a folder has that path.
        model: Which of the models of the run: "best" or "last".
        open_vocabulary, window, context: As in `TextModel`.

    Returns:
        A `TextModel`, or for a SavedModel a `SavedTextModel`, which can score, generate and name the next words.

    Raises:
        ValueError: If `path` is empty or not a folder, the folder holds no run, there is no such model, or a file is
            damaged or belongs to another run.

    Example:

    ```python
    lm = keras_adaptive.load("runs/books")
    record = lm.score("It was the best of times", alternatives=3)
    record["perplexity"], record["log_probs"], record["alternatives"][0]
    ```
    """
    path = folder_of(path)
    if Path(path, "saved_model.pb").is_file():
        if (model, open_vocabulary, window, context) != ("best", False, None, None):
            raise ValueError(f"{path} is a SavedModel of one model: pass no other argument than the path.")
        return SavedTextModel.load(path)
    codec = TextCodec.load(path)
    read = read_model(path, model, len(codec.vocabulary))
    return TextModel(read, codec, open_vocabulary=open_vocabulary, window=window, context=context)


def folder_of(path: str | os.PathLike) -> Path:
    """Returns the folder of a model, given its path or the name of a small model.

    It raises a ValueError if the path is empty, which would be the working directory, or not a folder.
    """
    if not os.fspath(path):
        raise ValueError("The path of the model is empty: pass the folder of a trained model.")
    if Path(path).is_dir():
        return Path(path)
    small = {folder.name: folder for folder in sorted(SMALL_MODELS.glob("*/"))}
    if os.fspath(path) in small:
        return small[os.fspath(path)]
    names = f", or one of the names {', '.join(small)}" if small else ""
    raise ValueError(f"{path} holds no run (it is not a folder): pass the folder of a trained model{names}.")


def read_model(folder: str | os.PathLike, name: str, words: int) -> LanguageModel:
    """Reads the best or the last model of a run whose vocabulary has `words` words. All weights must be finite."""
    path = Path(folder, f"{name}.keras")
    if not path.exists():
        raise ValueError(f"{folder} holds no {path.name} yet: train it with trainers.train.")
    model = read_language_model(path)
    if model.vocabulary_size != words:
        raise ValueError(
            f"{path} is the model of another run: it has {model.vocabulary_size:,} words, and vocabulary.txt of "
            f"this run {words:,}. Put the right one back."
        )
    if weight := non_finite(model.weights):
        raise ValueError(
            f"The weight {weight} in {path} is not finite, or its square is not, so its predictions are meaningless: "
            "train again with a lower learning rate, or use another model of the run."
        )
    return model
