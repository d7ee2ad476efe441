import copy
from typing import Any

import keras
from keras import ops

from keras_adaptive.layers.outputs.banded_softmax import Band, BandedSoftmax
from keras_adaptive.layers.outputs.softmax import Softmax
from keras_adaptive.layers.outputs.tied_output import TiedOutput
from keras_adaptive.losses.cross_entropy import CrossEntropy
from keras_adaptive.losses.row_loss import RowLoss
from keras_adaptive.ops.chunks import default_chunk_rows
from keras_adaptive.typing import Shape

HEADS = (keras.layers.Dense, keras.layers.Embedding)  # a `ReversibleEmbedding` is an `Embedding`
SOFTMAX = keras.activations.softmax


@keras.saving.register_keras_serializable(package="keras_adaptive")
class LinearCrossEntropy(TiedOutput, Softmax):
    """Plain softmax with the weights of a layer of Keras, whose loss never holds the logits of a batch.

    The layer has no variables of its own: it reads the kernel and the bias of a `Dense`, or the table of an `Embedding`
    or a `ReversibleEmbedding`, tied or not. Weights, files and `load_weights` of a model stay as they are. Loss,
    gradients and probabilities equal those of the model's own logits. If all variables of `tied_to` are frozen, as when
    a model is fine-tuned by LoRA, no gradient of the table is computed, which saves one of three matrix products. If it
    is quantized to int8, its logits are products of rounded numbers as before; gradients pass the rounding.

    Args:
        tied_to: The `keras.layers.Dense`, `Embedding` or `ReversibleEmbedding` that would compute the logits or, as a
            `Dense` with the activation softmax, the probabilities. Its dtype policy is the default one of the layer;
            a `ReversibleEmbedding` adds its `logit_soft_cap`.
        vocabulary_size: Number of classes, by default all rows of the table. Rows after them, which pad a table to a
            multiple of some number, have no probability.
        logit_scale: Factor of the logits.
        input_dropout: Dropout rate on the hidden states, in training.
        loss: A `losses.RowLoss`, such as `CrossEntropy` with label smoothing or a z-loss. Optional.

    Call arguments:
        hidden, targets, weights: As in `Output`.

    Raises:
        ValueError: If `tied_to` is another layer or has another activation or quantization, if the `loss` bounds logits
            that `tied_to` bounds too, or if `vocabulary_size` exceeds the table.

    Reference:
        Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models, ICLR 2025, for the same aim.

    Example:

    >>> ids = keras.Input((None,), dtype="int32")
    >>> hidden = keras.layers.LSTM(16, return_sequences=True)(keras.layers.Embedding(10_000, 16)(ids))
    >>> dense = keras.layers.Dense(10_000)
    >>> usual = keras.Model(ids, dense(hidden))  # generates words
    >>> model = WordModel(ids, hidden, word_output=LinearCrossEntropy(tied_to=dense))  # trains the same weights
    >>> model.compile("adam", metrics=["accuracy"])
    >>> tokens = np.random.randint(0, 10_000, size=(4, 9))
    >>> history = model.fit(tokens[:, :-1], tokens[:, 1:], verbose=0)
    """

    loss_classes = (RowLoss,)
    tied_classes = HEADS
    _tied_kind = "the layer whose weights give the logits: a Dense, an Embedding or a ReversibleEmbedding"

    def __init__(
        self,
        *,
        tied_to: keras.layers.Layer,
        vocabulary_size: int | None = None,
        logit_scale: float = 1.0,
        input_dropout: float = 0.0,
        loss: RowLoss | None = None,
        **kwargs: Any,
    ) -> None:
        policy = getattr(tied_to, "reverse_dtype", None) or getattr(tied_to, "dtype_policy", None)
        policy = getattr(policy, "name", policy)
        kwargs.setdefault("dtype", policy and policy.rpartition("_from_")[2])  # of a quantized layer, of its floats
        soft_cap = getattr(tied_to, "logit_soft_cap", None)
        if soft_cap and loss is not None and loss.soft_cap not in (None, soft_cap):
            raise ValueError(
                f"`tied_to` bounds its logits by {soft_cap}: leave out the `soft_cap` of the loss. "
                f"Received: soft_cap={loss.soft_cap}."
            )
        if soft_cap and (loss is None or loss.soft_cap is None):
            loss = CrossEntropy() if loss is None else copy.copy(loss)
            loss.soft_cap = soft_cap
        classes = _number_of_classes(tied_to)
        size = vocabulary_size or classes
        super().__init__(vocabulary_size=size, tied_to=tied_to, input_dropout=input_dropout, loss=loss, **kwargs)
        if not 1 <= size <= classes:
            raise ValueError(f"`vocabulary_size` must be from 1 to {classes}. Received: vocabulary_size={size}.")
        self.logit_scale = logit_scale
        self.boundaries = (0, size)

    def build(
        self, hidden_shape: Shape, targets_shape: Shape | None = None, weights_shape: Shape | None = None
    ) -> None:
        head = self.tied_to
        if not head.built:
            head.build(hidden_shape if isinstance(head, keras.layers.Dense) else None)
        if self._quantized not in (None, "int8") or self._quantized and getattr(head, "lora_enabled", False):
            raise ValueError(
                "`tied_to` may be quantized to int8, without adapters of its own. "
                f"Received: a {type(head).__name__} with quantization_mode={self._quantized!r}."
            )
        if hidden_shape[-1] != self._dim:
            raise ValueError(
                f"`tied_to` reads hidden states of dimension {self._dim}. Received: dimension {hidden_shape[-1]}."
            )
        self.built = True

    def softmax(self) -> BandedSoftmax:
        table, bias = self._weights()
        if self.vocabulary_size < table.shape[0]:  # a slice of all rows would copy the gradient
            table, bias = (None if part is None else part[: self.vocabulary_size] for part in (table, bias))
        return BandedSoftmax([Band(table, bias, self._project)], self.boundaries, soft_cap=self._soft_cap)

    def _project(self, x):
        quantizer = getattr(self.tied_to, "inputs_quantizer", None)
        if self._quantized and quantizer is not None:  # the gradient passes, as in a quantized Dense
            rounded, scale = quantizer(x, axis=-1)
            x = x + ops.stop_gradient(ops.cast(rounded, x.dtype) / scale - x)
        return x * self.logit_scale

    def _weights(self):
        """Returns the table (classes, dim) and the bias (classes,) or `None`."""
        head = self.tied_to
        if isinstance(head, keras.layers.Dense):
            return self._floats(ops.transpose(head.kernel), "kernel_scale"), head.bias
        if getattr(head, "tie_weights", True):
            return self._floats(ops.convert_to_tensor(head.embeddings), "embeddings_scale"), None
        return self._floats(ops.transpose(head.reverse_embeddings), "reverse_embeddings_scale"), None

    def _floats(self, table, scale):
        """Returns a table that may be quantized, one scale for every class, as floats."""
        if not self._quantized:
            return table
        return ops.cast(table, self.compute_dtype) / ops.reshape(getattr(self.tied_to, scale), [-1, 1])

    @property
    def _dim(self):
        return self.tied_to.kernel.shape[0] if isinstance(self.tied_to, keras.layers.Dense) else self.tied_to.output_dim

    @property
    def _quantized(self):
        return getattr(self.tied_to, "quantization_mode", None)

    @property
    def _learns_words(self):
        return bool(self.tied_to.trainable_variables)

    def logits_in_training(self, rows: int) -> int:
        return self.vocabulary_size * default_chunk_rows(rows, self.vocabulary_size, self._dim)

    def get_config(self) -> dict[str, Any]:
        own = {"vocabulary_size": self.vocabulary_size, "logit_scale": self.logit_scale}
        return {**super().get_config(), **own, "input_dropout": self.input_dropout}


def _number_of_classes(head):
    """Returns the number of columns of a head's logits; 0 for a layer that is none, which the constructor refuses."""
    if isinstance(head, keras.layers.Dense) and head.activation not in (keras.activations.linear, SOFTMAX):
        raise ValueError(
            "`tied_to` must give logits or their softmax: pass activation=None or 'softmax'. "
            f"Received: a Dense with activation={keras.activations.serialize(head.activation)!r}."
        )
    return getattr(head, "units", None) or getattr(head, "input_dim", 0)
