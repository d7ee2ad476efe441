"""Scores lines of text: log-probability, rank and band of every token, and the perplexity of every line.

The tokens are words or, in a run of sub-words, pieces of words. The perplexity is per word for both. Rank 1 is the most
probable token. Band 0 is the head of an adaptive softmax. Lines are scored as they arrive; up to --batch_size waiting
lines are scored together. Attention reads a line that is longer than the rows of training in windows of their length,
half of which is context. A body with a state of fixed size reads a line as a whole. --resets joins lines to texts.

--format=csv has a row per word, with the columns of a regression; --format=tsv has the columns of lm-zoo. --pairs
compares the two sentences of each line, which a tab separates. The first sentence is the acceptable one.

echo "The function returns a list ." | python -m trainers.score --run_dir=runs/quickstart
"""

import csv
import functools
import itertools
import math
import os
import queue
import sys
import threading

from absl import flags

from keras_adaptive.files import json_text, read_text_lines
from keras_adaptive.text import TextModel
from keras_adaptive.text.surprisals import COLUMNS, END, LM_ZOO, surprisal_rows
from trainers.experiments.memories import model_with_memory
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line
from trainers.support.progress import Progress

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_paths("run_dir", None, "Folder of a trained run; several for --format=csv.", required=True)
    command_line.define_path(
        "input", [], "UTF-8 file to score; may be repeated. By default the standard input.", several=True
    )
    flags.DEFINE_integer("batch_size", 16, "Largest number of lines at a time.", 1, 2**20)
    formats = "Readable table, a JSON object per text, or a row per word: csv for regressions, tsv as lm-zoo's."
    flags.DEFINE_enum("format", "table", ["table", "json", "csv", "tsv"], formats)
    flags.DEFINE_bool("pairs", False, "Compare the two sentences of each line, which a tab separates.")
    resets = "Where the context begins again: before every line, after empty lines, or with the input."
    flags.DEFINE_enum("resets", "line", ["line", "paragraph", "input"], resets)
    flags.DEFINE_string("preceding", "", "Text before every line, or text of several, which is read and not scored.")
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
    check_flags()
    if len(FLAGS.run_dir) > 1:
        texts, write = list(texts_of(read_lines())), table_writer(["run", *COLUMNS])
        for folder in FLAGS.run_dir:
            score(RunFolder(folder), texts, functools.partial(write, run=folder))
        return
    run = RunFolder(*FLAGS.run_dir)
    keeps_mark = run.codec.keeps_mark
    if FLAGS.pairs:
        pairs = list(read_pairs(read_lines(keeps_mark)))
        score(run, enumerate(itertools.chain.from_iterable(pairs), 1), pair_writer(len(pairs)))
    else:
        score(run, texts_of(read_lines(keeps_mark)), writer())


def check_flags():
    """Raises a ValueError if flags do not fit together."""
    if len(FLAGS.run_dir) > 1 and (FLAGS.format != "csv" or FLAGS.pairs):
        raise ValueError(f"Several runs are a table of words: pass --format=csv. Received: {len(FLAGS.run_dir)} runs.")
    if FLAGS.pairs and (FLAGS.resets != "line" or FLAGS.format not in ("table", "csv", "tsv")):
        raise ValueError(
            "--pairs writes a table of sentences: pass --format=csv or --format=tsv, and no --resets. "
            f"Received: --format={FLAGS.format} --resets={FLAGS.resets}."
        )
    if FLAGS.resets != "line" and FLAGS.format not in ("csv", "tsv"):
        raise ValueError(
            f"--resets={FLAGS.resets} numbers the lines of a text in a table: pass --format=csv or --format=tsv. "
            f"Received: --format={FLAGS.format}."
        )


