"""Tables of the NPLM and its hybrids; a function for each."""

from scripts.experiments.compare import of_seeds
from scripts.tables.results import benchmark, mean, read, spread

NAMES = {
    "nplm": "NPLM",
    "nplm_half_rate": "NPLM at half the rate",
    "transformer": "Transformer",
    "transformer_c": "Transformer-C",
    "transformer_n_replaced": "Transformer-N of the paper",
    "transformer_n": "Transformer-N of the program",
}


def hybrids():
    systems = read("hybrids/systems")["systems"]
    return _systems(systems, {key: label for key, label in NAMES.items() if key in systems}, ("valid", "test"))


def rates():
    """Valid perplexities by the largest rate of the training."""
    valid = read("hybrids/rates")["valid"]
    rates = sorted({rate for figures in valid.values() for rate in figures}, key=float)
    yield f" | {' | '.join(f'{float(rate):g}' for rate in rates)}"
    for key, figures in valid.items():
        yield [NAMES[key], *(f"{figures[rate]:.1f}" if rate in figures else "" for rate in rates)]


def attention_windows():
    names = {
        "window_2": "2",
        "transformer_c": "5",
        "window_10": "10",
        "window_30": "30",
        "transformer": "all",
        "local_attention": "5, in all layers",
    }
    return _systems(_short_trainings(), names, ("valid",), "window of the first layer, tokens")


def context_lengths():
    result = read("hybrids/contexts")
    yield f"valid perplexity with contexts of | {' | '.join(f'{length} tokens' for length in result['lengths'])}"
    for key, values in result["perplexity"].items():
        yield [NAMES[key], *(f"{one:.1f}" for one in values)]


def lengths():
    result = read("lengths")
    names = {"alibi": "linear biases", "sinusoidal": "sinusoids"}
    yield f"valid perplexity in windows of | {' | '.join(f'{length:,} tokens' for length in result['lengths'])}"
    for key, values in result["perplexity"].items():
        positions, trained = key.split("_")
        yield [f"{names[positions]}, trained on {trained}", *(f"{one:.1f}" for one in values)]


def ablations():
    names = {
        "nplm": "NPLM of 6 layers",
        "nplm_1_layer": "1 layer",
        "nplm_3_layers": "3 layers",
        "nplm_16_layers": "16 layers",
        "nplm_16_layers_0.001": "16 layers, rate of 0.001",
        "nplm_local": "without averages",
        "nplm_averages": "plain averages in place of kernels",
        "no_norms": "without LayerNorms",
        "no_norms_16": "16 layers without LayerNorms, rate of 0.001",
        "no_residuals": "without residual connections",
        "no_residuals_16": "16 layers without residual connections, rate of 0.001",
        "nplm_3_cycles": "three cycles of the cosine",
        "nplm_sgd": "SGD in place of Adam",
    }
    return _systems(_short_trainings(), names, ("valid",))


def longer_hybrids():
    systems = read("claims/hybrids")["systems"]
    updates = list(systems["nplm"]["validations"])
    yield f"valid after updates | {' | '.join(f'{int(number):,}' for number in updates)} | test"
    for key in ("nplm", "nplm_half_rate", "transformer", "transformer_c"):
        system = systems[key]
        yield [NAMES[key], *(mean(system["validations"][number]) for number in updates), mean(system["test"])]


def last_words():
    """Means of the seeds, whose runs are NAME_SEED."""
    passages = read("claims/last_words")["passages"]
    yield " | seeds | accuracy, control | broad | perplexity, control | broad"
    for name in ("nplm_half_rate", "transformer", "transformer_c"):
        control, broad = (
            [run for run in passages[kind] if run["run"].rsplit("_", 1)[0] == name] for kind in ("control", "broad")
        )
        accuracies = [of_seeds([100 * run["accuracy"]["all"] for run in runs]) for runs in (control, broad)]
        perplexities = [of_seeds([run["perplexity"] for run in runs]) for runs in (control, broad)]
        accuracies, perplexities = [f"{mean(one)} %" for one in accuracies], [mean(one, 0) for one in perplexities]
        yield [NAMES[name], len(control), *accuracies, *perplexities]


def _short_trainings():
    """Returns `{system: figures}` of all trainings of 700 updates; of a system with several, those with most seeds."""
    files = ("windows", "ablations", "altered", "sgd", "systems")
    return {key: figures for name in files for key, figures in read(f"hybrids/{name}")["systems"].items()}


def _systems(systems, names, splits, title=""):
    yield f"{title} | parameters | seeds | {' | '.join(splits)}"
    for key, label in names.items():
        system = systems[key]
        yield [label, f"{system['parameters']:,}", system["seeds"], *(mean(system[split]) for split in splits)]


def concatenation():
    header = " | ours, ms | plain concatenation, ms | matrix products alone, ms | ours ÷ products"
    yield f"{header} | memory of ours, in inputs | of the plain one"
    for label, result in benchmark("concatenation"):
        ours, plain, products = (result["candidates"][name] for name in ("ours", "plain", "products"))
        ratio = ours["seconds"]["median"] / products["seconds"]["median"]
        times = [spread(one["seconds"]) for one in (ours, plain, products)]
        yield [label, *times, f"{ratio:.2f}", f"{ours['texts']:.2f}", f"{plain['texts']:.1f}"]


def generated_word():
    yield " | after 64 words, ms | after 2,048 words, ms | ratio"
    for label, result in benchmark("generated_word"):
        for case in result["cases"]:
            times = [spread(figures, digits=1) for figures in case["candidates"].values()]
            yield [f"{case['body']}, {label}", *times, f"{case['ratios'][-1]:.2f}"]


def nplm_step():
    yield " | NPLM, ms | Transformer, ms | speed of the NPLM ÷ the Transformer's"
    for label, result in benchmark("nplm_step"):
        times = [result["candidates"][name]["seconds"] for name in ("nplm", "transformer")]
        yield [label, *map(spread, times), f"{times[1]['median'] / times[0]['median']:.2f}"]
