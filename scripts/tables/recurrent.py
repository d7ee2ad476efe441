"""Tables of the recurrent models; a function for each."""

import math

from scripts.tables.results import benchmark, candidates, milliseconds, read, spread, table


def _recurrent(unit, names, score):
    rows = []
    for key, name in names.items():
        system = read(f"recurrent/{unit}/comparison")["systems"][key]
        scores = [score(system[split]["mean"]) for split in ("valid", "test")]
        rare = [f"{system['rare']['mean']:.2f}"] if unit == "words" else []
        rows.append([name, f"{system['parameters']:,}", f"{system['seconds']['mean']:.0f}", *scores, *rare])
    return rows


def recurrent_words():
    names = {"adp_t": "ADP-T", "awd_lstm": "AWD-LSTM", "awd_qrnn": "AWD-QRNN", "sm_t": "SM-T"}
    rows = _recurrent("words", names, "{:.1f}".format)
    return table(" | parameters | seconds | valid | test | loss of rare words", rows)


def recurrent_characters():
    names = {"characters_lstm": "LSTM", "characters_qrnn": "QRNN, window 2"}
    rows = _recurrent("characters", names, lambda perplexity: f"{math.log2(perplexity):.3f}")
    return table(" | parameters | seconds | bits per character, valid | test", rows)


def search():
    rows = []
    for name, figures in read("search/search")["importances"].items():
        importance, low, high = (f"{figures[key]:.2f}" for key in ("importance", "low", "high"))
        rows.append([f"`{name}`", importance, f"{low}–{high}"])
    trials = sorted(trial["perplexity"] for trial in read("search/search")["trials"])
    facts = f"\nOut-of-bag R² {read('search/search')['r2']:.2f}; perplexities {trials[0]:.0f} to {trials[-1]:.0f}.\n"
    return table(" | importance | 80 % of forests of resampled trials", rows) + facts


def recurrent_step():
    rows = []
    for label, result in benchmark("recurrent_step"):
        names = "awd_lstm", "awd_qrnn", "torch_awd_lstm", "torch_awd_lstm, freed memory kept"
        lstm, qrnn, peer, keeping = (result["candidates"][name]["seconds"] for name in names)
        pairs = (lstm, qrnn), (peer, lstm), (keeping, lstm)
        ratios = [f"{other['median'] / base['median']:.2f}" for other, base in pairs]
        rows.append([label, spread(lstm), spread(qrnn), spread(peer), *ratios])
    header = " | AWD-LSTM | AWD-QRNN | PyTorch | LSTM ÷ QRNN | speed of the LSTM ÷ PyTorch's"
    return table(f"{header} | ÷ PyTorch's that keeps memory", rows)


def recurrence():
    rows = []
    for suffix, dtype in (("", "float32"), ("_bfloat16", "mixed_bfloat16")):
        for label, result in benchmark("recurrence", suffix):
            lstm, pooling = (candidates(case) for case in result["cases"])
            ours, peer = lstm["ours"][0], lstm["torch.nn.LSTM"][0]
            rows.append(
                [f"{label}, {dtype}", milliseconds(ours), f"{ours / peer:.2f}", milliseconds(pooling["ours"][0])]
            )
    return table("ours on | LSTM | ÷ `torch.nn.LSTM` | QRNN pooling", rows)
