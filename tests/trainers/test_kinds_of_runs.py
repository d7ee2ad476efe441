"""Every kind of run by the programs: a text is prepared, trained on, evaluated, scored and continued."""

import functools
import math
import shutil
from typing import NamedTuple

import keras
import numpy as np
import pytest

from keras_adaptive.data import EOS, UNK, load_corpus
from keras_adaptive.data import prepare as prepare_text
from keras_adaptive.evaluation import lengths, state_grows, word_losses_of_streams
from tests.support.programs import call
from tests.support.quickstart import SHRUNK
from tests.support.refusals import refused
from tests.support.runs import evaluated, printed_scores, records, scored
from tests.support.text import write_splits
from trainers import evaluate, generate, prepare, train
from trainers.experiments.run_folder import RunFolder

pytestmark = [pytest.mark.usefixtures("models_read_once"), pytest.mark.once]

WORDS = ["the", "them", "there", "cat's", "don't", "naïve", "12", "...", "<unk>", "other", "mother"]
LINE = "the naïve  cat's "
BANDS = ["--input=word", "--output=adaptive", "--cutoffs=5,10", "--use_bias", "--dim=8", "--ffn_dim=8"]
STEPS = ["--length=8", "--batch_size=2", "--updates=4", "--evaluate_every=2", "--notensorboard"]
ADAM = ["--optimizer=adam", "--max_rate=1e-2", "--min_rate=0", "--warmup=1"]
CONTEXT = ["--num_local=2", "--num_global=2"]
SAMPLED = ["--body=lstm", "--num_layers=1", "--dim=8", "--input=word", "--output=sampled", "--num_samples=6"]
STREAMS = ["--batching=streams", "--bptt=5", "--batch_size=4", "--updates=8", "--evaluate_every=4", "--notensorboard"]
MEMORY = ["--memory_length=6", "--novary_bptt", "--num_blocks=2", "--num_heads=2", *BANDS, *STREAMS, *ADAM]


class Kind(NamedTuple):
    """What a run is made of."""

    preparation: list  # flags
    training: list  # flags
    line: str = "the them cat's"  # which is scored
    text: str = " the them cat's\n"  # of its tokens
    windows: tuple | None = (8, 0)  # of an evaluation: sizes of block and context; None carries a state


