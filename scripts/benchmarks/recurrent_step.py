"""Times whole training steps of AWD-LSTM against AWD-QRNN of the same sizes and against the PyTorch program in peers/.

    python -m scripts.benchmarks.recurrent_step --backend=torch --data_dir=data/books \\
        --results=scripts/results/benchmarks/recurrent_step_torch.json
    python -m scripts.benchmarks.recurrent_step --backend=torch --data_dir=data/books --num_layers=3

A step is forward, backward, clipping and Adam, with the dropout and the penalties of the flagfile. The state is carried
along the streams. All models read the same text in batches of a single length, a few updates in turn: this package by
`fit`, and the peer in its own loop and process, once as any program and once with the memory options of this package's
programs. The QRNN has the layers and units of the LSTM.
"""

import itertools
import time

import numpy as np
from absl import flags

from scripts.benchmarks import common, step, systems
from scripts.benchmarks.own_process import in_own_process
from trainers.support import command_line

FLAGS = flags.FLAGS
QRNN = ("--body=qrnn", "--weight_dropout=0")  # configs/books_awd_qrnn.flags, except for the number of layers


def define_flags():
    common.define_flags(7)
    command_line.define_path("data_dir", None, "Corpus of words.", required=True)
    command_line.define_path("system", "configs/books_awd_lstm.flags", "Flagfile of trainers.train with an AWD-LSTM.")
    flags.DEFINE_integer(
        "num_layers", None, "Number of layers of all models; by default as in the flagfile.", lower_bound=1
    )
    flags.DEFINE_string("dtype", "float32", "Keras dtype policy of this package. The peer runs in float32.")


def main():
    from trainers.experiments.experiment import Experiment, row_length

    arguments = [f"--flagfile={FLAGS.system}", f"--data_dir={FLAGS.data_dir}", f"--dtype={FLAGS.dtype}"]
    arguments += [] if FLAGS.num_layers is None else [f"--num_layers={FLAGS.num_layers}"]
    lstm, qrnn = (Experiment.of_arguments([*arguments, *body]) for body in ((), QRNN))
    made = {"awd_lstm": systems.training(lstm), "awd_qrnn": systems.training(qrnn)}
    for name, keep in {"torch_awd_lstm": False, "torch_awd_lstm, freed memory kept": True}.items():
        made[name] = in_own_process(peer_turn, arguments, keep_freed_memory=keep)
    turns = {name: turn for name, (turn, _) in made.items()}
    parameters = {name: count for name, (_, count) in made.items()}
    tokens = dict.fromkeys(made, lstm.settings["batch_size"] * row_length(lstm.settings))
    results = step.report_speeds(common.time_interleaved(turns, FLAGS.repeats, timed=True), parameters, tokens)
    settings = {name: value for name, value in lstm.settings.items() if name != "data_dir"}
    common.save(("backend",), {**lstm.parts, **settings}, candidates=results)


def peer_turn(arguments):
    """Returns `fit_turn` for the peer, with the sizes and rates of an experiment, and its parameters."""
    import torch

    from keras_adaptive.data import load_corpus
    from scripts.benchmarks.peers.torch_awd_lstm import AWDLSTM, Trainer
    from trainers.experiments.experiment import Experiment

    experiment = Experiment.of_arguments(arguments)
    given, corpus = experiment.settings, load_corpus(experiment.settings["data_dir"])
    dims = [given["dim"], *[given["units"]] * (given["num_layers"] - 1), given["dim"]]
    model = AWDLSTM(
        len(corpus.vocabulary),
        given["cutoffs"],
        dims,
        weight_drop=given["weight_dropout"],
        dropout=[given[f"{place}_dropout"] for place in ("vector", "hidden", "output")],
        penalties=(given["activation_penalty"], given["temporal_penalty"]),
    )
    trainer = Trainer(model, given["max_rate"], given["clip_norm"])
    batches = experiment.batches(corpus.tokens("train"), shuffle=False).batches(0)

    def turn():
        times = []
        for (tokens, _), targets, _ in itertools.islice(batches, step.UPDATES + 1):
            trainer.update(*(torch.from_numpy(np.ascontiguousarray(ids.T)).long() for ids in (tokens, targets)))
            times.append(time.perf_counter())
        return [end - start for start, end in itertools.pairwise(times)]

    return turn, sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    common.run(main, define_flags)
