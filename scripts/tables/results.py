"""What the tables are made of: result files, and their figures as text."""

import functools
import json
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
BACKENDS = {"torch": "torch", "jax": "JAX", "tensorflow": "TensorFlow"}
BENCHMARKS = "benchmarks/"


@functools.cache
def read(name):
    """Returns the contents of a result file."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def benchmark(name, suffix=""):
    """Yields the name of a backend and its results of a benchmark, for every backend that has some."""
    for backend, label in BACKENDS.items():
        if (RESULTS / f"{BENCHMARKS}{name}_{backend}{suffix}.json").exists():
            yield label, read(f"{BENCHMARKS}{name}_{backend}{suffix}")


def candidates(case):
    """Returns `{candidate: (median in seconds, memory in MiB or None)}` of a case of a benchmark."""
    result = {}
    for name, figures in case["candidates"].items():
        seconds = figures.get("seconds", figures)
        result[name] = seconds["median"], figures.get("mebibytes")
    return result


def spread(figures, digits=0):
    """Returns the median with the fastest and the slowest turn, in ms."""
    median, low, high = (f"{1000 * figures[key]:,.{digits}f}" for key in ("median", "low", "high"))
    return f"{median} ({low}–{high})"


def mean(figures, digits=1):
    """Returns the mean over seeds and, if there are several, its standard deviation."""
    deviation = "" if figures["std"] is None else f" ± {figures['std']:,.{digits}f}"
    return f"{figures['mean']:,.{digits}f}{deviation}"


def by_rate(header, cases, labels, of_perplexity):
    """Yields the labels of each case and its perplexities on valid, in a column for each learning rate."""
    rates = sorted({rate for case in cases for rate in case["valid"]}, key=float)
    yield " | ".join([header, *rates])
    for case in cases:
        found = [of_perplexity(case["valid"][rate]) if rate in case["valid"] else "" for rate in rates]
        yield [*labels(case), *found]


def milliseconds(seconds):
    return f"{1000 * seconds:,.{0 if seconds >= 0.01 else 1}f} ms"


def megabytes(number):
    return f"{number / 1e6:,.0f} MB"


def mebibytes(number):
    return f"{number / 2**20:,.0f}" if number >= 10 * 2**20 else f"{number / 2**20:.1f}"


def markdown(figures):
    """Returns in Markdown what `figures()` yields: a sentence, or the header of a table and its rows.

    A header is one string, divided by " | ". A string after the rows is a line of text below the table.
    """
    header, *rest = figures()
    names, rows = header.split(" | "), [row for row in rest if not isinstance(row, str)]
    if not rows:
        return f"{header}\n"
    lines = [f"| {' | '.join(map(str, line))} |\n" for line in (names, ["---"] * len(names), *rows)]
    notes = [f"\n{note}\n" for note in rest if isinstance(note, str)]
    return "".join([*lines, *notes]).replace("|  |", "| |")
