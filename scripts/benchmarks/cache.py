"""Measures seconds per generated word, by the length of the text before it, with and without the cache.

    python -m scripts.benchmarks.cache --backend=torch --results=scripts/results/benchmarks/cache_torch.json

The cache holds keys and values. With the cache, the last words before each of --lengths are timed in one call of
`stream`. Without it, each word needs a pass over the whole text. Weights and tokens are random. Words are sampled
exactly at temperature 1.
"""

import itertools
import math
import time

import numpy as np
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS
SETTINGS = ("backend", *common.MODEL_FLAGS, "batch_size")


def define_flags():
    sizes = {"vocabulary_size": 50_000, "cutoffs": ["4000", "16000"]}
    body = {"num_blocks": 8, "dim": 512, "ffn_dim": 2048, "num_heads": 8}
    common.define_flags(15, "Words timed at each length.", **sizes, **body)
    flags.DEFINE_integer("batch_size", 1, "Number of texts at a time.", lower_bound=1)
    flags.DEFINE_bool("uncached", True, "Also time words without the cache.")
    flags.DEFINE_list(
        "lengths", ["64", "512", "1024", "2048"], "Numbers of words before the timed word, in ascending order."
    )


def cached(model, lengths):
    """Returns `{length: seconds of the last words before it}` of one text of the longest length."""
    prompt = np.full((FLAGS.batch_size, 1), 2)
    for _ in model.stream(prompt, 2):  # compiles
        pass
    ends = [time.perf_counter() for _ in model.stream(prompt, lengths[-1], seed=1)]
    seconds = np.array([end - start for start, end in itertools.pairwise(ends)])
    return {length: seconds[: length - 1][-FLAGS.repeats :].tolist() for length in lengths}


def uncached(model, length):
    """Returns the seconds of a word after `length` others, from the empty state."""
    prompt = np.random.default_rng(length).integers(0, FLAGS.vocabulary_size, (FLAGS.batch_size, length))
    turns = common.time_interleaved({"": lambda: model.generate(prompt, 1, seed=1)}, FLAGS.repeats)
    return turns[""]


def main():
    model, lengths, cases, rows = common.build(), [int(length) for length in FLAGS.lengths], [], []
    for length, times in cached(model, lengths).items():
        seconds = {"cached": times} | ({"uncached": uncached(model, length)} if FLAGS.uncached else {})
        candidates = {name: common.spread(values) for name, values in seconds.items()}
        cases.append({"length": length, "candidates": candidates})
        with_cache, without = (candidates.get(name, {"median": math.nan})["median"] for name in ("cached", "uncached"))
        rows.append([length, f"{1e3 * with_cache:.1f}", f"{1e3 * without:.1f}", f"{without / with_cache:.1f}"])
    common.print_table(["words before", "ms with cache", "ms without", "times as fast"], rows)
    common.save(SETTINGS, cases=cases)


if __name__ == "__main__":
    common.run(main, define_flags)
