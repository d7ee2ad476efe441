"""Every hyper-parameter of every part has an effect: on the weights after two updates, the rates or the batches.

A flag that is read and then ignored would change nothing here.
"""

import functools
from collections import Counter

import keras
import numpy as np
import pytest

from keras_adaptive.data import Vocabulary
from trainers.experiments.experiment import Experiment
from trainers.experiments.parts import PARTS

pytestmark = pytest.mark.once

BASE = {  # arguments of all experiments with a part, so that every change of it below has an effect
    "transformer": ["--body=transformer"],
    "hybrid": ["--body=hybrid", "--num_local=2", "--num_global=1", "--global_window=2"],
    "nplm": ["--body=nplm", "--num_local=2", "--num_global=2", "--global_window=2", "--num_blocks=2"],
    "shortformer": ["--body=shortformer", "--batching=streams", "--novary_bptt"],
    "transformer_xl": ["--body=transformer_xl", "--batching=streams", "--novary_bptt", "--nosame_length"],
    "lstm": ["--body=lstm", "--num_layers=2"],
    "qrnn": ["--body=qrnn", "--num_layers=2"],
    "cosine_restarts": ["--period=3", "--warmup=2", "--updates=20"],
    "step_decay": ["--schedule=step_decay", "--decay_at=2"],
}
CHANGES = {
    "embedding_dim": "6", "dim": "12", "cutoffs": "10", "factor": "2", "embedding_dropout": "0.5", "highways": "2",
    "filters": "3,2", "char_dim": "3", "word_markers": "true", "correction_dim": "2",
    "output_units": "7", "num_blocks": "3", "num_heads": "4", "ffn_dim": "10", "attention_window": "2",
    "num_local": "3", "num_global": "3", "global_window": "3", "aggregate": "average", "concatenation_dim": "5",
    "keep_attention": "false", "memory_length": "4", "same_length": "true", "share_biases": "false",
    "num_layers": "3", "units": "9", "projection_dim": "5", "window": "2",
    "output_dim": "4", "dropout": "0.5", "attention_dropout": "0.5", "activation_dropout": "0.5",
    "vector_dropout": "0.5", "hidden_dropout": "0.5", "output_dropout": "0.5", "variational_dropout": "false",
    "weight_dropout": "0.5", "zoneout": "0.5", "activation_penalty": "2", "temporal_penalty": "2",
    "tail_dropout": "0.5", "input_dropout": "0.5", "tie_projections": "false", "project_head": "true",
    "use_bias": "true",
    "num_samples": "9", "sampled_loss": "nce", "noise": "unigram",
    "positions": "alibi", "lengths": "4:1,8", "length": "6",
    "batch_size": "3", "bptt": "6", "vary_bptt": "false", "reset_rate": "0.5", "max_rate": "0.5",
    "momentum": "0.5", "clip_norm": "0.01", "weight_decay": "0.1", "initial_accumulator": "0.5",
    "decay_at": "4", "decay_factor": "2", "min_rate": "0.1", "warmup": "4", "warmup_rate": "0.1", "period": "5",
    "period_mult": "2", "shrink": "0.5",
}  # fmt: skip
SMALL = {
    "dim": "8", "cutoffs": "12", "filters": "2,2", "char_dim": "4", "highways": "1", "output_units": "5",
    "num_blocks": "2", "ffn_dim": "12", "units": "6", "num_samples": "5", "max_bytes": "12", "num_heads": "2",
    "length": "8", "bptt": "8", "memory_length": "5", "batch_size": "2", "max_rate": "0.2", "dropout": "0",
    "clip_norm": "0.1",
}  # fmt: skip
WITH = {
    "variational_dropout": ["--hidden_dropout=0.5"],
    "tie_projections": ["--tie_words"],
    "project_head": ["--tie_words"],
    "use_bias": ["--nouse_bias"],
}
CASES = [(role, part, name) for role in PARTS for part in PARTS[role] for name in PARTS[role][part].flags]
WORDS = Counter({f"word{'x' * (i % 7)}{i}": 90 - i for i in range(28)})


def experiment(role, part, *changes):
    arguments = [f"--{role}={part}", "--notie_words", *BASE.get(part, ())]
    if role == "input" or part in ("softmax", "sampled", "char_cnn", "char_lstm"):
        arguments += ["--input=word"] if role != "input" else []
    given = {argument.split("=")[0] for argument in [*arguments, *changes]}
    parsed = Experiment.of_arguments([*arguments, *changes])
    free = [name for name in SMALL if name in parsed.settings and f"--{name}" not in given]
    small = [f"--{name}={SMALL[name]}" for name in free]
    return Experiment.of_arguments([*arguments, *small, *changes])


def outcome(role, chosen):
    """Returns arrays that the parts and settings of an experiment decide."""
    if role == "schedule":
        return [np.array([chosen.schedule()(update) for update in range(20)])]
    if role == "batching":
        batches = chosen.batches(np.arange(400) % 19 + 2)
        return [np.asarray(part) for update in range(3) for part in keras.tree.flatten(batches.batch(update))]
    return weights(chosen)


def weights(chosen):
    keras.utils.set_random_seed(1)
    model = chosen.model(Vocabulary.from_counts(WORDS))
    streams = chosen.parts["batching"] == "streams"
    model.compile(chosen.optimizer(), clip_parts=chosen.clip_parts(), stream_rows=2 if streams else None)
    tokens = np.random.default_rng(0).integers(4, 32, (2, 9))
    for update in range(2):
        inputs = (tokens[:, :-1], np.full(2, update == 0)) if streams else tokens[:, :-1]
        model.train_on_batch(inputs, tokens[:, 1:])
    return model.get_weights()


def differ(first, second):
    shapes = [array.shape for array in first] != [array.shape for array in second]
    return shapes or any(not np.array_equal(*pair) for pair in zip(first, second))


@functools.cache
def unchanged(role, part, changes):
    return outcome(role, experiment(role, part, *changes))


@pytest.mark.parametrize("role, part", [(role, part) for role in PARTS for part in PARTS[role]])
def test_the_same_experiment_has_the_same_outcome(role, part):
    assert not differ(unchanged(role, part, ()), outcome(role, experiment(role, part)))


@pytest.mark.parametrize("role, part, name", CASES)
def test_it_has_an_effect(role, part, name):
    if name == "average_after":  # counts validations, which these two updates do not have
        assert experiment(role, part, "--average_after=2").optimizer().patience == 2
        return
    if name == "max_bytes":  # only bounds the words
        with pytest.raises(ValueError, match="max_bytes"):
            outcome(role, experiment(role, part, "--max_bytes=3"))
        return
    more = WITH.get(name, [])
    changed = experiment(role, part, *more, f"--{name}={CHANGES[name]}")
    assert differ(unchanged(role, part, tuple(more)), outcome(role, changed)), name
