"""Tables of the recurrent models; a function for each."""

from scripts.tables.results import benchmark, candidates, milliseconds, read, spread


def recurrent_words():
    yield " | parameters | updates | seconds | valid | test | loss of rare words"
    names = {"adp_t": "ADP-T", "awd_lstm": "AWD-LSTM", "awd_qrnn": "AWD-QRNN", "sm_t": "SM-T"}
    systems = read("recurrent/words/comparison")["systems"]
    for name, system in systems.items():
        updates = int(list(system["validations"])[-1])
        figures = [f"{system['parameters']:,}", f"{updates:,}", f"{system['seconds']['mean']:.0f}"]
        scores = [f"{system[key]['mean']:.{digits}f}" for key, digits in (("valid", 1), ("test", 1), ("rare", 2))]
        yield [names[name], *figures, *scores]


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
