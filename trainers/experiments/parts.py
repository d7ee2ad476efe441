"""Parts of an experiment.

`PARTS` lists the parts for every role. A part is a class or function of `keras_adaptive`, and a hyper-parameter is an
argument of it, by default of the same name. Functions here build parts from several hyper-parameters.

To add a part, write it in `keras_adaptive` and add a row to `PARTS`. A new hyper-parameter also needs a row in
`trainers.experiments.hyperparameters.HYPERPARAMETERS`.
"""

import bisect
import functools
import inspect
import re
from collections.abc import Callable
from typing import NamedTuple

import keras

from keras_adaptive.data import BlockBatches, SentenceBatches, StagedBatches, StreamBatches
from keras_adaptive.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    CharCNN,
    CharCNNSoftmax,
    CharLSTMSoftmax,
    LSTMDecoder,
    NPLMDecoder,
    QRNNDecoder,
    SampledSoftmax,
    WordEmbedding,
)
from keras_adaptive.losses import LOSSES
from keras_adaptive.models.constructors import hybrid_transformer, shortformer, transformer, transformer_xl
from keras_adaptive.optimizers import NAG, AveragedSGD, CosineRestarts, L2Adam, LazyAdam

LONGEST = 2**20  # tokens of a block
LEAST_NORM = 1e-6  # gradients with a smaller norm do not change weights in float32
_TAKEN = re.compile(r"(?P<flag>\w+)(=(?P<argument>\w+))?(?P<off>\?(?P<other>\w*))?")


class Part(NamedTuple):
    """A choice for one role of an experiment.

    Args:
        make: Class or function that builds the part. It is called with keyword arguments only.
        takes: Hyper-parameters that `make` takes, separated by spaces. `name` is an argument of the same name and
            `name=argument` of another name. After `?` follows what a value of 0 stands for: the value of another
            hyper-parameter, or `None` if nothing follows. Several hyper-parameters of one argument make a tuple.
        offered: Names of further arguments that the experiment passes to `make`, such as the size of the vocabulary.
        check: Function that is called with all settings of the experiment, and raises a `ValueError` if they do not
            fit together. Optional.

    Example:

    >>> part = Part(WordEmbedding, "embedding_dim=output_dim?dim embedding_dropout", "vocabulary_size")
    >>> part.flags
    ['embedding_dim', 'dim', 'embedding_dropout']
    >>> part.arguments({"embedding_dim": 0, "dim": 64, "embedding_dropout": 0.1})
    {'output_dim': 64, 'embedding_dropout': 0.1}
    """

    make: Callable
    takes: str
    offered: str = ""
    check: Callable | None = None

    @property
    def flags(self):
        """Names of the hyper-parameters that the part takes."""
        names = [name for taken in self._taken() for name in (taken["flag"], taken["other"]) if name]
        return list(dict.fromkeys(names))

    def arguments(self, settings):
        """Returns the keyword arguments of `make` for settings by name, where unused ones may be missing."""
        given = {}
        for taken in self._taken():
            if taken["flag"] in settings:
                value = settings[taken["flag"]]
                if taken["off"] and value == 0:
                    value = settings.get(taken["other"])
                given.setdefault(taken["argument"] or taken["flag"], []).append(value)
        return {name: values[0] if len(values) == 1 else tuple(values) for name, values in given.items()}

    def default(self, flag):
        """Returns the default of the argument that a hyper-parameter sets."""
        (name,) = self.arguments({flag: 1})
        return inspect.signature(self.make).parameters[name].default

    def _taken(self):
        return [_TAKEN.fullmatch(each) for each in self.takes.split()]


def check_factor(settings):
    if settings["factor"] == 0:
        raise ValueError(
            "--factor=0 (no reduction) belongs to --input=word: pass --input=word, or a --factor of at least 1. "
            "Received: --input=adaptive --factor=0."
        )


def check_reach(settings):
    """Raises a ValueError if the first layer sees more tokens than a training row has."""
    value = {"attention_window": 0, "aggregate": "kernel", **settings}.get
    windows = value("num_global") if value("aggregate") == "average" else 1
    reach = {name: value(name) for name in ("attention_window", "num_local")}
    reach["global_window"] = value("num_local") + windows * value("global_window")
    for name, tokens in reach.items():
        if tokens > value("length", tokens):
            raise ValueError(
                f"--{name} makes the first layer see {tokens} tokens, more than a training row has: pass a smaller "
                f"value, or a larger --length. Received: --{name}={value(name)} --length={value('length')}."
            )


def check_segments(settings):
    """Raises a ValueError if the batches of streams differ from the segments of the body."""
    if settings.get("vary_bptt") and not settings.get("same_length"):
        raise ValueError(
            "--vary_bptt gives batches that are not the segments of --bptt tokens of this body: pass --novary_bptt."
        )


