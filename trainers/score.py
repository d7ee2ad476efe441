"""Scores lines of text: log-probability, rank and band of every token, and the perplexity of every line.

The tokens are words or, in a run of sub-words, pieces of words; the perplexity is per word for both. Rank 1 is the most
probable token; band 0 is the head of an adaptive softmax. Lines are scored as they arrive: lines that are already
waiting are scored together, up to --batch_size of them.

echo "The function returns a list ." | python -m trainers.score --run_dir=runs/quickstart
"""

import json
import math
import queue
import threading

import numpy as np
from absl import flags

from keras_adaptive.data import EOS, PAD
from keras_adaptive.metrics import perplexity
from trainers import command_line
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("run_dir", None, "Folder of a trained run.", required=True)
    flags.DEFINE_multi_string("input", [], "UTF-8 file to score, one or more; by default the standard input.")
    flags.DEFINE_integer("batch_size", 16, "Lines at a time, at most.", lower_bound=1)
    flags.DEFINE_enum("format", "table", ["table", "json"], "A readable table, or one JSON object per line.")
    flags.DEFINE_bool(
        "open_vocabulary", False, "Read unknown words by their bytes (char_cnn models), after all lines are read."
    )
    flags.DEFINE_enum("model", "best", ["best", "last"], "Which of the run's models.")


LENGTH_STEP, SEGMENT = 32, 512  # lengths are rounded up to multiples of these, since compilers compile for each


def main():
    run = RunFolder(FLAGS.run_dir)
    vocabulary, tokenize = run.vocabulary(), run.tokenize()
    lines, extra = ([*tokenize(line), "</s>"] for line in read_lines()), None
    if FLAGS.open_vocabulary:
        lines = list(lines)
        extra = list(dict.fromkeys(word for tokens in lines for word in vocabulary.unknown(tokens)))
    model = run.model(FLAGS.model).for_inference(extra)
    number = 0
    for batch in as_they_come(lines, FLAGS.batch_size):
        targets = [vocabulary.encode(tokens) for tokens in batch]
        inputs = [vocabulary.encode(tokens, extra or ()) for tokens in batch]
        for tokens, ids, scores in zip(batch, targets, score(model, targets, inputs)):
            number += 1
            unknown, words = vocabulary.unknown(tokens), run.count_words(tokens)
            bands = np.searchsorted(model.word_output.boundaries[1:-1], ids, side="right").tolist()
            if FLAGS.format == "json":
                print_json(tokens, *scores, bands, unknown, words)
            else:
                print_table(number, tokens, *scores, bands, unknown, words)


def read_lines():
    """Yields the lines of --input or of the standard input.

    Raises:
        ValueError: If a line is not UTF-8. The message holds its number.
    """
    for name in FLAGS.input or [None]:
        with open(name, "rb") if name else standard_input() as source:
            for number, line in enumerate(source, 1):
                try:
                    yield line.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    where = f"Line {number} of {name}" if name else f"Line {number}"
                    raise ValueError(f"{where} is not UTF-8 ({error.reason}): convert the text to UTF-8.") from None


def standard_input():
    """Opens the standard input again, because Python cannot exit while a thread waits for `sys.stdin` itself."""
    return open(0, "rb", closefd=False)


def as_they_come(lines, size):
    """Yields lists of up to `size` waiting lines, so that no line waits for a later one."""
    waiting, end = queue.Queue(4 * size), []

    def read():
        try:
            for line in lines:
                waiting.put(line)
            waiting.put(StopIteration())
        except Exception as error:  # raised where the lines are used
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    while not end:
        found = [waiting.get()]
        while len(found) < size and not waiting.empty():
            found.append(waiting.get())
        end = [one for one in found if isinstance(one, Exception)]
        if len(found) > len(end):
            yield found[: len(found) - len(end)]
    if not isinstance(end[0], StopIteration):
        raise end[0]


def score(model, targets, inputs):
    """Yields the log-probabilities and the ranks of the ids of every line, which starts after a `</s>`.

    The inputs equal the targets, except for extra words.
    """
    longest, rows = max(map(len, targets)), 2 ** (len(targets) - 1).bit_length()
    step = SEGMENT if longest > SEGMENT else LENGTH_STEP
    positions = model.body.max_length or math.inf
    length = int(max(min(-(-longest // step) * step, positions), longest))
    padded = np.full((2, rows, length), PAD, "int32")
    padded[0, :, 0] = EOS
    for row, (own, ids) in enumerate(zip(inputs, targets)):
        padded[0, row, 1 : len(own)], padded[1, row, : len(ids)] = own[:-1], ids
    log_probs, ranks = model.score(*padded, segment=SEGMENT)
    for row, ids in enumerate(targets):
        yield log_probs[row, : len(ids)].astype("float64"), ranks[row, : len(ids)]


def print_table(number, tokens, log_probs, ranks, bands, unknown, words):
    for token, *values in zip(tokens, log_probs, ranks, bands):
        note = "  (scored as <unk>)" if token in unknown else ""
        print("{:10.4f} {:8} {:3}  ".format(*values) + token + note)
    counted = f"{len(tokens)} tokens" if words == len(tokens) else f"{words} words in {len(tokens)} tokens"
    print(
        f"line {number}: log-probability {log_probs.sum():.4f}, {counted}, perplexity "
        f"{perplexity(-log_probs.sum() / words):.2f}\n",
        flush=True,
    )


def print_json(tokens, log_probs, ranks, bands, unknown, words):
    value = perplexity(-log_probs.sum() / words)
    record = {
        "tokens": tokens,
        "words": words,
        "log_probs": [round(value, 6) for value in log_probs.tolist()],
        "ranks": ranks.tolist(),
        "bands": bands,
        "log_prob": float(log_probs.sum()),
        "perplexity": value if math.isfinite(value) else None,
        "unknown": unknown,
    }
    print(json.dumps(record, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    command_line.run(main, define_flags)
