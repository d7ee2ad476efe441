from typing import NamedTuple


class RecurrentDropout(NamedTuple):
    """Dropout rates of a recurrent body, in training.

    Args:
        input: Dropout rate on the word vectors before the first layer.
        between: Dropout rate on the vectors between layers.
        output: Dropout rate on the hidden states after the last layer.
        variational: Whether a dropout mask holds for all tokens of a row. Otherwise each token has its own mask.

    Reference:
        Merity et al., An Analysis of Neural Language Modeling at Multiple Scales, 2018, section 3.

    Example:

    >>> body = LSTMDecoder(2, 32, 16, dropout=RecurrentDropout(between=0.25, variational=False))
    """

    input: float = 0.0
    between: float = 0.0
    output: float = 0.0
    variational: bool = True
