import numpy as np

SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8)


def mixed(nll, of_memory, share):
    """Returns the losses of (1 − share) · p of a model + share · p of a memory, float64 (tokens,).

    Args:
        nll: Losses of the model in nats (tokens,).
        of_memory: Log-probabilities by the memory (tokens,): −∞ for a word that it does not hold, and NaN where it is
            empty, which leaves the probability to the model.
        share: Weight of the memory, from 0 to 1.
    """
    nll = np.asarray(nll, "float64")
    known, result = ~np.isnan(of_memory), nll.copy()
    with np.errstate(divide="ignore"):  # a share of 0 or 1
        result[known] = -np.logaddexp(np.log1p(-share) - nll[known], np.log(share) + of_memory[known])
    return result
