"""Every recipe of a paper against the tables of the paper, which are written here as the papers print them.

A recipe that differs from its table says so in a comment, which `DIFFERENT` repeats.
"""

from pathlib import Path

import pytest

from trainers.experiments.experiment import Experiment

pytestmark = pytest.mark.once

CONFIGS = Path(__file__).parents[1] / "configs"

# Merity et al. 2018, table 6. Its columns are the LSTM of PTB, the LSTM of enwik8 and the QRNN of WikiText-103.
MERITY = {
    # layers, units, AR/TAR, dropout e/h/i/o, weight drop, weight decay, BPTT, batch, vectors, rate, epochs, ÷ 10 at
    "ptb": (3, 1000, (0, 0), (0, 0.25, 0.1, 0.1), 0.5, 1.2e-6, 150, 128, 128, 0.002, 500, (300, 400)),
    "enwik8": (3, 1840, (0, 0), (0, 0.01, 0.01, 0.4), 0.2, 1.2e-6, 200, 128, 400, 0.001, 50, (25, 35)),
    "wikitext103": (4, 2500, (0, 0), (0, 0.1, 0.1, 0.1), 0, 0, 140, 60, 400, 0.001, 14, (12,)),
}
MERITY_RECIPES = ["ptb_awd_lstm", "ptb_awd_qrnn", "enwik8_awd_lstm", "enwik8_awd_qrnn"]
MERITY_RECIPES += ["wikitext103_awd_qrnn", "wikitext103_awd_qrnn_window2"]
QRNN_OF_CHARACTERS = {"ptb_awd_qrnn": (6, 1024), "enwik8_awd_qrnn": (4, 1800)}  # tables 2 and 3: layers, units

# Sun and Iyyer 2021, tables 5 to 7, the Transformer and then the NPLM where they differ.
SUN_IYYER = {
    # blocks, dim, ffn, heads, concatenation, dropouts, adaptive, warm-up, rates, updates, tokens an update, length
    "wikitext2": (6, 256, 1024, 4, 400, (0.3, 0.3), False, 100, (5e-4, 5e-4), 10_000, 5120, 512),
    "wikitext103": (16, 410, 2100, 10, 2000, (0.1, 0.2), True, 4000, (2.5e-4, 3.5e-4), 200_000, 10240, 512),
    "enwik8": (12, 512, 2048, 8, 1400, (0.1, 0.2), False, 0, (2.5e-4, 2.5e-4), 400_000, 22528, 1024),
    "lambada": (16, 512, 4096, 16, 2000, (0.1, 0.2), False, 4000, (3e-4, 3e-4), 400_000, 8192, 512),
}

# Baevski and Auli 2019, sections 4.1 to 4.5 and 5.1.
BAEVSKI = {
    "num_blocks": 16, "num_heads": 16, "dim": 1024, "ffn_dim": 4096, "attention_dropout": 0.1, "momentum": 0.99,
    "clip_norm": 0.1, "warmup": 16_000, "warmup_rate": 1e-7, "max_rate": 1, "min_rate": 1e-5, "period_mult": 2,
}  # fmt: skip
BAEVSKI_CORPORA = {
    "wikitext103": {"dropout": 0.3, "activation_dropout": 0.1, "updates": 286_000, "period": 18_000, "shrink": 0.75},
    "billion_word": {"dropout": 0.1, "activation_dropout": 0, "updates": 975_000, "period": 137_000, "shrink": 0.6},
}
BANDS = {"wikitext103": [20_000, 60_000], "billion_word": [60_000, 160_000]}
BAEVSKI_SYSTEMS = {
    "wikitext103_sm": {"embedding_dim": 512, "output_dim": 512},
    "wikitext103_sm_t": {"embedding_dim": 512, "output_dim": 512},
    "wikitext103_bpe": {"vocabulary_size": 33_337},
    "wikitext103_bpe_t": {"vocabulary_size": 33_337},
    "wikitext103_asm": {"embedding_dim": 64, "cutoffs": BANDS["wikitext103"], "tail_dropout": 0.2},
    "wikitext103_cnn": {"highways": 1, "cutoffs": BANDS["wikitext103"], "tail_dropout": 0.2},
    "wikitext103_adp": {"cutoffs": BANDS["wikitext103"], "tail_dropout": 0.2},
    "wikitext103_adp_t": {"cutoffs": BANDS["wikitext103"], "tail_dropout": 0.2, "tie_projections": True},
    "wikitext103_adp_t_3072": {"length": 3072, "tie_projections": True},
    "billion_word_bpe": {"vocabulary_size": 32_347},
    "billion_word_bpe_t": {"vocabulary_size": 32_347},
    "billion_word_asm": {"embedding_dim": 256, "cutoffs": BANDS["billion_word"], "tail_dropout": 0},
    "billion_word_cnn": {"highways": 2, "cutoffs": BANDS["billion_word"], "tail_dropout": 0},
    "billion_word_adp": {"cutoffs": BANDS["billion_word"], "tail_dropout": 0},
    "billion_word_adp_t": {"cutoffs": BANDS["billion_word"], "tie_projections": False},
    "billion_word_adp_t_64_gpus": {"cutoffs": BANDS["billion_word"], "tie_projections": False, "batch_size": 512},
    "billion_word_cnn_64_gpus": {"highways": 2, "cutoffs": BANDS["billion_word"], "batch_size": 512},
    "billion_word_large": {"num_blocks": 20, "ffn_dim": 6144, "batch_size": 512},
    "billion_word_very_large": {"num_blocks": 24, "dim": 1536, "ffn_dim": 8192, "batch_size": 512},
}

