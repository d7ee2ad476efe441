"""Tables of the adaptive softmax, its Transformer, and what surrounds them; a function for each."""

from scripts.tables.results import (
    BACKENDS,
    BENCHMARKS,
    benchmark,
    candidates,
    mean,
    mebibytes,
    megabytes,
    milliseconds,
    read,
    spread,
)

PARTS = "input and body", "word loss", "matrix products"
FLOAT32 = {"ours in float32": "speed ÷ our float32 step"}
PEERS = {
    "torch_lm": "speed ÷ the peer's",
    "torch_lm, freed memory kept": "÷ the peer's that keeps memory",
    "torch_lm, tied, freed memory kept": "÷ the tied peer's",
    "torch_lm, compiled, freed memory kept": "÷ the compiled peer's",
}
CPUS = {"_avx512": "AMD EPYC with AVX-512", "": "Intel Xeon with AMX"}  # suffixes of the result files of steps
AMD = "PyTorch's own products leave out AVX-512 on AMD; ours do not."
EVALUATION_PEERS = {
    "torch_lm": "speed ÷ the peer's",
    "torch_lm, no fast path": "÷ the peer's without the fast path",
    "torch_lm, no fast path, freed memory kept": "÷ the same, keeping memory",
}
PREPARED_BY = {"datasets": "datasets and tokenizers, 2 processes", "fairseq": "as `fairseq-preprocess`, 2 processes"}
PAPER = {"ADP-T": "1", "ADP": "1.13", "CNN": "2.33", "SM": "1.90", "SM-T": "1.87", "ASM": "1.17"}
PAPER |= {"BPE": "1.00", "BPE-T": "1.00"}


def against_a_plain_softmax():
    systems, steps = read("comparison/comparison"), read("comparison/steps_torch")["candidates"]
    loss = candidates(read(f"{BENCHMARKS}loss_torch_full")["cases"][0])
    memory = {name: f"{mebibytes:,.0f} MiB" for name, (_, mebibytes) in loss.items() if mebibytes}
    _, adaptive = candidates(read(f"{BENCHMARKS}loss_torch_50000")["cases"][0])["ours"]
    both = "SM-T", "ADP-T"
    seconds = [steps[name]["seconds"]["median"] for name in both]
    perplexities = [f"{systems[name]['valid']:.1f}" for name in both]
    plain = (
        f"{memory['torch cross_entropy']} (`cross_entropy`), {memory['torch linear_cross_entropy']} "
        f"(`linear_cross_entropy`), {memory['ours']} (ours, `cutoffs=()`)"
    )
    yield " | plain softmax | adaptive, this package"
    yield ["parameters", *(f"{systems[name]['parameters']:,}" for name in both)]
    yield ["time of an update of 2,048 tokens", *map(milliseconds, seconds)]
    yield ["valid perplexity after the same 2,000 updates", *perplexities]
    what = "memory of the loss of 2,048 tokens, 50,000 words, dimension 1,024"
    yield [what, plain, f"{adaptive:,.0f} MiB (`cutoffs=(4_000, 16_000)`)"]


def books():
    ours, peer = read("books")["keras_adaptive"], read("books")["torch_lm"]
    valid = f"**{ours['validations'][-1]['val_perplexity']:.1f}**", f"{peer['valid_perplexity']:.1f}"
    speeds = ours["tokens"] / ours["seconds_with_two_validations"], peer["tokens_per_second"]
    names = (
        "keras_adaptive on torch, words tied, batches of 16",
        "plain PyTorch: `nn.TransformerEncoderLayer`, `nn.AdaptiveLogSoftmaxWithLoss`, batches of 32",
    )
    yield " | parameters | tokens/s | tokens seen | valid perplexity"
    for name, run, speed, perplexity in zip(names, (ours, peer), speeds, valid):
        yield [name, f"{run['parameters']:,}", f"{speed:,.0f}", f"{run['tokens']:,}", perplexity]


