"""Tables of the sampled losses; a function for each."""

from scripts.tables.results import BENCHMARKS, benchmark, by_rate, mean, read, spread

SYSTEMS = {
    "lstm_256": "256 cells",
    "lstm_512": "512 cells",
    "lstm_1024": "1,024 cells",
    "lstm_512_cnn": "512 cells, words read by a CNN",
    "lstm_512_nce": "512 cells, NCE",
}


def sampled_loss():
    yield " | ours, ms | TensorFlow, ms | ours ÷ TensorFlow | memory of ours, MiB | of TensorFlow's"
    for label, result in benchmark("sampled_loss"):
        both = [result["cases"][0]["candidates"][name] for name in ("ours", "tensorflow")]
        ours, peer = times = [one["seconds"] for one in both]
        memory = [f"{one['mebibytes']:.0f}" for one in both]
        yield [label, *map(spread, times), f"{ours['median'] / peer['median']:.2f}", *memory]


def sampled_loss_sizes():
    results = dict(benchmark("sampled_loss_sizes"))
    cases = next(iter(results.values()))["cases"]
    yield " | " + " | ".join(f"{case['vocabulary_size']:,} words" for case in cases)
    for label, result in results.items():
        yield [label, *(f"{spread(case['candidates']['ours']['seconds'])} ms" for case in result["cases"])]


def sampled_books():
    systems = read("sampled/comparison")["systems"]
    updates = [f"after {int(update):,} updates" for update in systems["lstm_512"]["validations"]]
    yield " | ".join(["", "parameters", "seeds", *updates, "test"])
    for name, figures in systems.items():
        perplexities = map(mean, (*figures["validations"].values(), figures["test"]))
        yield [SYSTEMS[name], f"{figures['parameters']:,}", figures["seeds"], *perplexities]


def sampled_rates():
    def labels(case):
        return [SYSTEMS[case["system"]], f"{case['reset_rate']:g}"]

    cases = read("sampled/rates")["cases"]
    return by_rate(" | reset rate", cases, labels, lambda value: "diverges" if value is None else f"{value:,.1f}")


def ensembles():
    yield " | valid | test | weights"
    results = read("ensembles/books")
    for name, splits in results["alone"].items():
        yield [name, *(f"{splits[split]:.1f}" for split in ("valid", "test")), ""]
    for name, splits in results["mixtures"].items():
        for kind in ("equal", "optimal"):
            cells = [f"{splits[split][kind]['perplexity'][split]:.1f}" for split in ("valid", "test")]
            weights = ", ".join(f"{weight:.2f}" for weight in splits["test"][kind]["weights"])
            yield [f"{name}, {kind}", *cells, weights]


def recommender():
    yield " | ours, ms | `Dense` and its loss, ms | ours ÷ `Dense`"
    for label, result in benchmark("recommender"):
        ours, peer = (result["candidates"][name]["seconds"] for name in ("ours", "keras"))
        yield [label, spread(ours), spread(peer), f"1/{peer['median'] / ours['median']:.0f}"]


def recommender_retrieval():
    yield " | users | all items, ms | bands, ms | `BruteForceRetrieval`, ms | bands ÷ `BruteForceRetrieval`"
    for suffix in ("", "_64"):
        for label, result in benchmark("recommender_retrieval", suffix):
            times = [result["candidates"][name]["seconds"] for name in ("ours", "bands", "keras_rs")]
            ratio = f"{times[1]['median'] / times[2]['median']:.2f}"
            yield [label, str(result["settings"]["users"]), *map(spread, times), ratio]


def recommender_ranking():
    yield " | all items, users/s | bands, users/s | `keras_rs`, users/s | all items ÷ `keras_rs`"
    for label, result in benchmark("recommender_ranking"):
        candidates = [result["candidates"][name]["seconds"]["median"] for name in ("ours", "bands", "keras_rs")]
        rates = [result["settings"]["users"] / seconds for seconds in candidates]
        yield [label, *(f"{rate:,.0f}" for rate in rates), f"{rates[0] / rates[2]:.1f}"]


def recommender_losses():
    yield "log | program | loss | noise | batch, rate | updates | HitRate@10 | NDCG@10 | GiB"
    result = read("sampled/recommenders")
    for run in result["runs"]:
        log = f"{run['log']}, {result['items'][run['log']]:,} items"
        noise = "" if run["loss"] in ("adaptive", "softmax") else f"{run['noise']:,}"
        loss = f"{run['loss']}, small vectors" if "stddev" in run else run["loss"]
        figures = (noise, f"{run['batch_size']:,}, {run['rate']}", f"{run['updates']:,}")
        memory = f"{run['bytes'] / 2**30:.1f}" if "bytes" in run else ""
        yield [log, run["program"], loss, *figures, f"{run['hit']:.3f}", f"{run['ndcg']:.3f}", memory]


def big_lstm_step():
    yield " | ours, ms | plain Keras, ms | speed of ours ÷ plain Keras"
    result = read(f"{BENCHMARKS}big_lstm_step_tensorflow")["candidates"]
    ours, peer = (result[name]["seconds"] for name in ("ours", "keras"))
    yield ["TensorFlow", spread(ours), spread(peer), f"{peer['median'] / ours['median']:.2f}"]
