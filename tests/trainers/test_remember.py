"""A memory of a run's text, and its evaluation with it, by the programs."""

import json

import numpy as np
import pytest

import keras_adaptive
from keras_adaptive.data import EOS, load_corpus
from keras_adaptive.layers import AdaptiveSoftmax, WordEmbedding
from keras_adaptive.memory import Memory
from keras_adaptive.models import LanguageModel, read_language_model, transformer_xl
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.runs import evaluated, scored
from tests.support.served import write_run
from tests.support.text import prepared, write_splits, write_zipf
from tests.support.tiny import language_model
from tests.support.weights import randomize
from trainers import evaluate, generate, prepare, remember, score
from trainers.experiments.word_losses import digest

LENGTH = 8
EXCEPT = ["--forbid=<unk>", "--forbid=</s>", "--forbid=<s>", "--forbid=<pad>"]
pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    corpus = prepared(write_zipf(tmp_path_factory.mktemp("text"), words=20))
    folder, flags = corpus.data_dir.parent, f"--data_dir={corpus.data_dir}\n--length={LENGTH}\n"
    return write_run(folder / "run", language_model(len(corpus.vocabulary)), corpus.vocabulary, flags=flags).path


@pytest.fixture(scope="module")
def memory(run_dir):
    path = run_dir.parent / "memory"
    call(remember, f"--run_dir={run_dir}", f"--memory={path}", "--neighbors=20")
    return path


def test_a_memory_of_the_training_text_is_tuned_on_valid_and_mixed_in(run_dir, memory, capsys):
    corpus = load_corpus(run_dir.parent / "corpus")
    opened = Memory.load(memory)
    assert len(opened) == len(corpus.tokens("train")) and opened.neighbors in (20, 5)
    before = evaluated(run_dir, split="valid")["loss"]
    result = evaluated(run_dir, f"--memory={memory}", split="valid")
    assert result["loss"] < before and result["memory"] == {"folder": str(memory), **opened.settings}
    assert f"Mixed with {memory}, {len(opened):,} keys: {opened.neighbors} neighbors" in capsys.readouterr().out

    model, ids = keras_adaptive.load(run_dir).model, np.asarray(corpus.tokens("valid"), "int32").reshape(-1, LENGTH)
    inputs = np.append(EOS, ids.ravel()[:-1]).reshape(ids.shape)
    nll, keys = model.nll_and_keys(inputs, ids)
    expected = opened.nll(keys.reshape(ids.size, -1), ids.ravel(), nll.ravel()).mean()
    found = evaluated(run_dir, f"--memory={memory}", "--context=0", split="valid")["loss"]
    assert found == pytest.approx(expected, rel=1e-5)


def test_neighbors_may_be_found_by_an_index(run_dir, memory, tmp_path):
    exact, folder = evaluated(run_dir, f"--memory={memory}")["loss"], tmp_path / "memory"
    for index in ("Flat", "IVF2,PQ4x2"):
        call(remember, f"--run_dir={run_dir}", f"--memory={folder}", "--neighbors=20", f"--index={index}")
        assert json.loads((folder / "memory.json").read_text())["index"]["kind"] == index
        loss = evaluated(run_dir, f"--memory={folder}")["loss"]
        assert (loss == pytest.approx(exact, rel=1e-5)) is (index == "Flat")
    call(remember, f"--run_dir={run_dir}", f"--memory={folder}", "--neighbors=20")
    assert not (folder / "index.faiss").exists()
    assert evaluated(run_dir, f"--memory={folder}")["loss"] == pytest.approx(exact, rel=1e-5)


def test_a_memory_of_the_text_that_is_read_is_refused_and_so_is_one_that_is_not_tuned(run_dir, tmp_path):
    own = "A memory must have another text than the one it is tuned or evaluated on"
    refused(remember, f"--run_dir={run_dir}", f"--memory={tmp_path}/new", "--split=valid", match=own)
    assert not (tmp_path / "new").exists()
    of_test = tmp_path / "test"
    call(remember, f"--run_dir={run_dir}", f"--memory={of_test}", "--split=test", "--neighbors=2")
    evaluated(run_dir, f"--memory={of_test}", split="valid")
    refused(evaluate, f"--run_dir={run_dir}", f"--memory={of_test}", "--split=test", match=own)
    facts = json.loads((of_test / "memory.json").read_text())
    del facts["settings"]
    (of_test / "memory.json").write_text(json.dumps(facts))
    refused(evaluate, f"--run_dir={run_dir}", f"--memory={of_test}", match="has not been tuned: run the command that")


def test_the_memory_of_another_corpus_is_tuned_on_its_valid_text(run_dir, tmp_path):
    """Where its train and valid texts are the same words again and again, which the run has not seen, it helps most."""
    line = " ".join(load_corpus(run_dir.parent / "corpus").vocabulary.words[4:12]) + "\n"
    folder = write_splits(tmp_path / "text", line * 40, valid=line * 9, test=line * 11)
    dictionary = f"--dictionary={run_dir.parent}/corpus/vocabulary.txt"
    call(prepare, f"--source={folder}", f"--data_dir={tmp_path}/other", dictionary, "--processes=1")
    arguments = [f"--run_dir={run_dir}", f"--data_dir={tmp_path}/other", f"--memory={tmp_path}/memory"]
    call(remember, *arguments, "--neighbors=8")
    assert Memory.load(tmp_path / "memory").share == 0.8