def quickstart():
    result = read("quickstart/evaluation")
    printed = f"valid perplexity {result['perplexity']:.2f} per word ({result['loss']:.4f} nats)"
    python = result["machine"]["versions"]["python"]
    yield f"With the documentation of Python {python} it printed `{printed}`, as `lm.perplexity` does for this text."


def step_ratios():
    listed = "; ".join(f"{machine}: {_ratios_on(suffix)}" for suffix, machine in CPUS.items())
    yield f"The speed of an update, relative to plain PyTorch with the same memory options. {listed}. {AMD}"


def _ratios_on(suffix):
    ratios = {}
    for name in ("step", "books_step"):
        for label, result in benchmark(name, suffix):
            times = {key: run["seconds"]["median"] for key, run in result["candidates"].items()}
            ratios.setdefault(label, []).append(f"{times['torch_lm, freed memory kept'] / times['ours']:.2f}")
    return ", ".join(f"{label} {' and '.join(values)}" for label, values in ratios.items())


def books_best():
    run, peer = read("books_best/comparison")["systems"]["books_best"], read("books_best/torch_lm_1")
    (updates,) = run["validations"]
    yield " | parameters | updates | valid perplexity"
    perplexity = f"{peer['valid_perplexity']:.1f}"
    yield ["plain PyTorch, Adam", f"{peer['parameters']:,}", f"{peer['updates']:,}", perplexity]
    yield ["`books_best`", f"{run['parameters']:,}", f"{int(updates):,}", mean(run["valid"])]


def optimizers():
    systems = read("optimizers/comparison")["systems"]
    yield f" | {' | '.join(f'after {update} updates' for update in systems['adam']['validations'])} | seconds"
    for key, name in {"adam": "Adam, rate 3e-3", "muon": "Muon for the body, rate 1.2e-2"}.items():
        figures = systems[key]["validations"].values()
        cells = [" and ".join(f"{value:.1f}" for value in figure["runs"]) for figure in figures]
        yield [name, *cells, f"{systems[key]['seconds']['mean']:.0f}"]
    for rate in ("1e-3", "3e-3", "6e-3"):
        peer = read(f"optimizers/torch_lm_{rate}")
        figures = f"{peer['valid_perplexity']:.1f}", f"{peer['seconds']:.0f}"
        yield [f"plain PyTorch, Adam, rate {rate}", "", *figures]


def preparation():
    yield "measured with | time | peak memory"
    results = read(f"{BENCHMARKS}preparation")
    for processes, run in results["preparation"].items():
        memory = megabytes(run["peak_bytes"])
        if run["peak_bytes_of_another_process"]:
            memory += f", and {megabytes(run['peak_bytes_of_another_process'])} in each other process"
        speed = f"{run['seconds']:.0f} s, {run['bytes_per_second'] / 1e6:.0f} MB/s"
        yield [f"{results['text_bytes'] / 1e9:.1f} GB of text, {_processes(processes)}", speed, memory]
    run, sentences = results["preparation"]["1"], results["sentences"]
    yield [f"checksums of {megabytes(run['token_bytes'])} of tokens", f"{run['verify_seconds']:.1f} s", ""]
    index, order = sentences["index"], sentences["order"]
    many = f"{sentences['sentences'] / 1e6:.0f} million sentences, {sentences['tokens'] / 1e6:.0f} million tokens"
    yield [f"index of {many}", f"{index['seconds']:.0f} s", megabytes(index["peak_bytes"])]
    with_index = f"{megabytes(sentences['peak_bytes'])} with the index"
    yield ["order of an epoch of them", f"{order['seconds']:.0f} s", with_index]


def _processes(number):
    return f"{number} process{'es' * (number != '1')}"


def preparation_against_others():
    yield "text | prepared by | speed | ours ÷ it | peak memory of a process"
    for size in ("peers", "large"):
        results = read(f"{BENCHMARKS}preparation_{size}")
        runs, text = results["preparation"], f"{results['text_bytes'] / 1e9:.0f} GB"
        for processes, run in runs.items():
            most = megabytes(max(run["peak_bytes"], run["peak_bytes_of_another_process"]))
            yield [text, f"`prepare`, {_processes(processes)}", f"{run['bytes_per_second'] / 1e6:.0f} MB/s", "", most]
        for peer, figures in results.get("peers", {}).items():
            ratio = list(runs.values())[-1]["bytes_per_second"] / figures["bytes_per_second"]
            yield [text, PREPARED_BY[peer], f"{figures['bytes_per_second'] / 1e6:.0f} MB/s", f"{ratio:.1f}", ""]


