"""Scores lines of text: the log-probability of every token and the perplexity of every line.

The tokens are words or, in a run of sub-words, pieces of words; the perplexity is per word in either.

echo "The function returns a list ." | python -m trainers.score --run_dir=runs/quickstart
"""

import json
import math
import sys

import numpy as np
from absl import flags

from keras_adaptive.data import EOS, PAD
from trainers import command_line
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("run_dir", None, "Folder of a trained run.", required=True)
    flags.DEFINE_string("input", None, "UTF-8 text, one line scored at a time; by default the standard input.")
    flags.DEFINE_enum("format", "table", ["table", "json"], "A table to read, or one JSON object a line.")
    flags.DEFINE_bool("open_vocabulary", False, "Unknown words enter by their bytes (char_cnn models, not streamed).")
    flags.DEFINE_enum("model", "best", ["best", "last"], "Which of the run's models.")


LENGTH_STEP = 32  # lengths are rounded up to a multiple, since compiled backends compile for each


def main():
    run = RunFolder(FLAGS.run_dir)
    vocabulary, tokenize = run.vocabulary(), run.tokenize()
    lines, extra = ([*tokenize(line), "</s>"] for line in read_lines()), None
    if FLAGS.open_vocabulary:
        lines = list(lines)
        extra = list(dict.fromkeys(word for tokens in lines for word in vocabulary.unknown(tokens)))
    model = run.model(FLAGS.model).for_inference(extra)
    for number, tokens in enumerate(lines, 1):
        log_probs = score(model, vocabulary.encode(tokens), vocabulary.encode(tokens, extra or ()))
        unknown, words = vocabulary.unknown(tokens), run.count_words(tokens)
        if FLAGS.format == "json":
            print_json(tokens, log_probs, unknown, words)
        else:
            print_table(number, tokens, log_probs, unknown, words)


def read_lines():
    """The lines of --input or of the standard input, each an error naming its number if it is no UTF-8."""
    source = open(FLAGS.input, "rb") if FLAGS.input else sys.stdin.buffer
    with source:
        for number, line in enumerate(source, 1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"Line {number} is not UTF-8 ({error.reason}): convert the text to UTF-8.") from None


def score(model, targets, inputs):
    """Log-probabilities of the ids of a line; the line starts behind a `</s>`. Inputs may hold extra words."""
    length = -(-len(targets) // LENGTH_STEP) * LENGTH_STEP
    padded = np.full((2, length), PAD, "int32")
    padded[0, 0], padded[0, 1 : len(inputs)], padded[1, : len(targets)] = EOS, inputs[:-1], targets
    return -model.nll(padded[:1], padded[1:])[0, : len(targets)].astype("float64")


def print_table(number, tokens, log_probs, unknown, words):
    for token, log_prob in zip(tokens, log_probs):
        print(f"{log_prob:10.4f}  {token}{'  (scored as <unk>)' if token in unknown else ''}")
    counted = f"{len(tokens)} tokens" if words == len(tokens) else f"{words} words in {len(tokens)} tokens"
    print(
        f"line {number}: log-probability {log_probs.sum():.4f}, {counted}, perplexity "
        f"{math.exp(-log_probs.sum() / words):.2f}\n",
        flush=True,
    )


def print_json(tokens, log_probs, unknown, words):
    record = {
        "tokens": tokens,
        "words": words,
        "log_probs": [round(value, 6) for value in log_probs.tolist()],
        "log_prob": float(log_probs.sum()),
        "perplexity": math.exp(-log_probs.sum() / words),
        "unknown": unknown,
    }
    print(json.dumps(record, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    command_line.run(main, define_flags)
