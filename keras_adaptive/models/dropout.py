from typing import NamedTuple


class Dropout(NamedTuple):
    """Dropout rates of a `transformer_lm`, in training.

    Args:
        blocks: Dropout rate on the input of the blocks and on both branches of every block.
        attention: Dropout rate on the attention probabilities.
        activation: Dropout rate after the ReLU.
        tail: Dropout rate on the projected hidden states of the tails.
        input: Dropout rate on the hidden states before the output layer.

    Example:

    >>> sizes = {"dim": 16, "num_blocks": 1, "num_heads": 2, "ffn_dim": 32, "cutoffs": (100,)}
    >>> model = transformer_lm(1_000, dropout=Dropout(blocks=0.3, attention=0.1, activation=0.1, tail=0.2), **sizes)
    """

    blocks: float = 0.0
    attention: float = 0.0
    activation: float = 0.0
    tail: float = 0.0
    input: float = 0.0
