"""Tables of the recurrent models; a function for each."""

import math

from scripts.tables.results import benchmark, candidates, milliseconds, read, spread


def _recurrent(unit, names, score):
    for key, name in names.items():
        system = read(f"recurrent/{unit}/comparison")["systems"][key]
        scores = [score(system[split]["mean"]) for split in ("valid", "test")]
        rare = [f"{system['rare']['mean']:.2f}"] if unit == "words" else []
        yield [name, f"{system['parameters']:,}", f"{system['seconds']['mean']:.0f}", *scores, *rare]


def recurrent_words():
    yield " | parameters | seconds | valid | test | loss of rare words"
    names = {"adp_t": "ADP-T", "awd_lstm": "AWD-LSTM", "awd_qrnn": "AWD-QRNN", "sm_t": "SM-T"}
    yield from _recurrent("words", names, "{:.1f}".format)


def recurrent_characters():
    yield " | parameters | seconds | bits per character, valid | test"
    names = {"characters_lstm": "LSTM", "characters_qrnn": "QRNN, window 2"}
    yield from _recurrent("characters", names, lambda perplexity: f"{math.log2(perplexity):.3f}")


def search():
    yield " | importance | 80 % of forests of resampled trials"
    result = read("search/search")
    for name, figures in result["importances"].items():
        importance, low, high = (f"{figures[key]:.2f}" for key in ("importance", "low", "high"))
        yield [f"`{name}`", importance, f"{low}–{high}"]
    trials = sorted(trial["perplexity"] for trial in result["trials"])
    yield f"Out-of-bag R² {result['r2']:.2f}; perplexities {trials[0]:.0f} to {trials[-1]:.0f}."


def recurrent_step():
    header = " | AWD-LSTM | AWD-QRNN | PyTorch | LSTM ÷ QRNN | speed of the LSTM ÷ PyTorch's"
    yield f"{header} | ÷ PyTorch's that keeps memory"
    for label, result in benchmark("recurrent_step"):
        names = "awd_lstm", "awd_qrnn", "torch_awd_lstm", "torch_awd_lstm, freed memory kept"
        lstm, qrnn, peer, keeping = (result["candidates"][name]["seconds"] for name in names)
        pairs = (lstm, qrnn), (peer, lstm), (keeping, lstm)
        ratios = [f"{other['median'] / base['median']:.2f}" for other, base in pairs]
        yield [label, spread(lstm), spread(qrnn), spread(peer), *ratios]


def recurrence():
    yield "ours on | LSTM | ÷ `torch.nn.LSTM` | QRNN pooling"
    for suffix, dtype in (("", "float32"), ("_bfloat16", "mixed_bfloat16")):
        for label, result in benchmark("recurrence", suffix):
            lstm, pooling = (candidates(case) for case in result["cases"])
            ours, peer = lstm["ours"][0], lstm["torch.nn.LSTM"][0]
            row = [milliseconds(ours), f"{ours / peer:.2f}", milliseconds(pooling["ours"][0])]
            yield [f"{label}, {dtype}", *row]
