"""Seconds per generated word, by how much stands before it: with the cache of keys and values, and without.

    python scripts/benchmark_cache.py --backend=torch --results=scripts/results/benchmarks/cache_torch.json

With the cache: the words of one call of `stream`, those before each of --lengths. Without: a pass over as many tokens
for a single word. Random weights and tokens, drawn exactly at temperature 1.
"""

import itertools
import time

import numpy as np
from absl import app, flags

import benchmarking

FLAGS = flags.FLAGS
SETTINGS = ("backend", "vocabulary", "cutoffs", "blocks", "dim", "ffn", "heads", "batch_size")


def define_flags():
    flags.DEFINE_enum("backend", "torch", ["tensorflow", "jax", "torch"], "Backend of Keras.")
    flags.DEFINE_integer("vocabulary", 50_000, "Number of words.", lower_bound=1)
    flags.DEFINE_list("cutoffs", ["4000", "16000"], "First id of every tail.")
    flags.DEFINE_integer("blocks", 8, "Transformer blocks.", lower_bound=1)
    flags.DEFINE_integer("dim", 512, "Width of the model.", lower_bound=4)
    flags.DEFINE_integer("ffn", 2048, "Width of the feed-forward layers.", lower_bound=1)
    flags.DEFINE_integer("heads", 8, "Attention heads.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 1, "Texts at a time.", lower_bound=1)
    flags.DEFINE_list("lengths", ["64", "512", "1024", "2048"], "Words before the one that is timed, ascending.")
    flags.DEFINE_integer("repeats", 15, "Words timed at each length.", lower_bound=1)
    flags.DEFINE_string("results", None, "JSON file to write.")


def make_model():
    from keras_adaptive.models import transformer_lm

    cutoffs = [int(cutoff) for cutoff in FLAGS.cutoffs]
    return transformer_lm(
        FLAGS.vocabulary,
        dim=FLAGS.dim,
        num_blocks=FLAGS.blocks,
        num_heads=FLAGS.heads,
        ffn_dim=FLAGS.ffn,
        cutoffs=cutoffs,
    )


def cached(model, lengths):
    """`{length: seconds of the last words before it}` of one text as long as the longest."""
    prompt = np.full((FLAGS.batch_size, 1), 2)
    for _ in model.stream(prompt, 2):  # compiles
        pass
    ends = [time.perf_counter() for _ in model.stream(prompt, lengths[-1], seed=1)]
    seconds = np.array([end - start for start, end in itertools.pairwise(ends)])
    return {length: seconds[: length - 1][-FLAGS.repeats :].tolist() for length in lengths}


def uncached(model, length):
    """Seconds of a word behind so many, from nothing."""
    prompt = np.random.default_rng(length).integers(0, FLAGS.vocabulary, (FLAGS.batch_size, length))
    turns = benchmarking.in_turns({"": lambda: model.generate(prompt, 1, seed=1)}, FLAGS.repeats)
    return turns[""]


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    benchmarking.choose_backend(FLAGS.backend)
    model, lengths, cases, rows = make_model(), [int(length) for length in FLAGS.lengths], [], []
    for length, times in cached(model, lengths).items():
        seconds = {"cached": times, "uncached": uncached(model, length)}
        candidates = {name: benchmarking.spread(values) for name, values in seconds.items()}
        cases.append({"length": length, "candidates": candidates})
        with_cache, without = (candidates[name]["median"] for name in ("cached", "uncached"))
        rows.append([length, f"{1e3 * with_cache:.1f}", f"{1e3 * without:.1f}", f"{without / with_cache:.1f}"])
    benchmarking.print_table(["words before", "ms with cache", "ms without", "times as fast"], rows)
    benchmarking.save(SETTINGS, cases=cases)


if __name__ == "__main__":
    define_flags()
    app.run(main)
