"""Tables of the comparisons that scripts/experiments/claims.sh lists."""

from scripts.tables.results import mean, read

WORDS = {"adp_t": "ADP-T", "adp_t_head": "ADP-T, another projection before the head"}


def claims_words():
    yield "system | parameters | seeds | valid | test"
    for name, figures in read("claims/words")["systems"].items():
        perplexities = map(mean, (figures["valid"], figures["test"]))
        yield [WORDS[name], f"{figures['parameters']:,}", figures["seeds"], *perplexities]