def fault_injection():
    header = "training | kills | during a checkpoint | updates repeated"
    yield f"{header} | end, against an uninterrupted training"
    for kind, name in (("fault_injection", "Transformer"), ("fault_injection_streams", "AWD-LSTM, streams")):
        for backend, label in BACKENDS.items():
            result = read(f"{kind}_{backend}")
            run, updates = result["backends"][backend], result["settings"]["updates"]
            end = "different" if run["differences"] else "bit-identical"
            counts = [run[key] for key in ("kills", "in a checkpoint", "updates lost")]
            yield [f"{name}, {updates} updates, {label}", *counts, end]


def network_trials():
    header = "backend | trial | number | continued | resumed from a checkpoint | longest, s"
    yield f"{header} | end, against an undisturbed training"
    for backend, label in {"torch": "torch", "torchrun": "torch, by `torchrun`", **BACKENDS}.items():
        run = read(f"network_trials_{backend}")["backends"][backend]
        end = "different" if run["differences"] else "bit-identical"
        for kind in dict.fromkeys(row["kind"] for row in run["rows"]):
            rows = [row for row in run["rows"] if row["kind"] == kind]
            resumed = sum(row["resumed from"] is not None for row in rows)
            longest = f"{max(row['seconds'] for row in rows):.1f}"
            yield [label, kind, len(rows), len(rows) - resumed, resumed, longest, end]


def checkpoints():
    yield "backend | training waits for | of an update | `model.save` takes"
    for label, result in benchmark("checkpoints"):
        times = candidates(result)
        update = times["5 updates"][0] / result["settings"]["updates"]
        copy, save = times["its copy"][0], times["model.save"][0]
        yield [label, milliseconds(copy), f"{100 * copy / update:.0f} %", milliseconds(save)]


def scaling():
    header = " | update with 1, 2, 4 devices | share of the sums, 2, 4 | sent by each of 2, 4"
    yield f"{header} | weights and momentum on each"
    strategies = "torch_ddp jax_data_parallel tensorflow_multiworker tensorflow_mirrored jax_model_parallel"
    for name in strategies.split():
        result = read(f"{BENCHMARKS}scaling_{name}")
        cases = result["cases"]
        several = [case for case in cases if case["devices"] > 1]
        shares = [case["share_in_sums"] for case in several]
        shares = ", ".join("–" if share is None else f"{100 * share:.0f} %".replace("-", "−") for share in shares)
        times = ", ".join(f"{1000 * candidates(case)['update'][0]:,.0f}" for case in cases)
        sent = ", ".join(mebibytes(case["sent_bytes_of_a_device"]) for case in several)
        state = ", ".join(mebibytes(case["state_bytes_of_a_device"]) for case in cases)
        yield [f"`{result['settings']['strategy']}`", f"{times} ms", shares, f"{sent} MiB", f"{state} MiB"]


def serving():
    yield " | adaptive | plain softmax | all log-probabilities | requests/s, adaptive"
    for case in read(f"{BENCHMARKS}serving")["cases"]:
        runs, ours = case["candidates"], case["candidates"]["adaptive"]
        cells = []
        for name in ("adaptive", "full softmax", "all log-probabilities"):
            run = runs.get(name)
            text = f"{1000 * run['median']:,.0f} ms ({1000 * run['p99']:,.0f})" if run else ""
            cells.append(f"{text}, {run['median'] / ours['median']:.1f} ×" if run and run is not ours else text)
        lines = f"{case['batch_size']} line{'s' if case['batch_size'] > 1 else ''}"
        yield [f"`{case['signature']}`, {lines}", *cells, f"{ours['requests_per_second']:.1f}"]


