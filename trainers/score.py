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
    flags.DEFINE_enum("model", "best", ["best", "last"], "Which of the run's models.")


LENGTH_STEP = 32  # lengths are rounded up to a multiple, since compiled backends compile for each


def main():
    run = RunFolder(FLAGS.run_dir)
    vocabulary, tokenize, model = run.vocabulary(), run.tokenize(), run.model(FLAGS.model)
    for number, line in enumerate(read_lines(), 1):
        tokens = [*tokenize(line), "</s>"]
        log_probs = score(model, vocabulary.encode(tokens[:-1]))
        unknown = vocabulary.unknown(tokens[:-1])
        words = run.count_words(tokens)
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


def score(model, ids):
    """Log-probabilities of the ids of a line and of `</s>` behind them; the line starts behind a `</s>`."""
    targets = np.append(ids, EOS)
    length = -(-len(targets) // LENGTH_STEP) * LENGTH_STEP
    padded = np.full((1, length), PAD, "int32")
    padded[0, : len(targets)] = targets
    inputs = np.concatenate([[[EOS]], padded[:, :-1]], axis=1)
    return -model.nll(inputs.astype("int32"), padded)[0, : len(targets)].astype("float64")


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
