import sys
from typing import Any, Self

import keras

from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.typing import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AdaptiveRetrieval(keras.layers.Layer):
    """Layer that returns the k most probable words or items of an output layer, exactly.

    It makes `top_k` the last layer of a functional model, which is saved and loaded as one. Configuration and file
    contain the output layer. If that is tied to an embedding of the same model, so is the loaded one. The layer has the
    arguments and results of the layers `keras_rs.layers.Retrieval`, and counts as one if Keras RS has been imported;
    the candidates are the items of the output layer, which `models.with_vocabulary` changes.

    Args:
        softmax: The output layer, such as the trained `AdaptiveSoftmax` of a model.
        k: Number of items, at most `softmax.vocabulary_size`.
        return_scores: Whether to return the log-probabilities of the items too.

    Call arguments:
        hidden: (…, hidden_dim).
        exclude: (…, n) ids of items to leave out, −1 for none, as in `Output.top_k`. Optional.
        allowed: (vocabulary_size,) bool: the items that may be returned, for all rows. Optional.

    The call returns `(log_probs, ids)`, (…, k) float32 in nats and int32, as `Output.top_k` does; only the ids without
    `return_scores`.

    Raises:
        ValueError: If `softmax` is no output layer, or `k` is out of range.

    Example:

    >>> history = keras.Input((None,), dtype="int32")
    >>> embedding = AdaptiveEmbedding(10_000, 64, cutoffs=(1_000, 4_000))
    >>> softmax = AdaptiveSoftmax(10_000, cutoffs=(1_000, 4_000), tied_to=embedding)
    >>> taste = keras.layers.GRU(64, return_sequences=True)(embedding(history))
    >>> model = WordModel(history, taste, word_output=softmax)  # to train
    >>> recommender = keras.Model(history, AdaptiveRetrieval(softmax, k=5)(taste[:, -1]))
    >>> log_probs, ids = recommender(np.array([[17, 4, 230]], "int32"))  # (1, 5) each
    """

    def __init__(self, softmax: Output, k: int = 10, *, return_scores: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(softmax, Output):
            raise ValueError(
                "`softmax` must be an output layer of keras_adaptive, such as an `AdaptiveSoftmax`. "
                f"Received: a {type(softmax).__name__}."
            )
        softmax.check_k(k)
        self.softmax = softmax
        self.k = k
        self.return_scores = return_scores
        self.autocast = False  # the output layer casts the hidden states
        self.supports_masking = True
        if (keras_rs := sys.modules.get("keras_rs")) is not None:  # which this package never imports
            keras_rs.layers.Retrieval.register(AdaptiveRetrieval)

    def __call__(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.softmax.attach(hidden)  # finds the embedding that a loaded or copied output layer is tied to
        return super().__call__(hidden, *args, **kwargs)

    def build(
        self, hidden_shape: Shape, exclude_shape: Shape | None = None, allowed_shape: Shape | None = None
    ) -> None:
        if not self.softmax.built:
            self.softmax.build(hidden_shape)

    def call(
        self, hidden: Tensor, exclude: Tensor | None = None, allowed: Tensor | None = None
    ) -> tuple[Tensor, Tensor] | Tensor:
        log_probs, ids = self.softmax.top_k(hidden, self.k, exclude=exclude, allowed=allowed)
        return (log_probs, ids) if self.return_scores else ids

    def compute_output_spec(
        self, hidden: Tensor, exclude: Tensor | None = None, allowed: Tensor | None = None
    ) -> tuple[keras.KerasTensor, keras.KerasTensor] | keras.KerasTensor:
        log_probs, ids = (keras.KerasTensor((*hidden.shape[:-1], self.k), dtype) for dtype in ("float32", "int32"))
        return (log_probs, ids) if self.return_scores else ids

    def get_config(self) -> dict[str, Any]:
        softmax = keras.saving.serialize_keras_object(self.softmax)
        return {**super().get_config(), "softmax": softmax, "k": self.k, "return_scores": self.return_scores}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**{**config, "softmax": keras.saving.deserialize_keras_object(config["softmax"])})
