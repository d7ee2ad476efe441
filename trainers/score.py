"""Scores lines of text: log-probability, rank and band of every token, and the perplexity of every line.

The tokens are words or, in a run of sub-words, pieces of words. The perplexity is per word for both. Rank 1 is the most
probable token. Band 0 is the head of an adaptive softmax. Lines are scored as they arrive; up to --batch_size waiting
lines are scored together. Attention reads a line that is longer than the rows of training in windows of their length,
half of which is context. A body with a state of fixed size reads a line as a whole.

echo "The function returns a list ." | python -m trainers.score --run_dir=runs/quickstart
"""

import csv
import functools
import itertools
import os
import queue
import sys
import threading

from absl import flags

from keras_adaptive.files import json_text, read_text_lines
from keras_adaptive.text import TextModel
from keras_adaptive.text.surprisals import COLUMNS, surprisal_rows
from trainers.experiments.memories import model_with_memory
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line
from trainers.support.progress import Progress

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_path("run_dir", None, "Folder of a trained run.", required=True)
    command_line.define_path(
        "input", [], "UTF-8 file to score; may be repeated. By default the standard input.", several=True
    )
    flags.DEFINE_integer("batch_size", 16, "Largest number of lines at a time.", 1, 2**20)
    formats = "Readable table, one JSON object per line, or a row per word with its surprisal in bits."
    flags.DEFINE_enum("format", "table", ["table", "json", "csv", "tsv"], formats)
    flags.DEFINE_string("preceding", "", "Text before every line, which is read and not scored.")
    flags.DEFINE_bool("line_end", True, "Score the `</s>` after every line.")
    flags.DEFINE_bool(
        "open_vocabulary",
        False,
        "Read unknown words by their bytes (char_cnn models). Scoring starts after all lines are read.",
    )
    flags.DEFINE_integer(
        "alternatives",
        0,
        "Number of most probable words to show for every token, with the entropy; 0 for neither.",
        lower_bound=0,
    )
    command_line.define_reading()
    command_line.define_memory()
    flags.DEFINE_enum("model", "best", ["best", "last"], "Model of the run to use.")


def main():
    run, total = RunFolder(FLAGS.run_dir), count_lines()
    how = {name: FLAGS[name].value for name in ("open_vocabulary", "window", "context")}
    text = TextModel(model_with_memory(run, FLAGS.model, FLAGS.memory), run.codec, **how)
    if FLAGS.alternatives > len(text.vocabulary):
        raise ValueError(
            f"--alternatives must be at most {len(text.vocabulary)}, the number of words of the model. "
            f"Received: --alternatives={FLAGS.alternatives}."
        )
    before, end = text.codec.tokenize(FLAGS.preceding), ["</s>"] * FLAGS.line_end
    lines = ([*before, *text.codec.tokenize(line), *end] for line in read_lines(keeps_mark=text.codec.keeps_mark))
    if FLAGS.open_vocabulary:
        lines = list(lines)
        text.read_unknown(itertools.chain.from_iterable(lines))
    number, report = 0, Progress("lines")
    of_tokens = functools.partial(Progress, "tokens of a line")
    write = writer(text.codec)
    for batch in as_they_come(lines, FLAGS.batch_size):
        for record in text.score_tokens(batch, FLAGS.alternatives, of_tokens, len(before)):
            number += 1
            write(number, record)
        if not sys.stdout.isatty():
            report(number, total)


def count_lines():
    """Returns the number of lines of --input, or None if it is unknown before they are read."""
    if not FLAGS.input or not all(map(os.path.isfile, FLAGS.input)):
        return None
    total = 0
    for name in FLAGS.input:
        last = b"\n"
        with open(name, "rb") as source:
            while block := source.read(2**20):  # a single line may exceed the memory
                total, last = total + block.count(b"\n"), block[-1:]
        total += last != b"\n"
    return total


def read_lines(keeps_mark=False):
    """Yields the lines of --input or of the standard input. Errors contain the number of the line."""
    for name in FLAGS.input or [None]:
        with open(name, "rb") if name else standard_input() as source:
            yield from read_text_lines(source, name, keeps_mark=keeps_mark)


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
        except Exception as error:  # it is raised by the consumer of the lines
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    while not end:
        batch = [waiting.get()]
        while len(batch) < size and not waiting.empty():
            batch.append(waiting.get())
        end = [item for item in batch if isinstance(item, Exception)]
        if len(batch) > len(end):
            yield batch[: len(batch) - len(end)]
    if not isinstance(end[0], StopIteration):
        raise end[0]


def writer(codec):
    """Returns the function `(number, record)` that prints a record in --format."""
    if FLAGS.format == "json":
        return print_json
    if FLAGS.format == "table":
        return functools.partial(print_table, shown=codec.shown)
    table = csv.writer(sys.stdout, "excel" if FLAGS.format == "csv" else "excel-tab", lineterminator="\n")
    table.writerow(COLUMNS)

    def print_rows(number, record):
        table.writerows(surprisal_rows(number, record, codec))
        sys.stdout.flush()

    return print_rows


def print_table(number, record, shown):
    tokens, words = record["tokens"], record["words"]
    for place, token in enumerate(tokens):
        numbers = (record[name][place] for name in ("log_probs", "ranks", "bands"))
        line = "{:10.4f} {:8} {:3}  ".format(*numbers) + shown(token)
        if token in record["unknown"]:
            line += "  (scored as <unk>)"
        if "alternatives" in record:
            best = ", ".join(f"{shown(word)} {value:.4f}" for word, value in record["alternatives"][place])
            line += f"  (entropy {record['entropies'][place]:.4f}; {best})"
        print(line)
    counted = f"{len(tokens)} tokens" if words == len(tokens) else f"{words} words in {len(tokens)} tokens"
    figures = "log-probability {log_prob:.4f}, {counted}, perplexity {perplexity:.2f}, read {reading}"
    print(f"line {number}: {figures.format(counted=counted, **record)}\n", flush=True)


def print_json(number, record):
    print(json_text(record, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    command_line.run(main, define_flags)
