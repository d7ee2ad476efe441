"""Tables of what `scripts/benchmarks/on_gpu.sh` measured; a function for each."""

import json
from collections import Counter

from scripts.tables.results import BACKENDS, RESULTS, candidates, milliseconds, spread, table


def gpu_tests():
    def rows(part, figures):
        files = Counter(name.split(".test_")[1].split("::")[0].split(".")[0] for name in figures["failed_tests"])
        failed = [f"{count} of {name}" for name, count in files.items()]
        yield [figures["passed"], ", ".join(failed) or 0, figures["skipped"]]

    return _table("passed | failed | skipped", "tests", rows)


def gpu_loss():
    def rows(part, figures):
        words = f"{figures['settings']['vocabulary_size']:,}" + (", plain" if part.startswith("plain") else "")
        for case in figures["cases"]:
            times = candidates(case)
            ours, memory = times.pop("ours")
            start = [words, figures["settings"]["peer_dtype"], f"{case['rows']:,}", milliseconds(ours), _memory(memory)]
            for name, (seconds, of_peer) in times.items():
                yield [*start, name, f"{ours / seconds:.2f}", _memory(of_peer)]
            for name, reason in case["missing"].items():
                yield [*start, name, f"missing: {_cell(reason)}", ""]

    return _table("words | dtype | rows | ours | memory | against | time ÷ its | its memory", ("loss", "plain"), rows)


def gpu_training():
    def rows(part, figures):
        facts, tokens = figures["facts"], figures["candidates"]["ours"]["tokens_per_second"]
        scale = f"{facts['loss_scale']:,.0f}" if "loss_scale" in facts else ""
        steps = f"{facts.get('steps_taken', facts['updates'])} of {facts['updates']}"
        rates = [f"{facts[key] / 1e12:.0f}" for key in ("operations_per_second", "product_operations_per_second")]
        losses = f"{facts['first_loss']:.3f} to {facts['last_loss']:.3f}"
        share = f"{100 * facts['share']:.0f} %"
        yield [figures["settings"]["dtype"], f"{tokens:,.0f}", " of ".join(rates), share, losses, steps, scale]

    header = "dtype | tokens/s | TFLOP/s, of a product's | share | loss | steps taken | loss scale"
    return _table(header, "training", rows)


def gpu_words():
    def rows(part, figures):
        for case in figures["cases"]:
            yield [figures["settings"]["batch_size"], spread(case["candidates"]["cached"], 1)]

    return _table("batch | ms for a word of every row", "word", rows)


def gpu_recurrence():
    def rows(part, figures):
        lstm, pooling = (candidates(case) for case in figures["cases"])
        ours, peer = lstm["ours"][0], lstm["torch.nn.LSTM"][0]
        yield [milliseconds(ours), milliseconds(peer), f"{ours / peer:.2f}", milliseconds(pooling["ours"][0])]

    return _table("LSTM | `torch.nn.LSTM` | time ÷ its | QRNN pooling", "recurrence", rows)


def _table(header, parts, rows):
    """Returns a table of the rows that `rows(part, figures)` yields for the parts whose names begin with `parts`."""
    width, lines = header.count(" | ") + 1, []
    for path in sorted((RESULTS / "gpu").glob("*.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        for backend, of_backend in results["backends"].items():
            device = f"{results['machine']['device']}, {BACKENDS[backend]}"
            for part, figures in ((part, of_backend[part]) for part in of_backend if part.startswith(parts)):
                error = [[f"{part}: {_cell(figures.get('error', ''))}", *[""] * (width - 1)]]
                lines += [[device, *row] for row in (error if "error" in figures else rows(part, figures))]
    return table(f"device, backend | {header}", lines) if lines else "Not measured yet.\n"


def _cell(text):
    return text.replace("|", "\\|")[:200]


def _memory(mebibytes):
    return "" if mebibytes is None else f"{mebibytes:,.0f} MiB"
