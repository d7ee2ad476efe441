"""Parts of an experiment.

`PARTS` lists the parts for every role. A part is a class or function of `keras_adaptive` whose keyword arguments have
the names of the flags. Short functions adapt classes whose arguments have other names.

To add a part, write it in `keras_adaptive` and add a row to `PARTS`. A new hyper-parameter also needs a row in
`trainers.experiments.hyperparameters.HYPERPARAMETERS`.
"""

import bisect
from collections.abc import Callable
from typing import NamedTuple

import keras

from keras_adaptive.data import BlockBatches, SentenceBatches, StreamBatches
from keras_adaptive.layers import (
    AdaptiveEmbedding,
    CharCNN,
    LSTMDecoder,
    NPLMDecoder,
    QRNNDecoder,
    WordEmbedding,
)
from keras_adaptive.models.constructors import hybrid_transformer, transformer
from keras_adaptive.optimizers import NAG, AveragedSGD, CosineRestarts, L2Adam, LazyAdam
from trainers.experiments.outputs import (
    adaptive_softmax,
    char_cnn_output,
    char_lstm_output,
    plain_softmax,
    sampled_softmax,
)

LEAST_NORM = 1e-6  # gradients with a smaller norm do not change weights in float32


class Part(NamedTuple):
    """A choice for one role of an experiment.

    Args:
        make: Class or function that builds the part. It is called with keyword arguments only.
        takes: Names of the hyper-parameters that `make` takes, separated by spaces.
        offered: Names of further arguments that the experiment passes to `make`, such as the size of the vocabulary.
    """

    make: Callable
    takes: str
    offered: str = ""


def adaptive_input(*, vocabulary_size, input_dim, dim, cutoffs, factor, **kwargs):
    if factor == 0:
        raise ValueError(
            "--factor=0 (no reduction) belongs to --input=word: pass --input=word, or a --factor of at least 1. "
            "Received: --input=adaptive --factor=0."
        )
    return AdaptiveEmbedding(vocabulary_size, input_dim or dim, cutoffs, output_dim=dim, factor=factor, **kwargs)


def word_input(*, vocabulary_size, input_dim, dim, embedding_dropout, **kwargs):
    return WordEmbedding(vocabulary_size, input_dim or dim, embedding_dropout=embedding_dropout, **kwargs)


def char_cnn_input(*, words, input_dim, dim, highways, filters, char_dim, word_markers, **kwargs):
    characters = {"highways": highways, "filters": filters, "char_dim": char_dim, "word_markers": word_markers}
    return CharCNN(words, input_dim or dim, **characters, **kwargs)


def transformer_body(
    *, num_blocks, dim, ffn_dim, num_heads, output_dim, dropout, attention_dropout, relu_dropout, **kwargs
):
    sizes = {"num_blocks": num_blocks, "dim": dim, "ffn_dim": ffn_dim, "num_heads": num_heads, "output_dim": output_dim}
    rates = {"dropout": dropout, "attention_dropout": attention_dropout, "activation_dropout": relu_dropout}
    return transformer(**sizes, **rates, **kwargs)


def lstm(
    *,
    num_layers,
    units,
    dim,
    projection_dim,
    weight_dropout,
    vector_dropout,
    hidden_dropout,
    output_dropout,
    variational_dropout,
    activation_penalty,
    temporal_penalty,
    **kwargs,
):
    return LSTMDecoder(
        num_layers,
        units,
        dim,
        projection_dim=projection_dim or None,
        weight_dropout=weight_dropout,
        dropout=(vector_dropout, hidden_dropout, output_dropout),
        variational=variational_dropout,
        activation_penalty=activation_penalty,
        temporal_penalty=temporal_penalty,
        **kwargs,
    )


def qrnn(
    *,
    num_layers,
    units,
    dim,
    window,
    zoneout,
    weight_dropout,
    vector_dropout,
    hidden_dropout,
    output_dropout,
    variational_dropout,
    activation_penalty,
    temporal_penalty,
    **kwargs,
):
    return QRNNDecoder(
        num_layers,
        units,
        dim,
        window=window,
        zoneout=zoneout,
        weight_dropout=weight_dropout,
        dropout=(vector_dropout, hidden_dropout, output_dropout),
        variational=variational_dropout,
        activation_penalty=activation_penalty,
        temporal_penalty=temporal_penalty,
        **kwargs,
    )


