"""Training, evaluation in context windows and generation of NPLM and the hybrids, by the programs."""

import json

import numpy as np
import pytest

from keras_adaptive.data import EOS, load_corpus, prepare
from tests.support.programs import call
from tests.support.text import write_zipf
from trainers import evaluate, generate, train
from trainers.experiments.experiment import Experiment
from trainers.experiments.run_folder import RunFolder
from trainers.experiments.summary import stand_in

pytestmark = pytest.mark.once

WORDS = ["--input=word", "--output=adaptive", "--cutoffs=10,20", "--use_bias", "--dim=8", "--ffn_dim=8"]
TRAINING = ["--length=8", "--batch_size=2", "--updates=4", "--evaluate_every=2", "--notensorboard"]
ADAM = ["--optimizer=adam", "--max_rate=1e-2", "--min_rate=0", "--warmup=1"]
CONTEXT = ["--num_local=2", "--num_global=2"]
BODIES = {
    "hybrid": ["--num_blocks=1", "--num_heads=2", "--attention_window=3", *CONTEXT, "--global_window=4"],
    "nplm": ["--num_blocks=2", "--concatenation_dim=6", "--aggregate=average", *CONTEXT, "--global_window=3"],
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = write_zipf(tmp_path_factory.mktemp("text"), words=30, lengths=(20, 5, 5))
    return prepare(folder, folder / "corpus", min_count=1).data_dir


@pytest.mark.parametrize("body", BODIES)
def test_a_run_is_trained_evaluated_and_continued(body, corpus, tmp_path, capsys):
    run = tmp_path / "run"
    call(train, f"--body={body}", *BODIES[body], *WORDS, *TRAINING, *ADAM, f"--data_dir={corpus}", f"--run_dir={run}")
    call(evaluate, f"--run_dir={run}", "--split=test", "--block=2", "--context=6", "--batch_size=4")
    result = json.loads((run / "evaluation_test.json").read_text())
    assert (result["blocks_of"], result["block"], result["context"]) == ("tokens", 2, 6)
    model, tokens = RunFolder(run).model("best"), np.asarray(load_corpus(corpus).tokens("test"), "int32")
    stream, losses = np.append(EOS, tokens), []
    for begin in range(0, len(tokens), 2):  # the last 2 of each 8
        start, stop = max(begin - 6, 0), min(begin + 2, len(tokens))
        nll = model.nll(stream[None, start:stop], tokens[None, start:stop])
        losses.extend(nll[0, begin - start :])
    assert result["loss"] == pytest.approx(np.mean(losses), rel=1e-5) and len(losses) == result["tokens"]
    capsys.readouterr()
    call(generate, f"--run_dir={run}", "--prompt=w1 w2", "--length=3", "--seed=1")
    assert capsys.readouterr().out.startswith("w1 w2 ")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--body=nplm"], "`num_local` must be at least 1, .* Received: num_local=0"),
        (["--body=nplm", "--num_local=9"], r"--num_local makes the first layer see 9 tokens, .* --length=8"),
        (["--body=hybrid", "--num_heads=2", "--attention_window=9"], "--attention_window makes the first layer see 9"),
        (
            ["--body=nplm", "--num_local=2", "--num_global=1", "--global_window=7"],
            "--global_window makes the first layer see 9 tokens, .* Received: --global_window=7 --length=8",
        ),
        (
            ["--body=nplm", "--aggregate=average", *CONTEXT, "--global_window=4"],
            "--global_window makes the first layer see 10 tokens",
        ),
        (["--body=nplm", "--num_local=2", "--num_global=1"], "global_window"),
        (["--body=nplm", "--num_local=2", "--global_window=3"], "num_global"),
        (["--body=hybrid", "--num_heads=2", "--num_global=1"], "pass a `num_local` of at least 1"),
    ],
)
def test_windows_that_make_no_sense_are_refused_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message) as raised:
        Experiment.of_arguments([*WORDS, "--length=8", *arguments]).model(stand_in(40))
    assert len(str(raised.value).splitlines()) == 1