def recurrent_transformer(*, bptt, same_length, **kwargs):
    """Returns the body of a Transformer-XL, whose segments are the batches of streams unless it has a window."""
    return transformer_xl(segment_length=None if same_length else bptt, **kwargs)


def adaptive_softmax(*, cutoffs, factor=4, use_bias=False, tie_projections=True, project_head=False, **kwargs):
    """Returns the adaptive softmax, whose head may project the hidden states by a matrix of its own."""
    ties = (False, *[tie_projections] * len(cutoffs)) if project_head else tie_projections
    return AdaptiveSoftmax(cutoffs=cutoffs, factor=factor, tie_projections=ties, use_bias=use_bias, **kwargs)


def sampled_softmax(*, vocabulary_size, counts, num_samples, loss, noise, use_bias=True, **kwargs):
    sampling = _sampling(vocabulary_size, counts, num_samples, noise)
    return SampledSoftmax(vocabulary_size, loss=loss, use_bias=use_bias, **sampling, **kwargs)


def char_cnn_softmax(*, words, counts, num_samples, loss, noise, **kwargs):
    return CharCNNSoftmax(words, LOSSES[loss](**_sampling(len(words), counts, num_samples, noise)), **kwargs)


def _sampling(vocabulary_size, counts, num_samples, noise):
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
    return {"num_samples": num_samples, "counts": counts if noise == "unigram" else None}


def hybrid(*, attention_window, keep_attention, **kwargs):
    """Returns the body of a hybrid, whose flags name a first block without attention by --nokeep_attention."""
    if attention_window and not keep_attention:
        raise ValueError(
            "--attention_window belongs to the attention of the first block: omit it, or pass --keep_attention. "
            f"Received: --attention_window={attention_window} --nokeep_attention."
        )
    return hybrid_transformer(attention_window=attention_window if keep_attention else 0, **kwargs)


def stages_of(lengths):
    """Returns the stages that --lengths describes, a list of `(length, updates)`; the last one has no updates."""
    parts = [re.fullmatch(r"0*(\d{1,10})(:0*(\d{1,10}))?", part.strip()) for part in lengths.split(",")]
    stages = [(int(part[1]), part[3] and int(part[3])) for part in parts if part]
    *first, last = stages or [(0, None)]
    rising = all(low < high for (low, _), (high, _) in zip(stages, stages[1:]))
    if (
        None in parts
        or not rising
        or stages[0][0] < 1
        or last[0] > LONGEST
        or last[1] is not None
        or not all(updates for _, updates in first)
    ):
        raise ValueError(
            "--lengths must be LENGTH:UPDATES of every stage but the last, and the LENGTH of the last, separated by "
            f"commas, with increasing lengths, such as 64:10000,256. Received: --lengths={lengths}."
        )
    return stages


