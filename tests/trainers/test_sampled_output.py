"""--output=sampled: its flags, its size, and a run that is trained and evaluated."""

import json

import keras
import numpy as np
import pytest

from keras_adaptive.backend.unallocated import unallocated
from keras_adaptive.data import Vocabulary, prepare
from keras_adaptive.layers import SampledSoftmax
from keras_adaptive.losses import NCE, ImportanceSampling
from keras_adaptive.models import read_language_model
from keras_adaptive.ops.chunks import default_chunk_rows
from tests.support.programs import call
from trainers import evaluate, train
from trainers.experiments import summary
from trainers.experiments.experiment import Experiment

pytestmark = pytest.mark.once

SIZES = ["--body=lstm", "--num_layers=1", "--dim=8", "--batching=streams", "--bptt=5", "--batch_size=4"]
SAMPLED = ["--input=word", "--output=sampled", "--num_samples=6"]


def test_the_settings_are_those_of_the_layer():
    vocabulary = Vocabulary.from_counts({f"w{i}": 40 - i for i in range(36)})
    chosen = [*SIZES, *SAMPLED, "--sampled_loss=nce", "--noise=unigram", "--use_bias", "--input_dropout=0.25"]
    model = Experiment.of_arguments(chosen).model(vocabulary)
    layer = model.word_output
    assert isinstance(layer, SampledSoftmax) and layer.tied_to is model.word_input
    assert (layer.num_samples, type(layer.loss), layer.input_dropout, layer.use_bias) == (6, NCE, 0.25, True)
    np.testing.assert_array_equal(layer.loss.counts, vocabulary.counts)
    untied = [*SIZES, *SAMPLED, "--notie_words", "--nouse_bias"]
    untied = Experiment.of_arguments(untied).model(vocabulary).word_output
    assert isinstance(untied.loss, ImportanceSampling)
    assert (untied.tied_to, untied.loss.counts, untied.bias) == (None, None, None)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--num_samples=41"], "--num_samples must be at most 40, the number of words. Received: --num_samples=41"),
        (["--num_samples=0"], "num_samples"),
        (["--noise=uniform"], "noise.*should be one of <log_uniform|unigram>"),
        (["--sampled_loss=softmax"], "sampled_loss.*should be one of <importance_sampling|nce>"),
        (["--noise=unigram"], "--noise=unigram needs the counts of the words, but the vocabulary has none"),
        (["--input=adaptive", "--cutoffs=5"], "--tie_words, the default, needs .* --input=word --output=sampled"),
        (["--cutoffs=5"], "--cutoffs belongs to --input=adaptive and --output=adaptive"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense(arguments, message):
    uncounted = Vocabulary(summary.stand_in(40).words, [0] * 40)
    with pytest.raises(ValueError, match=message):
        Experiment.of_arguments([*SIZES, *SAMPLED, *arguments]).model(uncounted)


def test_noise_belongs_to_the_sampled_output():
    with pytest.raises(ValueError, match=r"belongs to --output=sampled\|char_cnn. Received: --output=softmax"):
        Experiment.of_arguments(["--input=word", "--output=softmax", "--num_samples=6"])


def test_the_estimate_of_the_memory_counts_noise_and_rows():
    """With an optimizer that updates rows, gradients do not grow with the vocabulary."""
    found = {}
    for size in (100_000, 1_000_000):
        arguments = [*SIZES, *SAMPLED, "--num_samples=8192", "--noise=unigram", "--notie_words"]
        model = unallocated(lambda arguments=arguments, size=size: stood_in(arguments, size))
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
    model = unallocated(
        lambda: stood_in([*SIZES, "--input=word", "--notie_words", "--output=" + output[0], output[1]], 999)
    )
    assert model.word_output.logits_in_training(20) == logits  # chunks of 24 rows; seven letters and the end


def stood_in(arguments, size):
    return Experiment.of_arguments(arguments).model(summary.stand_in(size))


def test_a_run_is_trained_and_evaluated(tmp_path, capsys):
    """Validation is exact, so that the perplexity does not depend on the noise."""
    random = np.random.default_rng(1)
    for split in ("train", "valid", "test"):
        lines = [" ".join(f"w{r}" for r in row) for row in random.zipf(1.3, (30, 7)) % 40]
        (tmp_path / f"{split}.txt").write_text("\n".join(lines) + "\n")
    data = prepare(tmp_path, tmp_path / "corpus", min_count=1).data_dir
    chosen = [*SIZES, *SAMPLED, "--noise=unigram", "--use_bias", "--optimizer=adam", "--max_rate=0.01"]
    steps = ["--updates=8", "--evaluate_every=4", "--notensorboard"]
    call(train, *chosen, *steps, f"--data_dir={data}", f"--run_dir={tmp_path}/run")
    call(evaluate, f"--run_dir={tmp_path}/run")
    result = json.loads((tmp_path / "run" / "evaluation_valid.json").read_text())
    model = read_language_model(tmp_path / "run" / "best.keras")
    assert model.word_output.loss.counts.sum() > 200  # of the corpus, with the ends of lines
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    best = min(line["val_loss"] for line in log if "val_loss" in line)
    assert abs(np.log(result["perplexity"]) - best) < 0.01 and 1 < result["perplexity"] < 48


def test_counts_may_be_larger_than_the_file(tmp_path):
    """Numbers of a config may not, since they could be sizes."""
    words = Vocabulary.from_counts({f"w{i}": 10**13 - i for i in range(36)})
    model = Experiment.of_arguments([*SIZES, *SAMPLED, "--noise=unigram"]).model(words)
    model.save(tmp_path / "model.keras")
    loaded = read_language_model(tmp_path / "model.keras").word_output
    np.testing.assert_array_equal(loaded.loss.counts, words.counts)
