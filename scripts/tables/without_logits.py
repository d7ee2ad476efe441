"""Tables of models that train without their logits; a function for each."""

from scripts.tables.results import benchmark, candidates, milliseconds


def task_steps():
    yield (
        "on; dimension; tokens | plain | without logits | ÷ plain | frozen table | ÷ with its gradient | memory, plain "
        "| without logits | ÷ plain"
    )
    for label, result in (*benchmark("task"), *benchmark("task", "_1024")):
        for case in result["cases"]:
            (plain, of_plain), (ours, memory), (frozen, _) = candidates(case).values()
            times = [milliseconds(plain), milliseconds(ours), f"{ours / plain:.2f}"]
            times += [milliseconds(frozen), f"{frozen / ours:.2f}"]
            memories = [f"{of_plain:,.0f} MiB", f"{memory:,.0f} MiB", f"{memory / of_plain:.2f}"]
            yield [f"{label}; {result['settings']['dim']:,}; {case['rows']:,}", *times, *memories]


def chunked_losses():
    yield "on | loss | time | ÷ ours | memory"
    for label, result in benchmark("loss", "_262144"):
        (case,) = result["cases"]
        figures = candidates(case)
        ours = figures["ours"][0]
        for name, (seconds, mebibytes) in figures.items():
            memory = "" if mebibytes is None else f"{mebibytes:,.0f} MiB"
            yield [label, name, milliseconds(seconds), f"{seconds / ours:.2f}", memory]
        for name in case["missing"]:
            yield [label, name, "does not run here", "", ""]


def task_ratios():
    """A sentence of the README: the update of a small Gemma 3, 512 tokens."""
    parts = []
    for label, result in benchmark("task"):
        (plain, of_plain), (ours, memory), _ = candidates(result["cases"][0]).values()
        parts.append(f"{label} {ours / plain:.2f} and {memory / of_plain:.2f}")
    yield (
        "After `without_logits`, an update of a KerasHub Gemma 3 of one layer, 262,144 words and 512 tokens takes, of "
        f"the time and the memory that it took before: {'; '.join(parts)}."
    )
