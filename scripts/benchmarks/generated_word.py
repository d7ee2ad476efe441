"""Measures the time of a generated word by the number of words before it, for bodies with a short state.

    python -m scripts.benchmarks.generated_word --backend=torch \
        --results=scripts/results/benchmarks/generated_word_torch.json

The bodies are an NPLM, the first layer of Transformer-C, which attends to five tokens, and for comparison a layer that
attends to all tokens. The state of each body first reads a random vector for every preceding word. Steps of one word
are then timed, for all bodies and lengths in turns. The sizes are those of the WikiText-103 models of Sun & Iyyer
(2021). The output layer is omitted, because it does not depend on the preceding words.
"""

import numpy as np
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS
SEGMENT = 256  # words that the state reads at a time
SIZES = ("num_blocks", "dim", "ffn_dim", "num_heads")
SETTINGS = ("backend", *SIZES, "batch_size", "words", "num_local", "num_global", "global_window", "attention_window")


def define_flags():
    sizes = {"num_blocks": 16, "dim": 410, "ffn_dim": 2100, "num_heads": 10}
    common.define_flags(15, "Timed turns of each body and length.", **sizes)
    flags.DEFINE_integer("batch_size", 1, "Number of texts at a time.", lower_bound=1)
    flags.DEFINE_integer("words", 20, "Number of words in a turn.", lower_bound=1)
    flags.DEFINE_integer("num_local", 15, "Number of tokens that the NPLM concatenates.", lower_bound=1)
    flags.DEFINE_integer("num_global", 5, "Number of averages that the NPLM concatenates.", lower_bound=1)
    flags.DEFINE_integer("global_window", 496, "Number of tokens in an average.", lower_bound=1)
    flags.DEFINE_integer("attention_window", 5, "Attention window of the layer of Transformer-C.", lower_bound=1)
    flags.DEFINE_list("lengths", ["64", "2048"], "Numbers of preceding words. Times are relative to the first.")


def bodies():
    """Returns `{name: body}`, each with its own random weights."""
    import keras

    from keras_adaptive.layers import NPLMDecoder
    from keras_adaptive.models import hybrid_transformer

    keras.utils.set_random_seed(1)
    context = {name: FLAGS[name].value for name in ("num_local", "num_global", "global_window")}
    layer = {**{name: FLAGS[name].value for name in SIZES}, "num_blocks": 1}
    made = {
        "NPLM": NPLMDecoder(FLAGS.num_blocks, FLAGS.ffn_dim, **context),
        "layer of Transformer-C": hybrid_transformer(attention_window=FLAGS.attention_window, **layer),
        "layer of a Transformer": hybrid_transformer(**layer),
    }
    for body in made.values():
        body.build((None, None, FLAGS.dim))
    return made


def words_after(body, length):
    """Returns a function that computes --words steps after `length` words, and waits for their results."""
    import keras

    from keras_adaptive.backend.compiled import compiled

    x = np.random.default_rng(length).normal(size=(FLAGS.batch_size, length, FLAGS.dim)).astype("float32")
    step = compiled(body.step, body.variables)
    state = body.initial_state(FLAGS.batch_size, length + FLAGS.words)
    for start in range(0, length, SEGMENT):
        _, state = step(keras.ops.convert_to_tensor(x[:, start : start + SEGMENT]), state)
    word = keras.ops.convert_to_tensor(x[:, :1])

    def run():
        y, after = word, state
        for _ in range(FLAGS.words):
            y, after = step(y, after)
        keras.ops.convert_to_numpy(y)

    return run


def main():
    made, lengths = bodies(), [int(length) for length in FLAGS.lengths]
    turns = {(name, length): words_after(body, length) for name, body in made.items() for length in lengths}
    seconds = common.time_interleaved(turns, FLAGS.repeats)
    cases, rows = [], []
    for name in made:
        candidates = {
            str(length): common.spread([turn / FLAGS.words for turn in seconds[name, length]]) for length in lengths
        }
        medians = [candidates[str(length)]["median"] for length in lengths]
        cases.append({"body": name, "candidates": candidates, "ratios": [median / medians[0] for median in medians]})
        rows += [
            [name if length == lengths[0] else "", length, f"{1e3 * median:.2f}", f"{median / medians[0]:.2f}"]
            for length, median in zip(lengths, medians)
        ]
    common.print_table(["body", "words before", "ms a word", f"÷ after {lengths[0]}"], rows)
    common.save(SETTINGS, cases=cases)


if __name__ == "__main__":
    common.run(main, define_flags)
