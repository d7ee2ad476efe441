from collections.abc import Sequence
from typing import Any

import keras

from keras_adaptive.ops.word_ids import word_ids
from keras_adaptive.typing import Shape, Tensor


class Input(keras.layers.Layer):
    """Base class of input layers, which map word ids to vectors.

    A subclass implements `call(ids)`, from ids (…) to vectors (…, output_dim), and sets the attributes below in its
    constructor. `call` receives int32 ids, in which −1 stands for every id outside the vocabulary; it gives a zero
    vector. The layer neither scales the vectors nor adds positions: the body does both.

    Attributes:
        vocabulary_size: Number of ids.
        output_dim: Dimension of the vectors.
        boundaries: Tuple of the first id of every band, followed by `vocabulary_size`; `(0, vocabulary_size)` for a
            single band.
        tables: List of the variables that hold the word vectors, which may be empty. An output can be tied to them, and
            devices can divide them.
        projections: List of one variable (dim_i, output_dim) per table; empty if the vectors are not projected.
        row_variables: List of the variables that training reads through `take_rows` only. Optimizers such as Adagrad
            then update only the rows that were read.
        max_bytes: Number of bytes that the layer reads of a word, `None` for a layer that reads ids only.

    Input shape:
        Any shape of ids: integers, or whole numbers in float32 or float64, which mixed precision does not round.

    Output shape:
        (…, output_dim).

    Raises:
        ValueError: If the dtype of the ids cannot hold all ids of the vocabulary, such as bfloat16 for 600 words.

    Example:

    >>> class Scaled(Input):
    ...     def __init__(self, vocabulary_size, output_dim, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.vocabulary_size, self.output_dim = vocabulary_size, output_dim
    ...         self.boundaries = (0, vocabulary_size)
    ...
    ...     def call(self, ids):
    ...         share = keras.ops.where(ids >= 0, keras.ops.cast(ids, "float32") / self.vocabulary_size, 0.0)
    ...         return keras.ops.repeat(share[..., None], self.output_dim, axis=-1)
    >>> Scaled(10, 4)(np.array([[1, 9]])).shape
    (1, 2, 4)
    """

    tables: Sequence[Tensor] = ()
    projections: Sequence[Tensor] = ()
    row_variables: Sequence[Tensor] = ()
    max_bytes: int | None = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # Keras would round ids in float32 to the compute dtype

    def __call__(self, ids: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return super().__call__(word_ids(ids, self.vocabulary_size), *args, **kwargs)

    def call(self, ids: Tensor) -> Tensor:
        raise NotImplementedError(f"`{type(self).__name__}` must implement `call(ids)`.")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.output_dim)

    def embed_bytes(self, characters: Tensor, ids: Tensor, active: Tensor) -> Tensor:
        """Computes the vectors of words from their bytes, for an input whose `max_bytes` is a number.

        Args:
            characters: Int tensor (words, max_bytes) of the bytes of the words, each + 1, padded with 0.
            ids: Int tensor (words,), the ids of the words in the vocabulary.
            active: Bool tensor (words,), the words to compute. The other words get zeros.

        Returns:
            A float tensor (words, output_dim).
        """
        raise NotImplementedError(
            f"`{type(self).__name__}` reads the ids of words only: use an input that reads bytes, such as `CharCNN`."
        )

    def for_inference(self, extra_words: Sequence[str] | None = None) -> "Input":
        """Returns the layer to predict with, by default this layer.

        Args:
            extra_words: List of words outside the vocabulary, whose ids follow it. Only an input that computes vectors
                from bytes accepts such a list.

        Raises:
            ValueError: If extra words are given, even an empty list, to an input that reads ids only.
        """
        if extra_words is not None:
            raise ValueError(
                "Only an input that reads bytes, such as `CharCNN`, can read words outside its vocabulary: leave them "
                f"out, or map them to `<unk>`. Received: {list(extra_words)[:3]} for a {type(self).__name__}."
            )
        return self