def comparison():
    header = " | seeds | valid | test | test, known words | loss of rare words | parameters"
    yield f"{header} | time of an update ÷ ADP-T's | in the paper"
    systems, steps = read("comparison/comparison"), read("comparison/steps_torch")["candidates"]
    for name, system in systems.items():
        scores = [f"{system[key]:.{digits}f}" for key, digits in (("valid", 1), ("test", 1), ("known", 1), ("rare", 2))]
        ratio = steps[name]["seconds"]["median"] / steps["ADP-T"]["seconds"]["median"]
        yield [name, system["seeds"], *scores, f"{system['parameters']:,}", f"{ratio:.2f}", PAPER[name]]


def word_loss():
    yield "ours on | time ÷ PyTorch's | time ÷ floor | memory | PyTorch's memory"
    for suffix, dtype in (("", "float32"), ("_bfloat16", "mixed_bfloat16")):
        for label, result in benchmark("loss", suffix):
            times = candidates(result["cases"][0])
            (ours, memory), (peer, of_peer), (floor, _) = (times[name] for name in ("ours", "torch adaptive", "floor"))
            ratios = [f"{ours / peer:.2f}", f"{ours / floor:.2f}"]
            yield [f"{label}, {dtype}", *ratios, f"{memory:.0f} MiB", f"{of_peer:.0f} MiB"]


def plain_softmax():
    labels = "`cross_entropy`", "`linear_cross_entropy`", "the same, tuned"
    yield f"ours on | ÷ {' | ÷ '.join(labels)} | ÷ floor | memory | of {' | of '.join(labels)}"
    names = "cross_entropy", "linear_cross_entropy", "linear_cross_entropy, tuned"
    for label, result in benchmark("loss", "_full"):
        times = candidates(result["cases"][0])
        ours, *peers = (times[name] for name in ("ours", *(f"torch {name}" for name in names)))
        ratios = [f"{ours[0] / seconds:.2f}" for seconds, _ in (*peers, times["floor"])]
        yield [label, *ratios, *(f"{memory:.0f} MiB" for _, memory in (ours, *peers))]


def loss_rows():
    yield "ours on | rows | ms per row | ÷ PyTorch's time | memory | PyTorch's memory"
    for label, result in benchmark("loss", "_rows"):
        for case in result["cases"]:
            times, rows = candidates(case), case["rows"]
            (ours, memory), (peer, of_peer) = times["ours"], times["torch adaptive"]
            ratios = [f"{1000 * ours / rows:.2f}", f"{ours / peer:.2f}"]
            yield [label, f"{rows:,}", *ratios, f"{memory:,.0f} MiB", f"{of_peer:,.0f} MiB"]


def loss_tails():
    yield "ours on | all targets in the head | a quarter in the tails | all in the tails"
    for label, result in benchmark("loss", "_tails"):
        cells = []
        for times in map(candidates, result["cases"]):
            ratios = (times["ours"][0] / times[name][0] for name in ("torch adaptive", "floor"))
            cells.append(" and ".join(f"{ratio:.2f}" for ratio in ratios))
        yield [label, *cells]


def step():
    return _steps("", PEERS)


def step_avx512():
    return _steps("_avx512", PEERS)


def muon_step():
    yield " | an update | ÷ ours"
    result = read(f"{BENCHMARKS}books_step_torch_muon")["candidates"]
    for name, run in result.items():
        ratio = run["seconds"]["median"] / result["ours"]["seconds"]["median"]
        yield [name, f"{spread(run['seconds'])} ms", f"{ratio:.2f}"]


def step_bfloat16():
    return _steps("_bfloat16", FLOAT32)


def step_bfloat16_amx():
    return _steps("_bfloat16_amx", FLOAT32)


