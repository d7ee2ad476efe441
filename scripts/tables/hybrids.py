"""Tables of the NPLM and its hybrids; a function for each."""

from scripts.tables.results import benchmark, spread, table


def generated_word():
    rows = []
    for label, result in benchmark("generated_word"):
        for case in result["cases"]:
            times = [spread(figures, digits=1) for figures in case["candidates"].values()]
            rows.append([f"{case['body']}, {label}", *times, f"{case['ratios'][-1]:.2f}"])
    return table(" | after 64 words, ms | after 2,048 words, ms | ratio", rows)
