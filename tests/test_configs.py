"""Every file in configs/: the sizes of the papers, counted by the program without memory for the weights."""

from pathlib import Path

import pytest

from tests.support.programs import call
from trainers import train
from trainers.experiment import Experiment

CONFIGS = Path(__file__).parents[1] / "configs"
FLAGFILES = sorted(CONFIGS.rglob("*.flags"))
EXACT = {
    "wikitext103_sm": 476_758_016,
    "wikitext103_sm_t": 339_673_088,
    "wikitext103_bpe": 269_813_760,
    "wikitext103_bpe_t": 235_676_672,
    "wikitext103_asm": 263_086_080,
    "wikitext103_cnn": 266_343_808,
    "wikitext103_adp": 291_276_800,
    "wikitext103_adp_t": 246_933_504,
    "wikitext103_adp_t_3072": 246_933_504,
    "wikitext103_adp_t_published": 246_933_504,
    "wikitext103_awd_qrnn": 150_890_247,
    "wikitext103_awd_qrnn_window2": 153_890_247,
    "enwik8_awd_lstm": 47_254_928,
    "enwik8_awd_qrnn": 26_020_808,
}
OF_56_CHARACTERS = {"ptb_awd_lstm": 13_780_056, "ptb_awd_qrnn": 13_838_928}
MILLIONS = {
    "billion_word_bpe_t": 234.7,
    "billion_word_bpe": 267.8,
    "billion_word_asm": 532.8,
    "billion_word_cnn": 365.8,
    "billion_word_adp": 458.4,
    "billion_word_adp_t": 330.8,
    "billion_word_large": 465.1,
    "billion_word_very_large": 1026.2,
}
BILLIONS = {  # and the figures of the paper, which it rounds
    "billion_word_lstm_512": (0.816, 0.82),
    "billion_word_lstm_1024": (0.818, 0.82),
    "billion_word_lstm_2048": (0.823, 0.83),
    "billion_word_lstm_8192": (3.402, 3.3),
    "billion_word_lstm_8192_dropout": (3.402, 3.3),
    "billion_word_big_lstm": (1.777, 1.8),
    "billion_word_big_lstm_cnn": (1.036, 1.04),
    "billion_word_big_lstm_cnn_softmax": (0.295, 0.29),
    "billion_word_big_lstm_cnn_softmax_128": (0.396, 0.39),
    "billion_word_big_lstm_char_lstm": (0.232, 0.23),
}


def summary(capsys, *arguments):
    call(train, "--summary", *arguments)
    lines = (line.rsplit(maxsplit=1) for line in capsys.readouterr().out.split("\n\n")[0].splitlines())
    return {name.strip(): int(number.replace(",", "")) for name, number in lines}


PAPERS = [*EXACT, *OF_56_CHARACTERS, *MILLIONS, *BILLIONS]


@pytest.mark.parametrize("name", PAPERS)
def test_parameters_of_the_papers(name, capsys):
    size = ["--vocabulary_size=56"] if name in OF_56_CHARACTERS else []  # 51, special words, a multiple of 8
    counts = summary(capsys, f"--flagfile={CONFIGS}/{name}.flags", *size)
    assert sum(counts[part] for part in ("words in", "body", "words out")) == counts["all"]
    if name in MILLIONS:
        assert round(counts["all"] / 1e6, 1) == MILLIONS[name]
    elif name in BILLIONS:
        ours, published = BILLIONS[name]
        assert round(counts["all"] / 1e9, 3) == ours and abs(ours / published - 1) < 0.04
    else:
        assert counts["all"] == {**EXACT, **OF_56_CHARACTERS}[name]


@pytest.mark.parametrize("path", FLAGFILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_flagfile_says_only_what_its_parts_take(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # includes do not depend on the working directory
    Experiment.of_arguments([f"--flagfile={path}"])


@pytest.mark.parametrize("name", PAPERS)
def test_recipes_say_only_what_differs(name):
    lines = (CONFIGS / f"{name}.flags").read_text().splitlines()
    assert 2 <= sum(line.startswith("--") for line in lines) <= 8


@pytest.mark.parametrize("name, dim", [("sm", 64), ("asm", 8), ("cnn", 128), ("adp_t", 128)])
def test_systems_of_the_comparison_share_one_decoder(name, dim):
    chosen = Experiment.of_arguments([f"--flagfile={CONFIGS}/books_comparison/{name}.flags"])
    assert (chosen.settings["input_dim"] or chosen.settings["dim"]) == dim
    base = Experiment.of_arguments([f"--flagfile={CONFIGS}/parts/books_comparison.flags"])
    shared = {"dim", "num_blocks", "num_heads", "ffn_dim", "length", "batch_size", "max_rate", "updates", "dropout"}
    assert all(chosen.settings[setting] == base.settings[setting] for setting in shared)


def test_every_config_is_named_in_its_command_and_counted():
    for path in CONFIGS.glob("*_*.flags"):
        assert path.stem in {*PAPERS, "books_adaptive_tied", "books_awd_lstm", "books_awd_qrnn"}
        if path.stem != "books_adaptive_tied":
            assert f"--flagfile=configs/{path.name}" in path.read_text()


@pytest.mark.parametrize("options", [["--input=char_cnn", "--cutoffs=20,40"], ["--input=char_cnn", "--output=softmax"]])
def test_what_cannot_be_tied_is_refused(options):
    with pytest.raises(ValueError, match="--notie_words"):
        call(train, "--summary", "--vocabulary_size=100", "--tie_words", *options)
