"""What a run folder refuses: other texts, and files that have changed or are not ours."""

import json

import keras
import numpy as np
import pytest

from keras_adaptive.data import TextCodec
from keras_adaptive.files import write_json
from tests.support.refusals import refused
from tests.support.text import prepared
from tests.support.tiny import language_model
from trainers import train
from trainers.experiments.experiment import Experiment
from trainers.experiments.run_folder import RunFolder

pytestmark = pytest.mark.once


@pytest.fixture
def corpus(tmp_path):
    return prepared(tmp_path / "text", "the cat saw the cat\n")


@pytest.fixture
def experiment(corpus):
    return Experiment.of_arguments(["--cutoffs=4", f"--data_dir={corpus.data_dir}"])


@pytest.fixture
def run(tmp_path, experiment, corpus):
    folder = RunFolder(tmp_path / "run")
    with folder.claimed(experiment, corpus):
        return folder


def test_another_text_of_the_same_words_is_refused(run, experiment, corpus, tmp_path):
    other = prepared(tmp_path / "other", "the the cat cat saw\n")
    assert other.vocabulary.sha256 == corpus.vocabulary.sha256
    files = {path.name: path.read_bytes() for path in run.path.iterdir()}
    with pytest.raises(ValueError, match="has another train text than .*/other/corpus, which has 6 tokens"):
        with run.claimed(experiment, other):
            pass
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == files


def test_a_corpus_may_move(run, experiment, corpus, tmp_path):
    moved = corpus.data_dir.rename(tmp_path / "moved")
    with RunFolder(run.path).claimed(experiment, type(corpus)(moved)):
        pass


def test_a_vocabulary_that_has_changed_is_refused(run):
    assert len(run.codec.vocabulary) == 8
    path = run.path / "vocabulary.txt"
    path.write_text(path.read_text(encoding="utf-8").replace("cat", "dog"), encoding="utf-8")
    refused(TextCodec.load, run.path, match="vocabulary.txt is not the vocabulary of this run any more")


def test_former_names_of_flags_are_read(run):
    flags = run.flags()
    with open(run.path / "flags.txt", "a", encoding="utf-8") as file:
        file.write("--relu_dropout=0.5\n")
    assert run.flags() == {**flags, "activation_dropout": "0.5"}


@pytest.mark.parametrize(
    "line", ["", "length", "--length", "length=8", "--=8", "-- length=8", "# a comment", "\0" * 90]
)
def test_a_line_of_flags_that_is_no_flag_is_named(run, line):
    with open(run.path / "flags.txt", "a", encoding="utf-8") as file:
        file.write(line + "\n")
    refused(run.flags, match="flags.txt must hold --NAME=VALUE lines only. Received: ")


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e30, -2e19])  # the last two have no square
def test_a_model_that_is_not_finite_is_refused(run, bad):
    model = language_model(vocabulary_size=8)
    model.save(run.path / "best.keras")
    assert run.model().vocabulary_size == 8
    table = np.array(keras.ops.convert_to_numpy(model.word_input.tables[0].value))
    table[0, 0] = bad
    model.word_input.tables[0].assign(table)
    model.save(run.path / "best.keras")
    refused(run.model, match="weight .*table_0 in .*best.keras is not finite")


@pytest.mark.parametrize("losses", [[1e6], [None, 800.0], [None]])
def test_a_training_without_a_good_validation_ends_in_an_error(run, experiment, losses):
    """A perplexity beyond all numbers, or no validation that was finite."""
    (run.path / "log.jsonl").write_text("".join(json.dumps({"val_loss": one}) + "\n" for one in losses))
    diverged = "Trained 1000 updates, and the best validation loss is .* diverged"
    refused(train.print_result, experiment, run, match=diverged, error=FloatingPointError)


def test_the_description_of_the_corpus_is_checked(run):
    path = run.path / "corpus.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer": "bert"}))
    match = "`tokenizer` of .*run/corpus.json must be one of .* Received: 'bert'"
    refused(TextCodec.load, run.path, match=match)


def test_results_hold_null_in_place_of_numbers_that_are_not_finite(tmp_path):
    value = {"loss": float("nan"), "rows": [(1, float("inf"))], "name": "inf", "tokens": 2, "rate": 0.5}
    write_json(tmp_path / "result.json", value)
    text = (tmp_path / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {**value, "loss": None, "rows": [[1, None]]}
