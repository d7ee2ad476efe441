"""Times a generated word against the least that it needs: a step of the decoder and the head of the softmax.

    python -m scripts.benchmarks.sampled_word --backend=torch \
        --results=scripts/results/benchmarks/sampled_word_torch.json

The model is the paper's WikiText-103 model, scaled as in the benchmark of the step: its vocabulary and cutoffs, and 8
blocks of 512/2,048 with 8 heads. One text is continued by `stream` at temperature 1, with the cache of keys and values.
The decoder (from the token to the hidden state, with a cache of the same capacity) and the logits of the head are each
timed alone, in turns with `stream`. The weights are random, but the tails have about the probability of their words in
English text, so that a quarter of the words are drawn from a tail.
"""

import numpy as np
from absl import flags

from scripts.benchmarks import common, serving

FLAGS = flags.FLAGS
SETTINGS = ("backend", *common.MODEL_FLAGS, "tail_shares", "words")
WARMUP = 2  # number of turns that are not timed


def define_flags():
    body = {"num_blocks": 8, "dim": 512, "ffn_dim": 2048, "num_heads": 8}
    common.define_flags(15, vocabulary_size=267_744, cutoffs=["20000", "60000"], **body)
    flags.DEFINE_list("tail_shares", ["0.115", "0.145"], "Probability of each tail.")
    flags.DEFINE_integer("words", 20, "Number of words in a turn.", lower_bound=1)


def turns_of(model):
    """Returns the functions to time; each computes --words words and waits for every one."""
    from keras import ops

    from keras_adaptive.backend.compiled import compiled

    total = FLAGS.words * (WARMUP + FLAGS.repeats)
    stream = model.stream([[4]], total, seed=1)
    state = model.body.initial_state(1, total + 1)
    step = compiled(lambda tokens, state: model(tokens, state=state), model.variables, [1])
    head = compiled(model.word_output._head_logits, model.variables)
    hidden = ops.convert_to_tensor(np.random.default_rng(0).normal(size=(1, FLAGS.dim)).astype("float32"))

    def word():
        for _ in range(FLAGS.words):
            next(stream)

    def decoder_alone():
        nonlocal state
        for number in range(FLAGS.words):
            y, state = step(ops.convert_to_tensor(np.full((1, 1), number, "int32")), state)
            ops.convert_to_numpy(y)

    def head_alone():
        for _ in range(FLAGS.words):
            ops.convert_to_numpy(head(hidden))

    return {"word": word, "decoder": decoder_alone, "head": head_alone}


def main():
    model = common.build()
    serving.give_tails_their_share(model, np.random.default_rng(0))
    seconds = common.time_interleaved(turns_of(model), FLAGS.repeats, WARMUP)
    candidates = {name: common.spread([turn / FLAGS.words for turn in turns]) for name, turns in seconds.items()}
    ratio = candidates["word"]["median"] / (candidates["decoder"]["median"] + candidates["head"]["median"])
    rows = [[name, *common.milliseconds(time, 2)] for name, time in candidates.items()]
    common.print_table([FLAGS.backend, "ms", "span"], rows)
    print(f"word / (decoder + head): {ratio:.2f}")
    common.save(SETTINGS, ratio=ratio, candidates=candidates)


if __name__ == "__main__":
    common.run(main, define_flags)
