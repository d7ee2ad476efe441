"""Flags of sampled outputs, of outputs of characters, of bodies with windows, and of trials of a recipe."""

import keras
import numpy as np
import pytest

from keras_adaptive.backend.unallocated import unallocated
from keras_adaptive.data import Vocabulary
from keras_adaptive.layers import CharCNNSoftmax, CharLSTMSoftmax, SampledSoftmax
from keras_adaptive.losses import NCE, ImportanceSampling
from keras_adaptive.models import read_language_model
from keras_adaptive.ops.chunks import default_chunk_rows
from tests.support.refusals import refused
from trainers.experiments import summary
from trainers.experiments.experiment import Experiment

pytestmark = pytest.mark.once

SIZES = ["--body=lstm", "--num_layers=1", "--dim=8", "--batching=streams", "--bptt=5", "--batch_size=4"]
SAMPLED = [*SIZES, "--input=word", "--output=sampled", "--num_samples=6"]
TINY = ["--dim=16", "--num_heads=2", "--ffn_dim=32", "--num_blocks=1"]
WORDS = ["--input=word", "--output=adaptive", "--cutoffs=10,20", "--dim=8", "--ffn_dim=8", "--length=8"]
NPLM = [*WORDS, "--body=nplm"]
HYBRID = [*WORDS, "--body=hybrid", "--num_heads=2"]
UNCOUNTED = Vocabulary(summary.stand_in(40).words, [0] * 40)


def make(arguments, words=40):
    """Returns the model of some flags, for a vocabulary or a number of words."""
    return Experiment.of_arguments(arguments).model(summary.stand_in(words) if isinstance(words, int) else words)


