"""Every file in configs/: the sizes of the papers, counted by the program without memory for the weights."""

import functools
import re
from pathlib import Path

import pytest

from tests.support.programs import call, parsed
from tests.support.refusals import refused
from trainers import train
from trainers.experiments import checks
from trainers.experiments.experiment import Experiment
from trainers.experiments.summary import stand_in

pytestmark = pytest.mark.once

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
    "wikitext103_alibi": 246_933_504,
    "wikitext103_staged": 246_933_504,
    "wikitext103_shortformer": 246_933_504,
    "wikitext103_awd_qrnn": 150_890_247,
    "wikitext103_awd_qrnn_window2": 153_890_247,
    "enwik8_awd_lstm": 47_254_928,
    "enwik8_awd_qrnn": 26_020_808,
    "wikitext2_nplm": 13_304_128,
    "wikitext2_transformer": 13_252_096,
    "wikitext2_transformer_c": 13_252_096,
    "wikitext2_transformer_n": 13_646_586,
    "lambada_nplm": 115_233_152,
    "lambada_transformer": 114_716_672,
    "lambada_transformer_c": 114_716_672,
    "lambada_transformer_n": 116_291_578,
    "enwik8_nplm": 38_275_368,
    "enwik8_transformer": 37_910_528,
    "enwik8_transformer_c": 37_910_528,
    "enwik8_transformer_n": 39_485_946,
}
COPIES = 4 * 5 * 496  # of the kernels of an NPLM, which the published program counts and never uses
OF_A_SIZE = {  # (number of ids, parameters)
    "ptb_awd_lstm": (56, 13_780_056),  # 51, special words, a multiple of 8
    "ptb_awd_qrnn": (56, 13_838_928),
    "wikitext103_nplm": (267_736, 148_850_809 - COPIES),
    "wikitext103_nplm_published": (267_736, 139_296_309 - COPIES),
    "wikitext103_transformer_xl": (267_735, 151_107_538),
    "wikitext103_transformer_xl_large": (267_735, 285_170_506),
    "wikitext103_transformer": (267_736, 148_417_529),
    "wikitext103_transformer_c": (267_736, 148_417_529),
    "wikitext103_transformer_n": (267_736, 149_427_865),
}
MILLIONS = {
    "billion_word_bpe_t": 234.7,
    "billion_word_bpe": 267.8,
    "billion_word_asm": 532.8,
    "billion_word_cnn": 365.8,
    "billion_word_adp": 458.4,
    "billion_word_adp_t": 330.8,
    "billion_word_adp_t_64_gpus": 330.8,
    "billion_word_cnn_64_gpus": 365.8,
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


@pytest.fixture(scope="module", autouse=True)
def made_once():
    """Recipes of one corpus share the vocabulary that stands in for its own, of up to 800,000 words."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trainers.experiments.summary.stand_in", functools.lru_cache(maxsize=1)(stand_in))
        yield


def summary(capsys, *arguments):
    call(train, "--summary", *arguments)
    lines = (line.rsplit(maxsplit=1) for line in capsys.readouterr().out.split("\n\n")[0].splitlines())
    return {name.strip(): int(number.replace(",", "")) for name, number in lines}


PAPERS = [*EXACT, *OF_A_SIZE, *MILLIONS, *BILLIONS]


@pytest.mark.parametrize("name", PAPERS)
def test_parameters_of_the_papers(name, capsys):
    size = [f"--vocabulary_size={OF_A_SIZE[name][0]}"] if name in OF_A_SIZE else []
    counts = summary(capsys, f"--flagfile={CONFIGS}/{name}.flags", *size)
    assert sum(counts[part] for part in ("input", "body", "output")) == counts["all"]
    if name in MILLIONS:
        assert round(counts["all"] / 1e6, 1) == MILLIONS[name]
    elif name in BILLIONS:
        ours, published = BILLIONS[name]
        assert round(counts["all"] / 1e9, 3) == ours and abs(ours / published - 1) < 0.04
    else:
        assert counts["all"] == (OF_A_SIZE[name][1] if name in OF_A_SIZE else EXACT[name])


def test_the_documentation_states_these_parameters():
    page = (CONFIGS.parent / "docs" / "papers.md").read_text(encoding="utf-8")
    stated = {int(number.replace(",", "")) for number in re.findall(r"\d{2,3},\d{3},\d{3}", page)}
    assert len(stated) == 16 and stated <= {*EXACT.values(), *(parameters for _, parameters in OF_A_SIZE.values())}


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
    assert (chosen.settings["embedding_dim"] or chosen.settings["dim"]) == dim
    base = Experiment.of_arguments([f"--flagfile={CONFIGS}/parts/books_comparison.flags"])
    shared = {"dim", "num_blocks", "num_heads", "ffn_dim", "length", "batch_size", "max_rate", "updates", "dropout"}
    assert all(chosen.settings[setting] == base.settings[setting] for setting in shared)


SUN_IYYER = [path for path in FLAGFILES if "Sun and Iyyer" in path.read_text() and path.parent == CONFIGS]


def test_recipes_of_sun_and_iyyer_score_the_end_of_windows_of_the_length_of_training():
    assert len(SUN_IYYER) == 17
    for path in SUN_IYYER:
        settings = Experiment.of_arguments([f"--flagfile={path}"]).settings
        block, context = map(int, re.search(r"--block=(\d+) --context=(\d+)", path.read_text()).groups())
        assert block + context == settings["length"] and block == (512 if "enwik8" in path.stem else 128)
        assert (settings["min_rate"], settings["period"], settings["period_mult"]) == (0, 0, 1)  # one cycle


SIMILAR = sorted([*CONFIGS.glob("books_hybrids/*.flags"), *CONFIGS.glob("books_context/nplm_*.flags")])


@pytest.mark.parametrize("path", SIMILAR, ids=lambda path: path.stem)
def test_hybrids_on_books_have_like_sizes_and_one_training(path, capsys):
    assert len(SIMILAR) == 10
    plain = Experiment.of_arguments([f"--flagfile={CONFIGS}/books_hybrids/transformer.flags"]).settings
    settings = Experiment.of_arguments([f"--flagfile={path}"]).settings
    shared = {"dim", "num_blocks", "ffn_dim", "length", "batch_size", "warmup", "updates", "dropout"}
    assert all(settings[name] == plain[name] for name in shared)
    # The best of 5e-4, 1e-3, 2e-3, 3e-3, 4e-3 and 6e-3 for each, as far as they were tried.
    assert settings["max_rate"] == (4e-3 if "nplm" in path.stem else 1e-3 if "_n" in path.stem else 2e-3)
    counts = summary(capsys, f"--flagfile={path}", "--vocabulary_size=49456")
    assert 7.4e6 < counts["all"] < 7.9e6


OF_BOOKS = [path for path in FLAGFILES if path.parent.name.startswith("books_")]


@pytest.mark.parametrize("path", OF_BOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_parts_of_a_recipe_on_books_fit_together(path, capsys):
    assert summary(capsys, f"--flagfile={path}", "--vocabulary_size=49456")["all"] < 30e6


def test_short_contexts_on_books_have_updates_of_as_many_tokens():
    files = sorted(CONFIGS.glob("books_context/transformer_*.flags"))
    assert len(files) == 5
    for path in files:
        settings = Experiment.of_arguments([f"--flagfile={path}"]).settings
        assert settings["length"] == int(path.stem.split("_")[1])
        assert abs(settings["length"] * settings["batch_size"] - 2048) <= 8


def test_every_config_is_named_in_its_command_and_counted():
    for path in CONFIGS.glob("*_*.flags"):
        assert path.stem in {*PAPERS, "books_adaptive_tied", "books_awd_lstm", "books_awd_qrnn", "books_best"}
        if path.stem != "books_adaptive_tied":
            assert f"--flagfile=configs/{path.name}" in path.read_text()


@pytest.mark.parametrize("options", [["--input=char_cnn", "--cutoffs=20,40"], ["--input=char_cnn", "--output=softmax"]])
def test_what_cannot_be_tied_is_refused(options):
    refused(train, "--summary", "--vocabulary_size=100", "--tie_words", *options, match="--notie_words")


@pytest.mark.parametrize("flagfile", FLAGFILES, ids=lambda path: path.stem)
def test_every_recipe_can_be_tried_for_a_few_updates(flagfile, tmp_path, capsys):
    if "parts" in flagfile.parts or "systems" in flagfile.parts:
        return
    with parsed(train, f"--flagfile={flagfile}", "--updates=20", "--notensorboard", f"--run_dir={tmp_path}"):
        chosen = Experiment.of_flags()
        assert not checks.check_flags(chosen)
    assert "A trial: --updates=20 is below --evaluate_every=" in capsys.readouterr().out
    assert chosen.evaluate_every == 20 and 0 < chosen.schedule()(19) <= chosen.settings["max_rate"]
