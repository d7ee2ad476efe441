"""Functions that build output layers from keyword arguments with the names of the flags. `parts.py` lists them."""

import functools

from keras_adaptive.layers import AdaptiveSoftmax, CharCNNSoftmax, CharLSTMSoftmax, SampledSoftmax
from keras_adaptive.losses import LOSSES


@functools.wraps(AdaptiveSoftmax, updated=())  # it has the same arguments
def adaptive_softmax(*, factor=4, **kwargs):
    return AdaptiveSoftmax(factor=factor or None, **kwargs)


def plain_softmax(*, vocabulary_size, input_dropout, use_bias, tied_to=None, **kwargs):
    shared = {"input_dropout": input_dropout, "use_bias": use_bias, "tied_to": tied_to}
    return AdaptiveSoftmax(vocabulary_size, (), **shared, **kwargs)


def sampled_softmax(
    *, vocabulary_size, counts, num_samples, sampled_loss, noise, input_dropout, use_bias, tied_to=None, **kwargs
):
    sampling = _sampling(vocabulary_size, counts, num_samples, sampled_loss, noise)
    learned = {"input_dropout": input_dropout, "use_bias": use_bias, "tied_to": tied_to}
    return SampledSoftmax(vocabulary_size, **sampling, **learned, **kwargs)


def char_cnn_output(
    *,
    words,
    counts,
    num_samples,
    sampled_loss,
    noise,
    correction_dim,
    highways,
    filters,
    char_dim,
    word_markers,
    input_dropout,
    **kwargs,
):
    sampling = _sampling(len(words), counts, num_samples, sampled_loss, noise)
    characters = {"highways": highways, "filters": filters, "char_dim": char_dim, "word_markers": word_markers}
    learned = {"correction_dim": correction_dim, "input_dropout": input_dropout}
    return CharCNNSoftmax(words, LOSSES[sampling.pop("loss")](**sampling), **characters, **learned, **kwargs)


def char_lstm_output(*, words, output_units, char_dim, max_bytes, **kwargs):
    return CharLSTMSoftmax(words, units=output_units, char_dim=char_dim, max_bytes=max_bytes, **kwargs)


def _sampling(vocabulary_size, counts, num_samples, sampled_loss, noise):
    """Returns the arguments of a sampled loss."""
    if num_samples > vocabulary_size:
        raise ValueError(
            f"--num_samples must be at most {vocabulary_size:,}, the number of words. "
            f"Received: --num_samples={num_samples}."
        )
    if noise == "unigram" and not any(counts):
        raise ValueError(
            "--noise=unigram needs the counts of the words, but the vocabulary has none: prepare the corpus again, or "
            "pass --noise=log_uniform."
        )
    return {"num_samples": num_samples, "loss": sampled_loss, "counts": counts if noise == "unigram" else None}