def test_a_sampled_output_has_the_settings_of_the_layer():
    vocabulary = Vocabulary.from_counts({f"w{i}": 40 - i for i in range(36)})
    chosen = [*SAMPLED, "--sampled_loss=nce", "--noise=unigram", "--use_bias", "--input_dropout=0.25"]
    model = make(chosen, vocabulary)
    layer = model.word_output
    assert isinstance(layer, SampledSoftmax) and layer.tied_to is model.word_input
    assert (layer.num_samples, type(layer.loss), layer.input_dropout, layer.use_bias) == (6, NCE, 0.25, True)
    np.testing.assert_array_equal(layer.loss.counts, vocabulary.counts)
    untied = make([*SAMPLED, "--notie_words", "--nouse_bias"], vocabulary).word_output
    assert isinstance(untied.loss, ImportanceSampling)
    assert (untied.tied_to, untied.loss.counts, untied.bias) == (None, None, None)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([*SAMPLED, "--num_samples=41"], "--num_samples must be at most 40, the number of words. .*--num_samples=41"),
        ([*SAMPLED, "--num_samples=0"], "num_samples"),
        ([*SAMPLED, "--noise=uniform"], "noise.*should be one of <log_uniform|unigram>"),
        ([*SAMPLED, "--sampled_loss=softmax"], "sampled_loss.*should be one of <importance_sampling|nce>"),
        ([*SAMPLED, "--noise=unigram"], "--noise=unigram needs the counts of the words, but the vocabulary has none"),
        ([*SAMPLED, "--input=adaptive", "--cutoffs=5"], "--tie_words, the default, needs .*=word --output=sampled"),
        ([*SAMPLED, "--cutoffs=5"], "--cutoffs belongs to --input=adaptive and --output=adaptive"),
        (["--input=word", "--output=softmax", "--num_samples=6"], r"belongs to --output=sampled\|char_cnn. .*softmax"),
        (NPLM, "`num_local` must be at least 1, .* Received: num_local=0"),
        ([*NPLM, "--num_local=9"], r"--num_local makes the first layer see 9 tokens, .* --length=8"),
        ([*HYBRID, "--attention_window=9"], "--attention_window makes the first layer see 9"),
        (
            [*NPLM, "--num_local=2", "--num_global=1", "--global_window=7"],
            "--global_window makes the first layer see 9 tokens, .* Received: --global_window=7 --length=8",
        ),
        (
            [*NPLM, "--aggregate=average", "--num_local=2", "--num_global=2", "--global_window=4"],
            "--global_window makes the first layer see 10 tokens",
        ),
        ([*NPLM, "--num_local=2", "--num_global=1"], "global_window"),
        ([*NPLM, "--num_local=2", "--global_window=3"], "num_global"),
        ([*HYBRID, "--num_global=1"], "pass a `num_local` of at least 1"),
        ([*TINY, "--input=char_cnn", "--output=char_cnn"], "pass --notie_words. .*=char_cnn --output=char_cnn"),
        ([*TINY, "--input=word", "--output=char_lstm"], "pass --notie_words. .*=word --output=char_lstm"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(arguments, message):
    refused(make, arguments, UNCOUNTED, match=message)


def test_the_estimate_of_the_memory_counts_noise_and_rows():
    """With an optimizer that updates rows, gradients do not grow with the vocabulary."""
    found = {}
    for size in (100_000, 1_000_000):
        arguments = [*SAMPLED, "--num_samples=8192", "--noise=unigram", "--notie_words"]
        model = unallocated(lambda arguments=arguments, size=size: make(arguments, size))
        for optimizer in (keras.optimizers.Adagrad(), keras.optimizers.Adam()):
            found[size, type(optimizer).__name__] = summary.memory(model, optimizer, 20, 5, micro_batches=1)
    assert model.word_output.logits_in_training(20) == 8192 * default_chunk_rows(20, 8192, 8)
    assert found[1_000_000, "Adagrad"]["logits of a chunk"] == found[100_000, "Adagrad"]["logits of a chunk"]
    dense = [found[size, "Adam"]["gradients"] for size in (100_000, 1_000_000)]
    by_rows = {found[size, "Adagrad"]["gradients"] for size in (100_000, 1_000_000)}
    assert dense[1] > 9 * dense[0] > 9 * by_rows.pop() and not by_rows


@pytest.mark.parametrize(
    "output, logits", [(["char_cnn", "--num_samples=6"], 6 * 24), (["char_lstm", "--char_dim=4"], 20 * 8 * 261)]
)
def test_the_logits_of_outputs_that_write_characters_are_counted(output, logits):
    arguments = [*SIZES, "--input=word", "--notie_words", f"--output={output[0]}", output[1]]
    model = unallocated(lambda: make(arguments, 999))
    assert model.word_output.logits_in_training(20) == logits  # chunks of 24 rows; seven letters and the end


def test_counts_may_be_larger_than_the_file(tmp_path):
    """Numbers of a config may not, since they could be sizes."""
    words = Vocabulary.from_counts({f"w{i}": 10**13 - i for i in range(36)})
    make([*SAMPLED, "--noise=unigram"], words).save(tmp_path / "model.keras")
    loaded = read_language_model(tmp_path / "model.keras").word_output
    np.testing.assert_array_equal(loaded.loss.counts, words.counts)


def test_outputs_of_characters_are_those_of_the_settings():
    """One flag means the same for input and output."""
    sizes = [*TINY, "--output_dim=8", "--char_dim=3", "--notie_words"]
    cnn = ["--input=char_cnn", "--output=char_cnn", "--filters=2,3", "--num_samples=5", "--correction_dim=2"]
    model = make([*sizes, *cnn, "--sampled_loss=nce", "--word_markers"])
    output = model.word_output
    assert isinstance(output, CharCNNSoftmax) and output.num_samples == 5 and output.corrections.shape == (40, 2)
    assert output.char_cnn.table.shape == model.word_input.table.shape == (259, 3)
    assert isinstance(output.loss, NCE) and output.char_cnn.output_dim == 8 and output.char_cnn.filters == (2, 3)
    assert summary.parameters(model)["output"] == output.count_params()
    output = make([*sizes, "--input=word", "--output=char_lstm", "--output_units=4"]).word_output
    assert isinstance(output, CharLSTMSoftmax) and output.kernel.shape == (8 + 3, 16)


def test_a_trial_may_end_in_the_warm_up():
    """The first updates of the recipe, whose rates do not change."""
    whole, trial = ([f"--updates={updates}", "--warmup=10", "--period=9"] for updates in (100, 6))
    rates = [Experiment.of_arguments(arguments).schedule() for arguments in (whole, trial)]
    assert [rates[1](update) for update in range(6)] == [rates[0](update) for update in range(6)]
    trial, longer = (Experiment.of_arguments([*trial, f"--updates={updates}"]) for updates in (6, 100))
    assert (trial.is_trial, trial.evaluate_every, longer.is_trial, longer.evaluate_every) == (True, 6, False, 100)
    assert not longer.lengthens(trial)


@pytest.mark.parametrize("given, expected", [("auto", [2, 7]), ("20,4000", [2, 7]), ("40", [2, 7]), ("5,39", [5, 39])])
def test_cutoffs_that_do_not_fit_are_the_best_ones(monkeypatch, given, expected):
    vocabulary, received = summary.stand_in(40), []

    def best(counts, dim, **kwargs):
        received.append((len(counts), dim, kwargs))
        return 2, 7

    monkeypatch.setattr("trainers.experiments.experiment.best_cutoffs", best)
    chosen = Experiment.of_arguments([*TINY, f"--cutoffs={given}", "--embedding_dim=32"])
    assert chosen.fitted(vocabulary).settings == {**chosen.settings, "cutoffs": expected}
    assert (chosen.fitted(vocabulary) is chosen) == (given == "5,39") == (not received)
    assert all(each == (40, 16, {"input_dim": 32, "factor": 4}) for each in received)
    assert f"--cutoffs={','.join(map(str, expected))}\n" in chosen.fitted(vocabulary).flags_text()


def test_a_model_of_the_best_cutoffs():
    chosen = Experiment.of_arguments([*TINY, "--cutoffs=auto", "--input=word"])
    fitted = chosen.fitted(summary.stand_in(40))
    assert chosen.model(summary.stand_in(40)).word_output.cutoffs == tuple(fitted.settings["cutoffs"])
    assert Experiment.of_arguments(["--cutoffs=auto"]).flags_text().count("--cutoffs=auto\n") == 1
