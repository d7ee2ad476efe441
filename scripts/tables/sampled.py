"""Tables of the sampled losses; a function for each."""

from scripts.tables.results import BENCHMARKS, benchmark, read, spread, table


def sampled_loss():
    rows = []
    for label, result in benchmark("sampled_loss"):
        ours, peer = (result["cases"][0]["candidates"][name] for name in ("ours", "tensorflow"))
        times = [one["seconds"] for one in (ours, peer)]
        memory = [f"{one['mebibytes']:.0f}" for one in (ours, peer)]
        rows.append([label, *map(spread, times), f"{times[0]['median'] / times[1]['median']:.2f}", *memory])
    return table(" | ours, ms | TensorFlow, ms | ours ÷ TensorFlow | memory of ours, MiB | of TensorFlow's", rows)


def sampled_loss_sizes():
    rows, header = [], ""
    for label, result in benchmark("sampled_loss_sizes"):
        header = " | " + " | ".join(f"{case['vocabulary_size']:,} words" for case in result["cases"])
        rows.append([label, *(f"{spread(case['candidates']['ours']['seconds'])} ms" for case in result["cases"])])
    return table(header, rows)


def sampled_books():
    rows, names = [], {"lstm_512": "importance sampling", "lstm_512_nce": "NCE"}
    for key, name in names.items():
        validations = read("sampled/comparison")["systems"][key]["validations"]
        rows.append(
            [name, *(" and ".join(f"{value:.1f}" for value in figure["runs"]) for figure in validations.values())]
        )
    return table(f" | {' | '.join(f'after {int(update):,} updates' for update in validations)}", rows)


def ensembles():
    rows, results = [], read("ensembles/books")
    for name, splits in results["alone"].items():
        rows.append([name, *(f"{splits[split]:.1f}" for split in ("valid", "test")), ""])
    for name, splits in results["mixtures"].items():
        for kind in ("equal", "optimal"):
            cells = [f"{splits[split][kind]['perplexity'][split]:.1f}" for split in ("valid", "test")]
            weights = ", ".join(f"{weight:.2f}" for weight in splits["test"][kind]["weights"])
            rows.append([f"{name}, {kind}", *cells, weights])
    return table(" | valid | test | weights", rows)


def recommender():
    rows = []
    for label, result in benchmark("recommender"):
        ours, peer = (result["candidates"][name]["seconds"] for name in ("ours", "keras"))
        rows.append([label, spread(ours), spread(peer), f"1/{peer['median'] / ours['median']:.0f}"])
    return table(" | ours, ms | `Dense` and its loss, ms | ours ÷ `Dense`", rows)


def big_lstm_step():
    ours, peer = (
        read(f"{BENCHMARKS}big_lstm_step_tensorflow")["candidates"][name]["seconds"] for name in ("ours", "keras")
    )
    row = ["TensorFlow", spread(ours), spread(peer), f"{peer['median'] / ours['median']:.2f}"]
    return table(" | ours, ms | plain Keras, ms | speed of ours ÷ plain Keras", [row])