def test_score_and_generate_mix_the_memory(run_dir, memory, capsys):
    line = " ".join(keras_adaptive.load(run_dir).vocabulary.words[4:9]) + "\n"
    (plain,), (record,) = scored(run_dir, line), scored(run_dir, line, f"--memory={memory}")
    ids, lm = load_corpus(run_dir.parent / "corpus").vocabulary.encode(record["tokens"]), keras_adaptive.load(run_dir)
    inputs = np.append(EOS, ids)[None, :-1]
    nll, keys = lm.model.nll_and_keys(inputs, ids[None])
    expected = -Memory.load(memory).nll(keys[0], ids, nll[0])
    np.testing.assert_allclose(record["log_probs"], expected, atol=1e-4)
    assert np.abs(np.subtract(record["log_probs"], plain["log_probs"])).max() > 0.01
    best = max(lm.vocabulary.words[4:], key=lambda word: mixed_probability(lm, memory, word))
    capsys.readouterr()
    call(
        generate,
        f"--run_dir={run_dir}",
        f"--memory={memory}",
        "--length=1",
        "--temperature=0",
        "--forbid=<unk>",
        *EXCEPT,
    )
    assert capsys.readouterr().out.split()[0] == best


def mixed_probability(lm, memory, word):
    nll, keys = lm.model.nll_and_keys([[EOS]], lm.vocabulary.encode([word])[None])
    return -Memory.load(memory).nll(keys[0], lm.vocabulary.encode([word]), nll[0])[0]


def test_memories_of_other_runs_and_other_flags_are_refused(run_dir, memory, tmp_path):
    model = read_language_model(run_dir / "best.keras")
    vocabulary = load_corpus(run_dir.parent / "corpus").vocabulary
    model.word_output.class_table.assign(model.word_output.class_table.value * 2)
    flags = f"--data_dir={run_dir.parent}/corpus\n--length={LENGTH}\n"
    other = write_run(tmp_path / "other", model, vocabulary, flags=flags).path
    for arguments, match in (
        ([f"--run_dir={other}"], f"{memory} is the memory of another model: make one for this model"),
        (
            [f"--run_dir={run_dir}", "--cache=3"],
            "--cache, --memory, --dynamic exclude one another. Received: --cache=3 --memory",
        ),
        ([f"--run_dir={run_dir},{other}", f"--output={tmp_path}/new.json"], "--memory supports a single run"),
    ):
        refused(evaluate, *arguments, f"--memory={memory}", match=match)
    for program in (score, generate):
        refused(program, f"--run_dir={other}", f"--memory={memory}", match="is the memory of another model: make one")
    refused(remember, f"--run_dir={other}", f"--memory={memory}", match="memory of another model: pass a new folder")
    refused(
        remember,
        f"--run_dir={run_dir}",
        f"--memory={tmp_path}/new",
        "--neighbors=1000000",
        match="--neighbors must be at most",
    )
    assert not (tmp_path / "new").exists()
    facts = json.loads((memory / "memory.json").read_text())
    assert facts["settings"]["neighbors"] in (20, 5)


def test_the_memory_of_a_text_file_is_that_of_the_same_split(run_dir, memory, tmp_path):
    """A line ends with `</s>`, as in a corpus."""
    source = json.loads((run_dir.parent / "corpus" / "corpus.json").read_text())["source"]
    of_file = tmp_path / "memory"
    call(remember, f"--run_dir={run_dir}", f"--memory={of_file}", f"--split={source}/train.txt", "--neighbors=20")
    for (keys, ids), (expected, of_split) in zip(Memory.load(of_file).shards, Memory.load(memory).shards, strict=True):
        np.testing.assert_array_equal(ids, of_split)
        np.testing.assert_array_equal(keys, expected)
    (tmp_path / "empty.txt").touch()
    message = "must be a split of the corpus, or a text file with at least one line"
    for name, match in (("empty.txt", message), ("missing.txt", "missing.txt")):
        arguments = [f"--run_dir={run_dir}", f"--memory={tmp_path}/new", f"--split={tmp_path}/{name}"]
        refused(remember, *arguments, match=match)
    assert not (tmp_path / "new").exists()


def test_the_keys_of_streams_are_those_of_the_memory(run_dir, tmp_path):
    """A memory of the text itself, that is read as one stream, finds each of its words at a distance of 0."""
    vocabulary = load_corpus(run_dir.parent / "corpus").vocabulary
    body = transformer_xl(num_blocks=2, dim=8, ffn_dim=8, num_heads=2, memory_length=3)
    words, softmax = WordEmbedding(len(vocabulary), 8), AdaptiveSoftmax(len(vocabulary), ())
    flags = f"--data_dir={run_dir.parent}/corpus\n--batching=streams\n--bptt={10**5}\n"
    run = write_run(tmp_path / "run", randomize(LanguageModel(words, body, softmax)), vocabulary, flags=flags).path
    identity = {"model": digest(run / "best.keras"), "vocabulary": vocabulary.sha256, "text": "of valid"}
    text = load_corpus(run_dir.parent / "corpus").tokens("valid")
    Memory.build(tmp_path / "memory", read_language_model(run / "best.keras"), text, 10**5, 0, identity=identity)
    opened = Memory.load(tmp_path / "memory")
    opened.neighbors, opened.share = 1, 0.5
    opened.save_settings(tmp_path / "memory")
    plain, mixed = evaluated(run, split="valid"), evaluated(run, f"--memory={tmp_path}/memory", split="valid")
    assert mixed["loss"] < np.log(2) + 0.05 < plain["loss"]
