"""Tables of the comparisons that scripts/experiments/claims.sh lists."""

import math

from scripts.experiments.compare import of_seeds
from scripts.tables.results import by_rate, mean, read

ASM = {"asm": 8, "asm_4": 4, "asm_16": 16, "asm_32": 32, "asm_64": 64}
WORDS = {
    "adp_t_head": ["ADP-T, another projection before the head"],
    "adp_t": ["ADP-T"],
    "adp": ["ADP: inputs and outputs have their own vectors"],
    "adp_t_words": ["ADP-T, projections of their own"],
    "tied_without_reduction": ["one tied table of 64 dimensions, without reduction"],
    **{name: [f"ASM, vectors of {dim} dimensions"] for name, dim in ASM.items()},
}
NORMS = {"adp_t": ["before the sub-layers (ADP-T)"], "adp_t_after": ["after the residual sums"]}
SMALL = {"adp_t": ["ADP-T"], "adp_t_tail": ["ADP-T, dropout of 0.2 in the tails"]}
BANDS = {  # numbers of words in the bands: here, and in the most similar row of the paper
    "bands_1000_32000": ("1,000 / 31,000 / 17,456", "5k / 155k / 100k"),
    "bands_2000_14000": ("2,000 / 12,000 / 35,456", "10k / 60k / 190k"),
    "adp_t": ("4,000 / 12,000 / 33,456", "20k / 40k / 200k"),
    "bands_4000_12000_24000": ("4,000 / 8,000 / 12,000 / 25,456", "20k / 40k / 60k / 140k"),
    "bands_4000_32000": ("4,000 / 28,000 / 17,456", "20k / 140k / 100k"),
    "bands_12000_32000": ("12,000 / 20,000 / 17,456", "60k / 100k / 100k"),
}
CHARACTERS = {
    "lstm": ["LSTM, 2 layers of 512 units"],
    "lstm_penalties": ["the same, with AR and TAR"],
    "qrnn_3_layers": ["QRNN, 3 layers of 572 units"],
    "qrnn_3_layers_penalties": ["the same, with AR and TAR"],
    "qrnn_6_layers": ["QRNN, 6 layers of 324 units"],
    "qrnn_6_layers_penalties": ["the same, with AR and TAR"],
}
SHORT = {
    "lstm": "LSTM, 2 layers",
    "qrnn_3_layers": "QRNN, 3 layers",
    "qrnn_6_layers": "QRNN, 6 layers",
    "awd_lstm": "AWD-LSTM",
    "awd_qrnn": "AWD-QRNN",
}
RECURRENT = {"awd_lstm": ["AWD-LSTM, 2 layers of 384 units"], "awd_qrnn": ["AWD-QRNN, 4 layers of 360 units"]}


def claims_words():
    comparisons = ("words", "words_tables", "asm", "tying")
    systems = {name: figures for comparison in comparisons for name, figures in _systems(comparison).items()}
    return _table("system", WORDS, _best_first(systems))


def claims_norms():
    return _table("LayerNorms", NORMS, {"adp_t": _systems("words")["adp_t"], **_systems("norms")})


def claims_small():
    return _table("system", SMALL, _systems("small"))


def claims_cutoffs():
    systems = {**_systems("cutoffs"), "adp_t": _systems("words")["adp_t"]}
    return _table("words of the bands | like the paper's", BANDS, _best_first(systems))


def claims_blocks():
    yield "trained on blocks of | scored | with context | seeds | valid"
    for case in read("claims/contexts")["cases"]:
        tokens = [f"{case[key]} tokens" for key in ("trained", "block", "context")]
        yield [*tokens, len(case["valid"]["runs"]), mean(case["valid"])]


def claims_sentences():
    """The losses of words by their frequency in training."""
    systems = _systems("sentences")
    yield "occurrences of the word in training | ADP-T | CNN"
    for adp_t, cnn in zip(systems["adp_t"]["by_frequency"], systems["cnn"]["by_frequency"], strict=True):
        losses = [f"{one['nll']['mean']:.2f}" for one in (adp_t, cnn)]
        yield [f"{adp_t['low']:,} to {adp_t['high'] - 1:,}", *losses]


def claims_recurrent():
    return _table("", RECURRENT, _systems("recurrent"))


def claims_characters():
    """Bits per character."""
    systems = _systems("characters")
    return _table("", CHARACTERS, {name: systems[name] for name in CHARACTERS}, _bits)


def claims_rates_characters():
    return _by_rate("characters", lambda perplexity: f"{math.log2(perplexity):.3f}")


def claims_rates_words():
    return _by_rate("words", lambda perplexity: f"{perplexity:.1f}")


def _by_rate(corpus, of_perplexity):
    def labels(case):
        penalties = "2 and 1" if case["penalties"] else "0"
        return [SHORT[case["system"]], penalties, f"{case['reset_rate']:g}", f"{case['updates']:,}"]

    cases = [case for case in read("claims/recurrent_rates")["cases"] if case["corpus"] == corpus]
    return by_rate(" | AR and TAR | reset rate | updates", cases, labels, of_perplexity)


def _bits(perplexity):
    """Returns the bits of a perplexity, which has a value for each seed."""
    return mean(of_seeds(list(map(math.log2, perplexity["runs"]))), digits=3)


def _systems(comparison):
    return read(f"claims/{comparison}")["systems"]


def _best_first(systems):
    return dict(sorted(systems.items(), key=lambda item: item[1]["valid"]["mean"]))


def _table(header, names, systems, of_split=mean):
    yield f"{header} | parameters | seeds | valid | test"
    for name, figures in systems.items():
        splits = map(of_split, (figures["valid"], figures["test"]))
        yield [*names[name], f"{figures['parameters']:,}", figures["seeds"], *splits]