def block_batches(*, length, lengths, batch_size, **kwargs):
    """Returns the batches of all stages; for validation, which is not shuffled, those of the last one."""
    if not lengths or not kwargs["shuffle"]:
        return BlockBatches(length=length, batch_size=batch_size, **kwargs)
    stages = stages_of(lengths)
    rows = [batch_size * length // shorter for shorter, _ in stages]
    return StagedBatches(
        [
            (BlockBatches(length=shorter, batch_size=number, **kwargs), updates)
            for (shorter, updates), number in zip(stages, rows)
        ]
    )


def sentence_batches(*, length, batch_size, **kwargs):
    return SentenceBatches(tokens_per_batch=batch_size * length, max_length=length, **kwargs)


def stream_batches(*, vary_bptt, shuffle, reset_rate, **kwargs):
    """Returns the batches of training, or of validation, which is not shuffled and never resets the state."""
    return StreamBatches(shuffle=shuffle and vary_bptt, reset_rate=reset_rate if shuffle else 0.0, **kwargs)


def optimizer(make, takes=""):
    """Returns the `Part` of an optimizer, which takes --max_rate and --clip_norm."""
    return Part(make, f"max_rate=learning_rate clip_norm=global_clipnorm? {takes}", check=check_clip_norm)


def check_clip_norm(settings):
    if 0 < settings["clip_norm"] < LEAST_NORM:
        raise ValueError(
            f"--clip_norm must be 0 for no clipping, or at least {LEAST_NORM}: smaller norms do not change weights. "
            f"Received: --clip_norm={settings['clip_norm']}."
        )


def adam(*, weight_decay, **kwargs):
    return L2Adam(l2=weight_decay, **kwargs) if weight_decay else keras.optimizers.Adam(**kwargs)


def muon(**kwargs):
    """Returns Muon for the matrices of the body. Adam, at the same rate, updates words and vectors.

    Three Newton-Schulz steps, where Keras takes five, cost a sixth less of an update and no perplexity.
    """
    decay = {"weight_decay": None, "adam_weight_decay": None}
    return keras.optimizers.Muon(exclude_layers=["word_input", "word_output"], ns_steps=3, **decay, **kwargs)


def cosine_restarts(*, warmup, period, updates, **kwargs):
    if warmup >= updates:
        raise ValueError(
            "--warmup must be below --updates, or the rate never reaches --max_rate. "
            f"Received: --warmup={warmup} --updates={updates}."
        )
    return CosineRestarts(period=period or updates - warmup, warmup=warmup, **kwargs)


def step_decay(*, max_rate, decay_at, decay_factor):
    if not all(first < second for first, second in zip([0, *decay_at], decay_at)):
        raise ValueError(
            "--decay_at must be strictly increasing numbers of updates, from 1. "
            f"Received: --decay_at={','.join(map(str, decay_at))}."
        )
    return lambda update: max_rate / decay_factor ** bisect.bisect_right(decay_at, update)


CHARACTERS = "highways filters char_dim word_markers"
CONTEXT = "num_local num_global"
BLOCKS = "num_blocks dim ffn_dim num_heads dropout"
AWD = (
    "vector_dropout=dropout hidden_dropout=dropout output_dropout=dropout variational_dropout=dropout "
    "activation_penalty=penalties temporal_penalty=penalties weight_dropout"
)
PARTS = {
    "input": {
        "adaptive": Part(
            AdaptiveEmbedding, "embedding_dim?dim dim=output_dim cutoffs factor", "vocabulary_size", check_factor
        ),
        "word": Part(WordEmbedding, "embedding_dim=output_dim?dim embedding_dropout", "vocabulary_size"),
        "char_cnn": Part(CharCNN, f"embedding_dim=output_dim?dim {CHARACTERS}", "words"),
    },
    "body": {
        "transformer": Part(
            transformer,
            f"{BLOCKS} positions output_dim? attention_dropout activation_dropout",
        ),
        "hybrid": Part(
            hybrid,
            f"{BLOCKS} positions attention_window? {CONTEXT} global_window? keep_attention",
            check=check_reach,
        ),
        "nplm": Part(
            NPLMDecoder,
            f"num_blocks=num_layers ffn_dim {CONTEXT} global_window? aggregate concatenation_dim? dropout",
            check=check_reach,
        ),
        "shortformer": Part(
            shortformer,
            f"{BLOCKS} memory_length bptt=segment_length attention_dropout activation_dropout",
            check=check_segments,
        ),
        "transformer_xl": Part(
            recurrent_transformer,
            f"{BLOCKS} memory_length bptt same_length share_biases attention_dropout",
            check=check_segments,
        ),
        "lstm": Part(LSTMDecoder, f"num_layers units dim=output_dim projection_dim? {AWD}"),
        "qrnn": Part(QRNNDecoder, f"num_layers units dim=output_dim window zoneout {AWD}"),
    },
    "output": {
        "adaptive": Part(
            adaptive_softmax,
            "cutoffs factor? tail_dropout input_dropout tie_projections project_head use_bias",
            "vocabulary_size tied_to",
        ),
        "softmax": Part(
            functools.partial(AdaptiveSoftmax, cutoffs=()), "input_dropout use_bias", "vocabulary_size tied_to"
        ),
        "sampled": Part(
            sampled_softmax,
            "num_samples sampled_loss=loss noise input_dropout use_bias",
            "vocabulary_size counts tied_to",
        ),
        "char_cnn": Part(
            char_cnn_softmax,
            f"num_samples sampled_loss=loss noise correction_dim {CHARACTERS} input_dropout",
            "words counts",
        ),
        "char_lstm": Part(CharLSTMSoftmax, "output_units=units char_dim max_bytes", "words"),
    },
    "batching": {
        "blocks": Part(block_batches, "length lengths batch_size", "tokens seed shuffle"),
        "sentences": Part(sentence_batches, "length batch_size", "tokens seed shuffle"),
        "streams": Part(stream_batches, "bptt vary_bptt reset_rate batch_size", "tokens seed shuffle"),
    },
    "optimizer": {
        "nag": optimizer(NAG, "momentum"),
        "adam": optimizer(adam, "weight_decay"),
        "muon": optimizer(muon),
        "adagrad": optimizer(keras.optimizers.Adagrad, "initial_accumulator=initial_accumulator_value"),
        "lazy_adam": optimizer(LazyAdam),
        "averaged_sgd": optimizer(AveragedSGD, "weight_decay=l2 average_after=patience"),
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
    ("word", "adaptive"): "factor tie_projections project_head",
    ("word", "softmax"): "",
    ("word", "sampled"): "",
}
NOT_OF_UNTIED = "tie_projections project_head"  # hyper-parameters that no untied pair uses