def nplm(*, num_blocks, ffn_dim, num_local, num_global, global_window, aggregate, concatenation_dim, dropout, **kwargs):
    return NPLMDecoder(
        num_blocks,
        ffn_dim,
        num_local=num_local,
        num_global=num_global,
        global_window=global_window or None,
        aggregate=aggregate,
        concatenation_dim=concatenation_dim or None,
        dropout=dropout,
        **kwargs,
    )


def sentence_batches(*, tokens, length, batch_size, seed, shuffle):
    return SentenceBatches(tokens, batch_size * length, seed=seed, max_length=length, shuffle=shuffle)


def stream_batches(*, tokens, bptt, vary_bptt, batch_size, seed, shuffle):
    return StreamBatches(tokens, bptt, batch_size, seed=seed, shuffle=shuffle and vary_bptt)


def nag(*, max_rate, momentum, clip_norm):
    return NAG(max_rate, momentum=momentum, global_clipnorm=_bound(clip_norm))


def adam(*, max_rate, clip_norm, weight_decay):
    if weight_decay:
        return L2Adam(max_rate, l2=weight_decay, global_clipnorm=_bound(clip_norm))
    return keras.optimizers.Adam(max_rate, global_clipnorm=_bound(clip_norm))


def adagrad(*, max_rate, clip_norm, initial_accumulator):
    bounds = {"global_clipnorm": _bound(clip_norm)}
    return keras.optimizers.Adagrad(max_rate, initial_accumulator_value=initial_accumulator, **bounds)


def muon(*, max_rate, clip_norm):
    """Returns Muon for the matrices of the body. Adam, at the same rate, updates words and vectors.

    Three Newton-Schulz steps, where Keras takes five, cost a sixth less of an update and no perplexity.
    """
    bounds = {"weight_decay": None, "adam_weight_decay": None, "global_clipnorm": _bound(clip_norm)}
    return keras.optimizers.Muon(max_rate, exclude_layers=["word_input", "word_output"], ns_steps=3, **bounds)


def lazy_adam(*, max_rate, clip_norm):
    return LazyAdam(max_rate, global_clipnorm=_bound(clip_norm))


def averaged_sgd(*, max_rate, clip_norm, weight_decay, average_after):
    return AveragedSGD(max_rate, l2=weight_decay, patience=average_after, global_clipnorm=_bound(clip_norm))


def _bound(clip_norm):
    if 0 < clip_norm < LEAST_NORM:
        raise ValueError(
            f"--clip_norm must be 0 for no clipping, or at least {LEAST_NORM}: smaller norms do not change weights. "
            f"Received: --clip_norm={clip_norm}."
        )
    return clip_norm or None


def cosine_restarts(*, max_rate, min_rate, warmup, warmup_rate, period, period_mult, shrink, updates):
    if warmup >= updates:
        raise ValueError(
            "--warmup must be below --updates, or the rate never reaches --max_rate. "
            f"Received: --warmup={warmup} --updates={updates}."
        )
    return CosineRestarts(
        max_rate,
        period or updates - warmup,
        min_rate=min_rate,
        warmup=warmup,
        warmup_rate=warmup_rate,
        period_mult=period_mult,
        shrink=shrink,
    )


def step_decay(*, max_rate, decay_at, decay_factor):
    if not all(first < second for first, second in zip([0, *decay_at], decay_at)):
        raise ValueError(
            "--decay_at must be strictly increasing numbers of updates, from 1. "
            f"Received: --decay_at={','.join(map(str, decay_at))}."
        )
    return lambda update: max_rate / decay_factor ** bisect.bisect_right(decay_at, update)