# Jozefowicz et al. 2016, table 1 and sections 4.4 and 5.2: layers, cells, projection, dropout.
JOZEFOWICZ = {
    "billion_word_lstm_512": (1, 512, 512, 0.1),
    "billion_word_lstm_1024": (1, 1024, 512, 0.1),
    "billion_word_lstm_2048": (1, 2048, 512, 0.1),
    "billion_word_lstm_8192": (1, 8192, 2048, 0),
    "billion_word_lstm_8192_dropout": (1, 8192, 2048, 0.5),
    "billion_word_big_lstm": (2, 8192, 1024, 0.25),
    "billion_word_big_lstm_cnn": (2, 8192, 1024, 0.25),
    "billion_word_big_lstm_cnn_softmax": (2, 8192, 1024, 0.25),
    "billion_word_big_lstm_cnn_softmax_128": (2, 8192, 1024, 0.25),
    "billion_word_big_lstm_char_lstm": (2, 8192, 1024, 0.25),
}

DIFFERENT = {  # (recipe, setting): our value, and what a comment in the recipe says
    ("ptb_awd_lstm", "dim"): (200, "Table 6 gives 128 as the dimension of the vectors"),
    ("ptb_awd_qrnn", "dim"): (200, "Table 6 has no column for this model"),
    ("wikitext103_nplm", "concatenation_dim"): (1500, "Table 6 gives 2,000 for --concatenation_dim"),
}


def check(name, expected):
    experiment = Experiment.of_arguments([f"--flagfile={CONFIGS}/{name}.flags"])
    settings = {**experiment.parts, **experiment.settings}
    for setting, value in expected.items():
        if (name, setting) in DIFFERENT:
            value, comment = DIFFERENT[name, setting]
            assert comment in (CONFIGS / f"{name}.flags").read_text(encoding="utf-8")
        assert settings[setting] == value, setting
    return settings


@pytest.mark.parametrize("name", MERITY_RECIPES)
def test_recipes_of_merity(name):
    column = MERITY[name.split("_awd_")[0]]
    layers, units, penalties, dropouts, weight_dropout, decay, bptt, batch, dim, rate, epochs, at = column
    if name in QRNN_OF_CHARACTERS:
        layers, units = QRNN_OF_CHARACTERS[name]
        assert "Table 6 has no column for this model" in (CONFIGS / f"{name}.flags").read_text(encoding="utf-8")
    names = ("embedding_dropout", "hidden_dropout", "vector_dropout", "output_dropout")
    expected = {
        **{"num_layers": layers, "units": units, "bptt": bptt, "batch_size": batch, "dim": dim, "max_rate": rate},
        **{"activation_penalty": penalties[0], "temporal_penalty": penalties[1], **dict(zip(names, dropouts))},
        **{"weight_dropout": weight_dropout, "weight_decay": decay, "optimizer": "adam"},
    }
    settings = check(name, expected)
    assert list(settings["decay_at"]) == [epoch * settings["updates"] // epochs for epoch in at]


@pytest.mark.parametrize("system", ["nplm", "transformer", "transformer_c", "transformer_n"])
@pytest.mark.parametrize("corpus", SUN_IYYER)
def test_recipes_of_sun_and_iyyer(corpus, system):
    blocks, dim, ffn, heads, inner, dropouts, adaptive, warmup, rates, updates, tokens, length = SUN_IYYER[corpus]
    is_nplm = system == "nplm"
    of_nplm = {"concatenation_dim": inner, "num_local": 15, "num_global": 5}
    expected = {
        **{"num_blocks": blocks, "dim": dim, "ffn_dim": ffn, "dropout": dropouts[is_nplm], "warmup": warmup},
        **{"max_rate": rates[is_nplm], "updates": updates, "length": length, "batch_size": tokens // length},
        **{"output": "adaptive" if adaptive else "softmax", **(of_nplm if is_nplm else {"num_heads": heads})},
    }
    settings = check(f"{corpus}_{system}", expected)
    if adaptive:
        assert list(settings["cutoffs"]) == [20_000, 40_000, 200_000]


@pytest.mark.parametrize("name", BAEVSKI_SYSTEMS)
def test_recipes_of_baevski_and_auli(name):
    corpus = next(corpus for corpus in BAEVSKI_CORPORA if name.startswith(corpus))
    settings = check(name, {**BAEVSKI, **BAEVSKI_CORPORA[corpus], **BAEVSKI_SYSTEMS[name]})
    tokens = settings["batch_size"] * settings["length"]
    assert tokens // 1024 == (128 if "large" in name or "64_gpus" in name else 72 if "3072" in name else 64)


@pytest.mark.parametrize("name", JOZEFOWICZ)
def test_recipes_of_jozefowicz(name):
    layers, units, projection, dropout = JOZEFOWICZ[name]
    expected = {
        **{"num_layers": layers, "units": units, "projection_dim": projection, "dim": projection},
        **{"vector_dropout": dropout, "output_dropout": dropout, "bptt": 20, "batch_size": 128, "optimizer": "adagrad"},
        **{"clip_norm": 1, "clip_parts": "body"},
    }
    if "char_lstm" not in name:
        expected["num_samples"] = 8192
    rate = 0.02 if "softmax" in name else 0.2  # section 5.5: a CNN softmax needs a smaller one
    check(name, {**expected, "max_rate": rate})