def _steps(suffix, others):
    header = f"model, backend | tokens/s | {' | '.join(others.values())} | an update | gradients of input and body"
    yield f"{header} | of the word loss | time ÷ matrix products"
    for name, model in (("step", "WikiText-103, scaled"), ("books_step", "books")):
        for label, result in benchmark(name, suffix):
            times = {key: run["seconds"]["median"] for key, run in result["candidates"].items()}
            ours = times["ours"]
            body, loss, floor = (result["parts"][part]["median"] for part in PARTS)
            speed = f"{result['candidates']['ours']['tokens_per_second']:,.0f}"
            ratios = [f"{times[key] / ours:.2f}" if key in times else "" for key in others]
            parts = map(milliseconds, (ours, body, loss))
            yield [f"{model}, {label}", speed, *ratios, *parts, f"{ours / floor:.2f}"]


def cnn_step():
    yield "backend | an update with the CNN | of ADP-T | ratio"
    for label, result in benchmark("cnn_step"):
        cnn, adp = (result["candidates"][name]["seconds"] for name in ("cnn", "adp_t"))
        yield [label, f"{spread(cnn)} ms", f"{spread(adp)} ms", f"{cnn['median'] / adp['median']:.2f}"]


def evaluation():
    yield f"ours on | tokens/s | time of the split | {' | '.join(EVALUATION_PEERS.values())}"
    for label, result in benchmark("evaluation"):
        ours, *peers = (result["candidates"][name] for name in ("ours", *EVALUATION_PEERS))
        speed = ours["tokens_per_second"]
        ratios = [f"{speed / peer['tokens_per_second']:.2f}" for peer in peers]
        yield [label, f"{speed:,.0f}", f"{spread(ours['seconds'])} ms", *ratios]


def cold_start():
    yield "backend | `trainers.score` of a line | `import keras` | ratio | `import keras_adaptive` after it"
    for label, result in benchmark("cold_start"):
        score, keras, ours = (result["candidates"][name] for name in ("score", "import keras", "import keras_adaptive"))
        times = [f"{run['median']:.1f} s ({run['low']:.1f}–{run['high']:.1f})" for run in (score, keras)]
        yield [label, *times, f"{score['median'] / keras['median']:.2f}", f"{spread(ours)} ms"]


def sampled_word():
    yield "backend | a word | the decoder alone | the head alone | word ÷ (decoder + head)"
    for label, result in benchmark("sampled_word"):
        times = [f"{spread(result['candidates'][name], 1)} ms" for name in ("word", "decoder", "head")]
        yield [label, *times, f"{result['ratio']:.2f}"]


def words_against_plain_programs():
    yield "texts at once | backend | plain program, plain softmax | ours, adaptive | ours, plain softmax"
    for name, number in (("peer_word", 1), ("peer_words", 64)):
        for label, result in benchmark(name):
            times = [result["candidates"][kind] for kind in ("plain program", "adaptive", "plain softmax")]
            cells = [f"{spread(time, 1)} ms, {time['median'] / times[0]['median']:.2f}" for time in times]
            yield [f"{number}", label, cells[0].split(",")[0], *cells[1:]]


def next_word():
    yield " | all log-probabilities | head alone | `top_k` 1 | `top_k` 10 | `sample`"
    for label, result in benchmark("generation"):
        for case in result["cases"]:
            times = {name: seconds for name, (seconds, _) in candidates(case).items()}
            everything = times.pop("log_probs")
            speeds = [f"{everything / times[name]:.2f}" for name in ("head alone", "top_k 1", "top_k 10", "sample")]
            yield [f"{label}, batch {case['batch_size']}", milliseconds(everything), *speeds]


def cache():
    results = dict(benchmark("cache"))
    yield "words before | " + " | ".join(f"{label}, with the cache | without" for label in results)
    for cases in zip(*(result["cases"] for result in results.values()), strict=True):
        times = [candidates(case) for case in cases]
        cells = [milliseconds(one[way][0]) for one in times for way in ("cached", "uncached")]
        yield [f"{cases[0]['length']:,}", *cells]


def page():
    yield " | score of 50 words | first word of a continuation | score, 8 clients at once | ready after"
    for label, result in benchmark("page"):
        times = [f"{spread(result['seconds'][kind])} ms" for kind in ("score", "generate", "8 clients")]
        yield [label, *times, f"{result['ready_seconds']:.0f} s"]
