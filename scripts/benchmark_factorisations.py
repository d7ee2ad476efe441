"""Training steps of the same decoder with other inputs and outputs, beside that of ADP-T, on real text.

    python scripts/benchmark_factorisations.py --data_dir=data/books --backend=torch
    python scripts/benchmark_factorisations.py --data_dir=data/books --backend=jax --names=ADP-T,CNN

A step is forward, backward, clip and NAG, on the batches of the corpus in the order of training, by `fit`. The models
take turns in one process. The paper's times (Baevski & Auli 2019, table 3) are in hours of training.
"""

from absl import app, flags

import benchmarking
from benchmark_step import fit_turn

FLAGS = flags.FLAGS
PAPER_HOURS = {"SM": 57, "BPE": 30, "BPE-T": 30, "SM-T": 56, "ASM": 35, "CNN": 70, "ADP": 34, "ADP-T": 30}
NAMES = ["ADP-T", "ADP", "ASM", "CNN", "SM", "SM-T"]  # of the models of words


def define_flags():
    flags.DEFINE_string("data_dir", None, "Folder made by scripts/prepare_corpus.py.", required=True)
    flags.DEFINE_enum("backend", "torch", ["tensorflow", "jax", "torch"], "Backend.")
    flags.DEFINE_string("dtype", "float32", "Keras dtype policy.")
    flags.DEFINE_list(
        "names", ["ADP-T", "CNN"], f"Of {', '.join(NAMES)}; the first is what the others are held against."
    )
    flags.DEFINE_list("cutoffs", ["4000", "16000"], "First id of every tail.")
    flags.DEFINE_integer("blocks", 8, "Transformer blocks.", lower_bound=1)
    flags.DEFINE_integer("dim", 512, "Width of the model.", lower_bound=4)
    flags.DEFINE_integer("ffn", 2048, "Width of the feed-forward layers.", lower_bound=1)
    flags.DEFINE_integer("heads", 8, "Attention heads.", lower_bound=1)
    flags.DEFINE_integer("length", 512, "Tokens of a block.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 8, "Blocks of an update.", lower_bound=1)
    flags.DEFINE_integer("repeats", 5, "Timed turns.", lower_bound=1)
    flags.DEFINE_string("results", None, "JSON file to write.")


def make_model(name, vocabulary):
    from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, CharCNN, TransformerDecoder, WordEmbedding
    from keras_adaptive.models import LanguageModel
    from keras_adaptive.optimizers import NAG

    size, cutoffs, dim = len(vocabulary), [int(cutoff) for cutoff in FLAGS.cutoffs], FLAGS.dim
    plain = name.startswith("SM")
    word_input = {
        "ADP": lambda: AdaptiveEmbedding(size, dim, cutoffs, dtype=FLAGS.dtype),
        "ASM": lambda: WordEmbedding(size, dim // 16, dtype=FLAGS.dtype),
        "CNN": lambda: CharCNN(vocabulary.words, dim, dtype=FLAGS.dtype),
        "SM": lambda: WordEmbedding(size, dim // 2, dtype=FLAGS.dtype),
    }[name.removesuffix("-T")]()
    body = TransformerDecoder(
        FLAGS.blocks, dim, FLAGS.ffn, FLAGS.heads, output_dim=dim // 2 if plain else None, dtype=FLAGS.dtype
    )
    tied_to = word_input if name.endswith("-T") else None
    model = LanguageModel(
        word_input, body, AdaptiveSoftmax(size, () if plain else cutoffs, tied_to=tied_to, dtype=FLAGS.dtype)
    )
    model.compile(NAG(1e-3, momentum=0.99, global_clipnorm=0.1))
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


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    benchmarking.choose_backend(FLAGS.backend)
    from keras_adaptive.data import BlockBatches, load_corpus

    unknown = sorted(set(FLAGS.names) - set(NAMES))
    if unknown:
        raise app.UsageError(f"--names must be of {', '.join(NAMES)}. Received: {', '.join(unknown)}.")
    corpus = load_corpus(FLAGS.data_dir)
    batches = BlockBatches(corpus.tokens("train"), FLAGS.length, FLAGS.batch_size, seed=1)
    turns, parameters = {}, {}
    for name in FLAGS.names:
        model = make_model(name, corpus.vocabulary)
        data = ((tokens, targets) for tokens, targets, _ in batches.batches(0))
        turns[name], parameters[name] = fit_turn(model, data), model.count_params()
    results = report(
        benchmarking.in_turns(turns, FLAGS.repeats, timed=True), parameters, FLAGS.batch_size * FLAGS.length
    )
    if FLAGS.results:
        names = ("backend", "dtype", "cutoffs", "blocks", "dim", "ffn", "heads", "length", "batch_size")
        settings = {"corpus": corpus.metadata["source"], **{name: FLAGS[name].value for name in names}}
        benchmarking.save(
            FLAGS.results, {"machine": benchmarking.machine(), "settings": settings, "candidates": results}
        )


if __name__ == "__main__":
    define_flags()
    app.run(main)
