import keras


class Input(keras.layers.Layer):
    """Base class of the layers that turn word ids into vectors.

    A subclass implements `call(ids)`, from ids (…) to vectors (…, output_dim), and sets the attributes below in its
    constructor. An id outside the vocabulary gives a zero vector. The layer neither scales nor adds positions: both
    belong to the body.

    Attributes:
        vocabulary_size: Number of ids.
        output_dim: Dimension of the vectors.
        boundaries: Tuple of the first id of every band and, last, of `vocabulary_size`; `(0, vocabulary_size)` for a
            single band.
        tables: List of the variables with a vector for each word, if there are any: an output can be tied to them, and
            devices can share them.
        projections: List of a variable (dim_i, output_dim) per table, or empty where vectors are not projected.
        row_variables: List of those variables that training reads by `take_rows` alone: an optimizer such as Adagrad
            then updates the rows that were read, and no others.
        max_bytes: Number of bytes that are read of a spelling, `None` if words are known by their ids alone.

    Input shape:
        Any shape of integer ids.

    Output shape:
        (…, output_dim).

    Example:

    >>> class Scaled(Input):
    ...     def __init__(self, vocabulary_size, output_dim, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.vocabulary_size, self.output_dim = vocabulary_size, output_dim
    ...         self.boundaries = (0, vocabulary_size)
    ...
    ...     def call(self, ids):
    ...         inside = (ids >= 0) & (ids < self.vocabulary_size)
    ...         share = keras.ops.where(inside, keras.ops.cast(ids, "float32") / self.vocabulary_size, 0.0)
    ...         return keras.ops.repeat(share[..., None], self.output_dim, axis=-1)
    >>> Scaled(10, 4)(np.array([[1, 9]])).shape
    (1, 2, 4)
    """

    tables = projections = row_variables = ()
    max_bytes = None

    def call(self, ids):
        raise NotImplementedError(f"`{type(self).__name__}` must implement `call(ids)`.")

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.output_dim)

    def embed_bytes(self, characters, ids, active):
        """Returns the vectors of words given by their spellings, for an input whose `max_bytes` is a number.

        Args:
            characters: Ids (words, max_bytes) of the bytes of the words, each + 1, padded with 0.
            ids: Ids (words,) of the words in the vocabulary.
            active: Bool (words,), whether a word is computed; the others get zeros.
        """
        raise NotImplementedError(f"`{type(self).__name__}` knows words by their ids alone.")

    def for_inference(self, extra_words=None):
        """Returns the layer to predict with: by default this one.

        Args:
            extra_words: List of words outside the vocabulary, whose ids follow it. Only an input that computes vectors
                from spellings accepts them.

        Raises:
            ValueError: If extra words are given, even an empty list, to an input that knows words by their ids alone.
        """
        if extra_words is not None:
            raise ValueError(
                "Only an input that reads spellings, such as `CharCNN`, can read words outside its vocabulary: leave "
                f"them out, or map them to `<unk>`. Received: {list(extra_words)[:3]} for a {type(self).__name__}."
            )
        return self
