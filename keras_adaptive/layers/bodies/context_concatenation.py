from typing import Any

import keras
import numpy as np
from keras import ops

from keras_adaptive.layers.bodies.mixer import Mixer
from keras_adaptive.layers.bodies.transformer_block import NORM_EPSILON
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.layers.initializers import fan_in_uniform
from keras_adaptive.layers.layer_normalization import LayerNormalization
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout, in_training
from keras_adaptive.ops.context.product import context_product
from keras_adaptive.typing import Shape, Tensor

AGGREGATES = ("kernel", "average")


@keras.saving.register_keras_serializable(package="keras_adaptive")
class ContextConcatenation(Mixer):
    """First layer of a neural probabilistic language model: a linear layer over the concatenated context.

    The context of token t is the concatenation of *local blocks*, the last tokens x_t, x_{t−1}, …, and of *global
    blocks*, weighted averages of the tokens before them. With f = relu(linear(…)), or linear(relu(linear(…))) with
    `hidden_dim`,

        y_t = norm(sum of all blocks + drop(f(concatenation of all blocks)))

    The residual connection adds the sum of all blocks instead of x_t. The layer therefore replaces a whole
    `TransformerBlock` among `TransformerDecoder.blocks`, not the mixing layer of a block.

    With `aggregate="kernel"` all global blocks share one window, the `global_window` tokens before the local ones, and
    each block has a learned weight for each distance. With `aggregate="average"` the global blocks are the means of
    adjacent windows. A window that begins before the text is divided by `global_window` too.

    Training never makes the concatenation (batch, length, blocks·dim). The state of `step` holds the last tokens, so
    that the cost of generating a word does not depend on the length of the text.

    The feed-forward kernels and biases start from U(±1/√fan_in), and the global kernels from 1/`global_window`.

    Args:
        num_local: Number of local blocks; the first one is the current token.
        num_global: Number of global blocks.
        global_window: Number of tokens that a global block sees; required if there are global blocks.
        aggregate: "kernel" for learned weights, or "average" for means.
        hidden_dim: Width of the hidden layer, `None` for a single linear layer.
        dropout: Dropout rate on f, in training.
        normalize: Whether to apply a LayerNorm to the output.

    Attributes:
        hidden: The first linear layer, whose `kernel` ((num_local + num_global)·dim, hidden_dim or dim) has its rows in
            the order of the blocks.
        out: The second linear layer, `None` without `hidden_dim`.
        global_kernels: Variable (num_global, global_window) of learned weights, by increasing distance from the local
            blocks; `None` for means.

    Call arguments:
        x, training: As in `Mixer`.

    Raises:
        ValueError: If a number is out of range, or only one of `num_global` and `global_window` is given.

    Reference:
        Sun and Iyyer, Revisiting Simple Neural Probabilistic Language Models, NAACL 2021, section 2.1, with the
        residual connection of the published code.

    Example:

    >>> layer = ContextConcatenation(num_local=4, num_global=2, global_window=8, dropout=0.1)
    >>> tuple(layer(np.ones((2, 16, 6), "float32")).shape)
    (2, 16, 6)
    >>> tuple(layer.hidden.kernel.shape)
    (36, 6)
    """

    def __init__(
        self,
        num_local: int,
        *,
        num_global: int = 0,
        global_window: int | None = None,
        aggregate: str = "kernel",
        hidden_dim: int | None = None,
        dropout: float = 0.0,
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _check_sizes(num_local, num_global, global_window, aggregate, hidden_dim)
        self.num_local = num_local
        self.num_global = num_global
        self.global_window = global_window
        self.aggregate = aggregate
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        policy = {"dtype": self.dtype_policy}
        self.hidden: FlatDense | None = None
        self.out: FlatDense | None = None
        self.global_kernels: Tensor | None = None
        self.norm = LayerNormalization(epsilon=NORM_EPSILON, **policy) if normalize else None
        self._drop = SeededDropout(dropout, **policy)

    def build(self, input_shape: Shape) -> None:
        dim, blocks = input_shape[-1], self.num_local + self.num_global
        self.hidden = self._dense(self.hidden_dim or dim, blocks * dim, "hidden")
        if self.hidden_dim:
            self.out = self._dense(dim, self.hidden_dim, "out")
        if self.num_global and self.aggregate == "kernel":
            shape, mean = (self.num_global, self.global_window), keras.initializers.Constant(1 / self.global_window)
            self.global_kernels = self.add_weight(shape=shape, initializer=mean, name="global_kernels")
        if self.norm is not None:
            self.norm.build(input_shape)
        self.built = True

    def _dense(self, units, fan_in, name):
        uniform, policy = fan_in_uniform(fan_in), self.dtype_policy
        dense = FlatDense(units, kernel_initializer=uniform, bias_initializer=uniform.clone(), name=name, dtype=policy)
        dense.build((None, fan_in))
        return dense

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        return self.mix(x, training=training)[0]

    def initial_state(self, batch_size: int, length: int | None, dim: int) -> Tensor:
        """Returns zeros (batch, tokens, dim) in place of the tokens before the text that an output sees."""
        return ops.zeros((batch_size, self._tokens_before, dim), self.compute_dtype)

    def step(self, x: Tensor, state: Any, position: int | Tensor, training: bool | None = False) -> tuple[Tensor, Any]:
        y, _, state = self.mix(x, state, training)
        return y, state

    def mix(self, x: Tensor, state: Any = None, training: bool | None = False) -> tuple[Tensor, Tensor | None, Any]:
        """Computes the output and the sum of the global blocks, which an `NPLMDecoder` uses again.

        Args:
            x: Vectors (batch, steps, dim) of the tokens that follow `state`.
            state: The state after the previous tokens, `None` at the beginning of a text.
            training: Whether to apply dropout.

        Returns:
            `(y, global_sum, state)`: the outputs (batch, steps, dim), the sum of the global blocks (batch, steps, dim)
            or `None` without global blocks, and the state after these tokens, or `None` if `state` is `None`.
        """
        branch, total, global_sum, state = self._branches(x, state)
        y = total + in_training(self._drop, branch, training)
        return y if self.norm is None else self.norm(y), global_sum, state

    def _branches(self, x, state):
        """Returns the layer over the concatenation, the sum of all blocks, the sum of the global ones and the state."""
        x, before = ops.cast(x, self.compute_dtype), 0
        if state is not None:
            before, steps = self._tokens_before, ops.shape(x)[1]
            x = ops.concatenate([ops.cast(state, x.dtype), x], axis=1)
            state = x[:, steps:]
        kernel, bias = (ops.cast(weight, self.compute_dtype) for weight in (self.hidden.kernel, self.hidden.bias))
        branch, total, *global_sum = context_product(
            x, kernel, bias, self._filters(), num_local=self.num_local, before=before
        )
        branch = ops.relu(branch)
        branch = branch if self.out is None else self.out(branch)
        return branch, total, global_sum[0] if global_sum else None, state

    @property
    def _tokens_before(self):
        windows = self.num_global if self.aggregate == "average" else min(self.num_global, 1)
        return self.num_local - 1 + windows * (self.global_window or 0)

    def _filters(self):
        """Returns the weights (num_global, distances) of tokens in the global blocks, `None` without such blocks."""
        if not self.num_global:
            return None
        if self.aggregate == "kernel":
            return ops.pad(ops.cast(self.global_kernels, "float32"), [[0, 0], [self.num_local, 0]])
        windows = np.repeat(np.eye(self.num_global, dtype="float32"), self.global_window, axis=1) / self.global_window
        return np.pad(windows, [[0, 0], [self.num_local, 0]])

    def activations_per_token(self, length: int, dim: int) -> int:
        """Counts the input, the sum, the output, the hidden layer, and dropout's mask."""
        return (3 + (self.dropout > 0)) * dim + (self.hidden_dim or dim)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_local": self.num_local,
            "num_global": self.num_global,
            "global_window": self.global_window,
            "aggregate": self.aggregate,
            "hidden_dim": self.hidden_dim,
            "dropout": self.dropout,
            "normalize": self.norm is not None,
        }


def _check_sizes(num_local, num_global, global_window, aggregate, hidden_dim):
    if num_local < 1:
        raise ValueError(
            f"`num_local` must be at least 1, because the current token is a block. Received: num_local={num_local}."
        )
    if num_global < 0:
        raise ValueError(f"`num_global` must be 0 or more. Received: num_global={num_global}.")
    if bool(num_global) != bool(global_window) or (global_window or 0) < 0:
        raise ValueError(
            "`num_global` and `global_window` must both be at least 1; leave out both for no global blocks. "
            f"Received: num_global={num_global}, global_window={global_window}."
        )
    if aggregate not in AGGREGATES:
        raise ValueError(f"`aggregate` must be one of {list(AGGREGATES)}. Received: aggregate={aggregate!r}.")
    if hidden_dim is not None and hidden_dim < 1:
        raise ValueError(f"`hidden_dim` must be at least 1, or None. Received: hidden_dim={hidden_dim}.")