def score(run, texts, write):
    """Scores numbered texts by a `RunFolder`, and calls `write(number, record, codec)` for each as it comes."""
    total = count_lines()
    how = {name: FLAGS[name].value for name in ("open_vocabulary", "window", "context")}
    text = TextModel(model_with_memory(run, FLAGS.model, FLAGS.memory), run.codec, **how)
    if FLAGS.alternatives > len(text.vocabulary):
        raise ValueError(
            f"--alternatives must be at most {len(text.vocabulary)}, the number of words of the model. "
            f"Received: --alternatives={FLAGS.alternatives}."
        )
    before, end = text.codec.tokenize(FLAGS.preceding), [END] * FLAGS.line_end
    lines = ((number, [*before, *text.codec.tokenize(line), *end]) for number, line in texts)
    if FLAGS.open_vocabulary:
        lines = list(lines)
        text.read_unknown(itertools.chain.from_iterable(tokens for _, tokens in lines))
    report = Progress("lines")
    of_tokens = functools.partial(Progress, "tokens of a line")
    alternatives = FLAGS.alternatives or int(FLAGS.format == "csv" and not FLAGS.pairs)  # for the entropy
    for batch in as_they_come(lines, FLAGS.batch_size):
        numbers, tokens = zip(*batch)
        for number, record in zip(numbers, text.score_tokens(tokens, alternatives, of_tokens, len(before))):
            write(number, record, text.codec)
        if not sys.stdout.isatty():
            report(number, total)


def texts_of(lines):
    """Yields the texts that --resets makes of lines, `(number of the first line, text)`."""
    if FLAGS.resets == "line":
        yield from enumerate(lines, 1)
        return
    first, text = 1, []
    for number, line in enumerate(lines, 1):
        if FLAGS.resets == "paragraph" and not line.strip():
            if text:
                yield first, "\n".join(text)
            first, text = number + 1, []
        else:
            text.append(line)
    if text:
        yield first, "\n".join(text)


def read_pairs(lines):
    """Yields the two sentences of each line."""
    for number, line in enumerate(lines, 1):
        pair = line.split("\t")
        if len(pair) != 2 or not all(map(str.strip, pair)):
            raise ValueError(
                f"Line {number} must be two sentences with a tab between them. Received: {len(pair)} parts, "
                f"{line[:80]!r}."
            )
        yield pair


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


def writer():
    """Returns the function `(number, record, codec)` that prints a record in --format."""
    if FLAGS.format == "csv":
        return table_writer(COLUMNS)
    if FLAGS.format == "tsv":
        return table_writer(LM_ZOO)
    return print_json if FLAGS.format == "json" else print_table


def table_writer(columns):
    """Returns the function `(number, record, codec, **others)` that prints a row of columns for every word."""
    write = row_writer(columns)

    def print_rows(number, record, codec, **others):
        for row in surprisal_rows(number, record, codec):
            if FLAGS.line_end or row["word"] != END:
                write({**row, **others}[LM_ZOO.get(name, name)] for name in columns)
        sys.stdout.flush()

    return print_rows


def row_writer(columns):
    """Prints a header, and returns the function that prints a row."""
    dialect = "excel" if FLAGS.format == "csv" else "excel-tab"
    write = csv.writer(sys.stdout, dialect, lineterminator="\n").writerow
    write(columns)
    return write


def pair_writer(total):
    """Returns the function that prints the surprisals of two sentences, in bits, and last the share of right pairs."""
    write, values, right = row_writer(["pair", "surprisal", "surprisal_of_other", "is_right", "unknown"]), [], []

    def print_pair(number, record, codec):
        values.append((-record["log_prob"] / math.log(2), len(record["unknown"])))
        if number % 2:
            return
        (one, unknown), (other, others_unknown) = values[-2:]
        right.append(one < other)
        write([number // 2, round(one, 6), round(other, 6), int(right[-1]), unknown + others_unknown])
        sys.stdout.flush()
        if len(right) == total:
            print(f"{100 * sum(right) / total:.2f} % of {total:,} pairs are right", file=sys.stderr)

    return print_pair


def print_table(number, record, codec):
    shown = codec.shown
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


def print_json(number, record, codec):
    print(json_text(record, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    command_line.run(main, define_flags)
