"""Tables of what `scripts/benchmarks/on_gpu.sh` measured; a function for each."""

import functools
import json
from collections import Counter

from scripts.tables.results import BACKENDS, RESULTS, candidates, milliseconds, spread


def _measured(parts):
    """Yields the device, the name and the figures of every measured part whose name begins with `parts`."""
    for path in sorted((RESULTS / "gpu").glob("*.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        for backend, of_backend in results["backends"].items():
            for part in filter(lambda name: name.startswith(parts), of_backend):
                yield f"{results['machine']['device']}, {BACKENDS[backend]}", part, of_backend[part]


def _table(parts, header):
    """Makes a table of the rows that a function yields for each part whose name begins with `parts`."""

    def decorate(rows):
        def rows_of(part, figures):
            error = [[f"{part}: {_cell(figures.get('error', ''))}", *[""] * header.count(" | ")]]
            return error if "error" in figures else rows(part, figures)

        @functools.wraps(rows)
        def table():
            lines = [[device, *row] for device, *measured in _measured(parts) for row in rows_of(*measured)]
            return [f"device, backend | {header}", *lines] if lines else ["Not measured yet."]

        return table

    return decorate


@_table("tests", "passed | failed | skipped")
def gpu_tests(part, figures):
    files = Counter(name.split(".test_")[1].split("::")[0].split(".")[0] for name in figures["failed_tests"])
    failed = [f"{count} of {name}" for name, count in files.items()]
    yield [figures["passed"], ", ".join(failed) or 0, figures["skipped"]]


@_table(("loss", "plain"), "words | dtype | rows | ours | memory | against | time ÷ its | its memory")
def gpu_loss(part, figures):
    words = f"{figures['settings']['vocabulary_size']:,}" + (", plain" if part.startswith("plain") else "")
    for case in figures["cases"]:
        times = candidates(case)
        ours, memory = times.pop("ours")
        start = [words, figures["settings"]["peer_dtype"], f"{case['rows']:,}", milliseconds(ours), _memory(memory)]
        for name, (seconds, of_peer) in times.items():
            yield [*start, name, f"{ours / seconds:.2f}", _memory(of_peer)]
        for name, reason in case["missing"].items():
            yield [*start, name, f"missing: {_cell(reason)}", ""]


@_table("task", "dtype | tokens | update | time | ÷ plain | memory | ÷ plain's")
def gpu_task(part, figures):
    for case in figures["cases"]:
        times = candidates(case)
        plain, of_plain = times["plain"]
        for name, (seconds, memory) in times.items():
            ratios = [f"{seconds / plain:.2f}", _memory(memory), f"{memory / of_plain:.2f}" if of_plain else ""]
            yield [figures["settings"]["dtype"], f"{case['rows']:,}", name, milliseconds(seconds), *ratios]


@_table("training", "dtype | tokens/s | TFLOP/s, of a product's | share | loss | steps taken | loss scale")
def gpu_training(part, figures):
    facts, tokens = figures["facts"], figures["candidates"]["ours"]["tokens_per_second"]
    scale = f"{facts['loss_scale']:,.0f}" if "loss_scale" in facts else ""
    steps = f"{facts.get('steps_taken', facts['updates'])} of {facts['updates']}"
    rates = [f"{facts[key] / 1e12:.0f}" for key in ("operations_per_second", "product_operations_per_second")]
    losses = f"{facts['first_loss']:.3f} to {facts['last_loss']:.3f}"
    share = f"{100 * facts['share']:.0f} %"
    yield [figures["settings"]["dtype"], f"{tokens:,.0f}", " of ".join(rates), share, losses, steps, scale]


@_table("word", "batch | ms for a word of every row")
def gpu_words(part, figures):
    for case in figures["cases"]:
        yield [figures["settings"]["batch_size"], spread(case["candidates"]["cached"], 1)]


@_table("recommender", "users | model | update | ÷ Keras | memory")
def gpu_recommender(part, figures):
    times = figures["candidates"]
    for name, of in times.items():
        ratio = of["seconds"]["median"] / times["keras"]["seconds"]["median"]
        memory = _memory(of["bytes"] / 2**20 if "bytes" in of else None)
        yield [figures["settings"]["batch_size"], name, spread(of["seconds"], 1), f"{ratio:.2f}", memory]


@_table("recurrence", "LSTM | `torch.nn.LSTM` | time ÷ its | QRNN pooling")
def gpu_recurrence(part, figures):
    lstm, pooling = (candidates(case) for case in figures["cases"])
    ours, peer = lstm["ours"][0], lstm["torch.nn.LSTM"][0]
    yield [milliseconds(ours), milliseconds(peer), f"{ours / peer:.2f}", milliseconds(pooling["ours"][0])]


def _cell(text):
    return text.replace("|", "\\|")[:200]


def _memory(mebibytes):
    return "" if mebibytes is None else f"{mebibytes:,.0f} MiB"