AWD = "vector_dropout hidden_dropout output_dropout variational_dropout activation_penalty temporal_penalty"
CONTEXT = "num_local num_global global_window"
PARTS = {
    "input": {
        "adaptive": Part(adaptive_input, "input_dim dim cutoffs factor", "vocabulary_size"),
        "word": Part(word_input, "input_dim dim embedding_dropout", "vocabulary_size"),
        "char_cnn": Part(char_cnn_input, "input_dim dim highways filters char_dim word_markers", "words"),
    },
    "body": {
        "transformer": Part(
            transformer_body, "num_blocks dim ffn_dim num_heads output_dim dropout attention_dropout relu_dropout"
        ),
        "hybrid": Part(
            hybrid_transformer,
            f"num_blocks dim ffn_dim num_heads attention_window {CONTEXT} keep_attention dropout",
        ),
        "nplm": Part(nplm, f"num_blocks ffn_dim {CONTEXT} aggregate concatenation_dim dropout"),
        "lstm": Part(lstm, f"num_layers units dim projection_dim weight_dropout {AWD}"),
        "qrnn": Part(qrnn, f"num_layers units dim window zoneout weight_dropout {AWD}"),
    },
    "output": {
        "adaptive": Part(
            adaptive_softmax,
            "cutoffs factor tail_dropout input_dropout tie_projections use_bias",
            "vocabulary_size tied_to",
        ),
        "softmax": Part(plain_softmax, "input_dropout use_bias", "vocabulary_size tied_to"),
        "sampled": Part(
            sampled_softmax,
            "num_samples sampled_loss noise input_dropout use_bias",
            "vocabulary_size counts tied_to",
        ),
        "char_cnn": Part(
            char_cnn_output,
            "num_samples sampled_loss noise correction_dim highways filters char_dim word_markers input_dropout",
            "words counts",
        ),
        "char_lstm": Part(char_lstm_output, "output_units char_dim max_bytes", "words"),
    },
    "batching": {
        "blocks": Part(BlockBatches, "length batch_size", "tokens seed shuffle"),
        "sentences": Part(sentence_batches, "length batch_size", "tokens seed shuffle"),
        "streams": Part(stream_batches, "bptt vary_bptt batch_size", "tokens seed shuffle"),
    },
    "optimizer": {
        "nag": Part(nag, "max_rate momentum clip_norm"),
        "adam": Part(adam, "max_rate clip_norm weight_decay"),
        "muon": Part(muon, "max_rate clip_norm"),
        "adagrad": Part(adagrad, "max_rate clip_norm initial_accumulator"),
        "lazy_adam": Part(lazy_adam, "max_rate clip_norm"),
        "averaged_sgd": Part(averaged_sgd, "max_rate clip_norm weight_decay average_after"),
    },
    "schedule": {
        "cosine_restarts": Part(
            cosine_restarts, "max_rate min_rate warmup warmup_rate period period_mult shrink", "updates"
        ),
        "step_decay": Part(step_decay, "max_rate decay_at decay_factor"),
    },
}
ROLES = {  # role: (default, help)
    "input": ("adaptive", "Input layer: adaptive embedding, plain embedding or character CNN."),
    "body": ("transformer", "Body: the layers from word vectors to hidden states."),
    "output": (
        "adaptive",
        "Output layer: adaptive softmax, plain softmax, sampled softmax, softmax over vectors from a character CNN, or "
        "an LSTM that spells words.",
    ),
    "batching": (
        "blocks",
        "Batches of blocks of text, of single sentences, or of streams, for which the body carries its state.",
    ),
    "optimizer": (
        "nag",
        "Optimizer: Nesterov's accelerated gradient, Adam, Muon for the matrices of the body and Adam for the rest, "
        "averaged SGD (NT-ASGD), or Adagrad or lazy Adam, which update only the word vectors that an update reads.",
    ),
    "schedule": (
        "cosine_restarts",
        "Schedule of the learning rate: cosine annealing after a linear warm-up, or step decay.",
    ),
}
# Pairs of --input and --output that can share word vectors, with the hyper-parameters that a tied pair does not use.
TIES = {
    ("adaptive", "adaptive"): "",
    ("word", "adaptive"): "factor tie_projections",
    ("word", "softmax"): "",
    ("word", "sampled"): "",
}
NOT_OF_UNTIED = "tie_projections"  # hyper-parameter that no untied pair uses
