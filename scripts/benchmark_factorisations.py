"""Training steps of the same decoder with other inputs and outputs, beside that of ADP-T, on real text.

    KERAS_BACKEND=torch python scripts/benchmark_factorisations.py --data_dir=data/books --names=ADP-T,CNN \\
        --num_blocks=8 --dim=512 --ffn_dim=2048 --length=512 --batch_size=8 --dropout=0 --max_rate=1e-3
    KERAS_BACKEND=jax python scripts/benchmark_factorisations.py --data_dir=data/books \\
        --subword_dir=data/books_bpe --names=ADP-T,BPE-T,SM-T --flagfile=configs/books_comparison.flags

All flags of the decoder, the batches and the optimizer are those of trainers.train. A step is forward, backward, clip
and update, on the batches of the corpus in the order of training, by `fit`. The models take turns in one process. The
paper's times (Baevski & Auli 2019, table 3) are in hours of training.
"""

import sys

import keras
from absl import flags
from absl.testing import flagsaver

import benchmarking
from benchmark_step import fit_turn
from factorisations import MODELS, PAPER_HOURS, check_names, model_flags, reads_pieces
from keras_adaptive.data import load_corpus
from trainers import command_line, experiment

FLAGS = flags.FLAGS
SETTINGS = ("dtype", "cutoffs", "num_blocks", "dim", "ffn_dim", "num_heads", "length", "batch_size", "optimizer")


def define_flags():
    experiment.define_flags()
    flags.DEFINE_list("names", ["ADP-T", "CNN"], f"Of {', '.join(MODELS)}; the first is what others are held against.")
    flags.DEFINE_string("subword_dir", None, "Corpus of sub-words of the same text, for BPE and BPE-T.")
    flags.DEFINE_integer("repeats", 5, "Timed turns.", lower_bound=1)
    flags.DEFINE_string("results", None, "JSON file to write.")


@flagsaver.flagsaver
def make_model(name, vocabulary):
    FLAGS([sys.argv[0], *model_flags(name, FLAGS.dim)])
    model = experiment.build_model(vocabulary)
    model.compile(experiment.build_optimizer(), micro_batches=FLAGS.micro_batches)
    return model


def report(seconds, parameters, tokens):
    results, rows = {}, []
    first = next(iter(seconds))
    base = benchmarking.spread(seconds[first])["median"]
    for name, times in seconds.items():
        time = benchmarking.spread(times)
        results[name] = {"seconds": time, "tokens_per_second": tokens / time["median"], "parameters": parameters[name]}
        span = f"{1e3 * time['low']:.0f}–{1e3 * time['high']:.0f}"
        paper = f"{PAPER_HOURS[name] / PAPER_HOURS[first]:.2f}"
        rows.append(
            [name, f"{parameters[name]:,}", f"{1e3 * time['median']:.0f}", span, f"{time['median'] / base:.2f}", paper]
        )
    benchmarking.print_table(["", "parameters", "ms", "span", f"time / {first}'s", "in the paper"], rows)
    return results


def main():
    check_names(FLAGS.names, FLAGS.subword_dir)
    turns, parameters = {}, {}
    for name in FLAGS.names:
        corpus = load_corpus(FLAGS.subword_dir if reads_pieces(name) else FLAGS.data_dir)
        batches = experiment.build_batches(corpus.tokens("train"))
        model = make_model(name, corpus.vocabulary)
        data = ((tokens, targets) for tokens, targets, _ in batches.batches(0))
        turns[name], parameters[name] = fit_turn(model, data), model.count_params()
    results = report(
        benchmarking.in_turns(turns, FLAGS.repeats, timed=True), parameters, FLAGS.batch_size * FLAGS.length
    )
    settings = {"corpus": corpus.metadata["source"], "backend": keras.config.backend()}
    benchmarking.save(SETTINGS, settings, candidates=results)


if __name__ == "__main__":
    command_line.run(main, define_flags)
