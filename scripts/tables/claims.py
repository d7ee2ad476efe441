"""Tables of the comparisons that scripts/experiments/claims.sh lists."""

from scripts.tables.results import mean, read

WORDS = {"adp_t": "ADP-T", "adp_t_head": "ADP-T, another projection before the head"}
SMALL = {"adp_t": "ADP-T", "adp_t_tail": "ADP-T, dropout of 0.2 in the tails"}
BANDS = {  # the words of each band, and those of the paper that they are like
    "bands_1000_32000": "1,000 / 31,000 / 17,456 | 5k / 155k / 100k",
    "bands_2000_14000": "2,000 / 12,000 / 35,456 | 10k / 60k / 190k",
    "adp_t": "4,000 / 12,000 / 33,456 | 20k / 40k / 200k",
    "bands_4000_12000_24000": "4,000 / 8,000 / 12,000 / 25,456 | 20k / 40k / 60k / 140k",
    "bands_4000_32000": "4,000 / 28,000 / 17,456 | 20k / 140k / 100k",
    "bands_12000_32000": "12,000 / 20,000 / 17,456 | 60k / 100k / 100k",
}
MEASURED = "parameters | seeds | valid | test"


def claims_words():
    yield f"system | {MEASURED}"
    for name, figures in read("claims/words")["systems"].items():
        yield [WORDS[name], *_measured(figures)]


def claims_small():
    yield f"system | {MEASURED}"
    for name, figures in read("claims/small")["systems"].items():
        yield [SMALL[name], *_measured(figures)]


def claims_cutoffs():
    yield f"words of the bands | like the paper's | {MEASURED}"
    systems = {**read("claims/cutoffs")["systems"], "adp_t": read("claims/words")["systems"]["adp_t"]}
    for name, figures in sorted(systems.items(), key=lambda item: item[1]["valid"]["mean"]):
        yield [*BANDS[name].split(" | "), *_measured(figures)]


def _measured(figures):
    perplexities = map(mean, (figures["valid"], figures["test"]))
    return [f"{figures['parameters']:,}", figures["seeds"], *perplexities]