KINDS = {
    "sub-words": Kind(["--subwords=12", "--min_count=2"], SHRUNK, "don't <unk>  naïve 日", " don't <unk> naïve 日\n"),
    "characters": Kind(["--unit=characters"], [*SHRUNK, "--cutoffs=8"], LINE, f"{LINE}\n"),
    "bytes": Kind(["--unit=bytes"], [*SHRUNK, "--cutoffs=8"], LINE, f"{LINE}\n"),
    "hybrid": Kind(
        ["--min_count=1"],
        ["--body=hybrid", "--num_blocks=1", "--num_heads=2", "--attention_window=3", "--global_window=4"]
        + [*CONTEXT, *BANDS, *STEPS, *ADAM],
        windows=(2, 6),
    ),
    "nplm": Kind(
        ["--min_count=1"],
        ["--body=nplm", "--num_blocks=2", "--concatenation_dim=6", "--aggregate=average", "--global_window=3"]
        + [*CONTEXT, *BANDS, *STEPS, *ADAM],
        windows=(2, 6),
    ),
    "transformer_xl": Kind(["--min_count=1"], ["--body=transformer_xl", *MEMORY, "--nosame_length"], windows=None),
    "shortformer": Kind(["--min_count=1"], ["--body=shortformer", *MEMORY], windows=None),
    "sampled": Kind(
        ["--min_count=1"],
        [*SAMPLED, *STREAMS, "--noise=unigram", "--use_bias", "--optimizer=adam", "--max_rate=0.01"],
        windows=None,
    ),
}
every = pytest.mark.parametrize("kind", KINDS)
spelled = pytest.mark.parametrize("kind", ["characters", "bytes"])
in_pieces = pytest.mark.parametrize("kind", ["sub-words"])


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder with texts of frequent and rare words, and an unknown word and an empty line where it is held out."""
    random, shares = np.random.default_rng(2), 1 / np.arange(1, len(WORDS) + 1) ** 2
    lines = [" ".join(random.choice(WORDS, 7, p=shares / shares.sum())) + "\n" for _ in range(84)]
    held_out = {"valid": "".join(lines[60:72]) + "zebra\n\n", "test": "".join(lines[72:]) + "zebra\n\n"}
    return write_splits(tmp_path_factory.mktemp("text"), "".join(lines[:60]), **held_out)


@pytest.fixture(scope="module")
def made(text):
    """`made(kind)` prepares and trains a run of a kind, once."""

    @functools.cache
    def make(kind):
        folder, (preparation, training, *_) = text / kind, KINDS[kind]
        keras.utils.set_random_seed(1)
        call(prepare, f"--source={text}", f"--data_dir={folder}/data", "--processes=1", *preparation)
        call(train, *training, f"--data_dir={folder}/data", f"--run_dir={folder}/run")
        return RunFolder(folder / "run")

    return make


@pytest.fixture
def run(made, kind):
    return made(kind)


@pytest.fixture
def corpus(run):
    return load_corpus(run.path.parent / "data")


def total_nll(model, tokens, block, context):
    """The sum over all tokens, a block at a time, which sees the tokens of the context."""
    stream, losses = np.append(EOS, tokens), []
    for begin in range(0, len(tokens), block):
        start, stop = max(begin - context, 0), min(begin + block, len(tokens))
        losses.extend(model.nll(stream[None, start:stop], tokens[None, start:stop])[0, begin - start :])
    assert len(losses) == len(tokens)
    return np.sum(losses, dtype="float64")


@every
def test_the_same_command_resumes(run, kind, capsys):
    before = (run.path / "last.keras").read_bytes()
    call(train, *KINDS[kind].training, f"--data_dir={run.path.parent}/data", f"--run_dir={run.path}")
    assert f"Continuing {run.path}" in capsys.readouterr().out and (run.path / "last.keras").read_bytes() == before


@every
def test_an_evaluation_is_that_of_the_model_in_every_unit(run, corpus, kind, capsys):
    windows = KINDS[kind].windows
    flags = [f"--block={windows[0]}", f"--context={windows[1]}", "--batch_size=4"] if windows else []
    result, printed = evaluated(run.path, *flags), capsys.readouterr().out
    tokens = np.asarray(corpus.tokens("valid"), "int32")
    if windows:
        assert (result["blocks_of"], result["block"], result["context"]) == ("tokens", *windows)
    total = total_nll(run.model(), tokens, *windows or (len(tokens), 0))
    assert (result["tokens"], result["words"]) == (len(tokens), len(corpus.words("valid")))
    assert result["loss"] == pytest.approx(total / result["words"], rel=1e-5)
    assert result["perplexity"] == pytest.approx(math.exp(total / result["words"]), rel=1e-4)
    numbers, total = lengths(corpus, "valid"), result["loss"] * result["words"] / math.log(2)
    for name, number in numbers.items():
        assert result[f"bits_per_{name}"] == pytest.approx(total / number, rel=1e-9)
    expected = {"sub-words": "word (of sub-words)"}.get(kind, corpus.metadata["unit"])
    assert result["unit"] == expected and set(numbers) >= {"byte", "word"}
    if kind == "characters":
        assert result["bits_per_character"] == pytest.approx(result["loss"] / math.log(2), rel=1e-9)
    if kind in ("characters", "bytes"):
        assert set(numbers) == {"byte", "character", "word"}
        assert f"{result['bits_per_character']:.4f} per character" in printed
    if kind == "sub-words":
        assert result["words"] == 12 * 8 + 3 < len(tokens)
        counted = f"({result['loss']:.4f} nats): 99 words in {len(tokens)} tokens counted"
        assert f"per word (of sub-words) {counted}" in printed


@every
def test_scores_are_those_of_the_model(run, kind):
    """A body with attention reads windows of 8 tokens, 4 of them context; others read a whole line."""
    line, text = KINDS[kind].line, KINDS[kind].text
    record, blank = scored(run.path, f"{line}\n\n")
    assert (blank["tokens"], blank["words"], record["unknown"]) == (["</s>"], 1, [])
    assert "".join(run.codec.detokenize(record["tokens"])) == text
    assert record["words"] == (5 if kind == "sub-words" else len(record["tokens"])) <= len(record["tokens"])
    assert record["perplexity"] == pytest.approx(math.exp(-record["log_prob"] / record["words"]), rel=1e-9)
    model, ids = run.model(), run.codec.encode(record["tokens"])
    inputs, in_windows = np.append(EOS, ids[:-1]), state_grows(model.body)
    for place, id in enumerate(ids):
        start = max(place // 4 * 4 - 4, 0) if in_windows else 0
        log_probs = model.log_probs(inputs[None, start : place + 1])[0, -1]
        assert record["log_probs"][place] == pytest.approx(log_probs[id], abs=1e-5)


@every
def test_a_generated_text_is_joined_as_it_is_read(run, kind, capsys):
    prompt = "naïve  don't" if kind == "sub-words" else KINDS[kind].line
    call(generate, f"--run_dir={run.path}", f"--prompt={prompt}", "--length=30", "--seed=3")
    captured = capsys.readouterr()
    start = np.append(EOS, run.codec.encode(run.codec.tokenize(prompt)))[None]
    tokens = run.codec.decode([int(ids[0]) for ids in run.model().stream(start, 30, 1.0, None, 3, forbid=[UNK])])
    assert captured.out == prompt + "".join(run.codec.detokenize(tokens)) + "\n"
    assert captured.err == "" and "Ġ" not in captured.out


# --- sub-words ---


@in_pieces
def test_the_words_of_sub_words_are_binned_as_those_of_a_run_of_words(run, text, kind):
    result = evaluated(run.path, "--block=8")
    words = prepare_text(text, text / "words", min_count=2)
    counts = words.vocabulary.counts[words.tokens("valid")]
    ranges = ((1, 10), (10, 100), (100, 1000))
    expected = [(low, int(((counts >= low) & (counts < high)).sum())) for low, high in ranges]
    assert [(one["low"], one["tokens"]) for one in result["by_frequency"]] == expected
    assert sum(one["tokens"] for one in result["by_frequency"]) == len(counts)
    total = sum(one["tokens"] * one["nll"] for one in result["by_frequency"])
    assert total == pytest.approx(result["loss"] * len(counts), rel=1e-9)


@in_pieces
def test_context_windows_score_the_same_words(run, kind):
    blocks, lines = evaluated(run.path, "--block=8"), evaluated(run.path, "--blocks_of=lines", "--context=6")
    assert [blocks[name] for name in ("words", "tokens")] == [lines[name] for name in ("words", "tokens")]
    assert blocks["loss"] != lines["loss"]


@in_pieces
def test_a_table_counts_words_and_pieces(run, kind):
    line = KINDS[kind].line
    (record,) = scored(run.path, line)
    counts = f"5 words in {len(record['tokens'])} tokens, perplexity {record['perplexity']:.2f}"
    assert counts in "\n".join(printed_scores(run.path, line))


@in_pieces
def test_other_merges_are_refused(run, text, tmp_path, kind):
    for subwords in (0, 11):
        prepare_text(text, tmp_path / f"{subwords}", subwords=subwords)
        flags = [f"--run_dir={run.path}", f"--data_dir={tmp_path}/{subwords}"]
        refused(evaluate, *flags, match=f"has other sub-words than .*/{subwords}")
    refused(train, *SHRUNK, *flags, match="has other sub-words than .*/11")
    run_dir = shutil.copytree(run.path, tmp_path / "run")
    merges = (run_dir / "merges.txt").read_text(encoding="utf-8").splitlines()
    (run_dir / "merges.txt").write_text("\n".join(merges[:-1]) + "\n", encoding="utf-8")
    refused(generate, f"--run_dir={run_dir}", match="merges.txt holds the merges of another corpus")


# --- characters and bytes ---


@spelled
def test_the_mark_of_editors_is_text_in_bytes_only(run, kind):
    texts = ["".join(run.codec.detokenize(one["tokens"])) for one in scored(run.path, "\ufeffthe\n\ufeff\n")]
    assert texts == ["\ufeffthe\n" if run.codec.keeps_mark else "the\n", "\ufeff\n"]  # no mark amid a text
    assert run.codec.keeps_mark == (kind == "bytes")


@spelled
def test_unknown_letters_and_spaces_are_printed_in_quotes(run, kind, capsys):
    call(generate, f"--run_dir={run.path}", "--prompt=cq\t", "--length=1")
    first, second = ("b'q'", r"b'\t'") if kind == "bytes" else ("'q'", r"'\t'")
    assert capsys.readouterr().err == f"Not in the vocabulary, read as <unk>: {first} {second}\n"
    lines = printed_scores(run.path, "cq\t\n")
    unknown = [f"{token}  (scored as <unk>)" for token in (first, second)]
    assert [line.split(maxsplit=3)[3] for line in lines[1:4]] == [*unknown, "</s>"]


# --- a sampled output ---


@pytest.mark.parametrize("kind", ["sampled"])
def test_the_validation_of_a_sampled_output_is_exact(run, corpus, kind):
    """So that the perplexity does not depend on the noise."""
    assert run.model().word_output.loss.counts.sum() > 200  # of the corpus, with the ends of lines
    best = min(record["val_loss"] for record in records(run.path) if "val_loss" in record)
    nll, _ = word_losses_of_streams(run.model(), corpus, "valid", 5, 4)
    assert nll.mean() == pytest.approx(best, rel=1e-5) and 1 < np.exp(nll.mean()) < 48
