"""Draws the results in the folder of a run as PNG files, into the same folder.

    python -m trainers.plot RUN [RUN ...]

- learning_curve.png from log.jsonl: the loss and perplexity of training and validation, above the learning rate.
- loss_by_frequency_SPLIT.png from evaluation_SPLIT.json: the loss of words by frequency, and their share of the text.
- surprisal.png from score.jsonl: a passage in which each word is shaded by its surprisal.

If the run has not written a file, the program names the file and skips its picture.
"""

from trainers.support import command_line


def define_flags():
    """Defines no flags: the program takes folders of runs."""


def main(*run_dirs):
    from trainers.plots.run import draw_run

    for run_dir in run_dirs:
        draw_run(run_dir)


if __name__ == "__main__":
    command_line.run(main, define_flags, paths="RUN, the --run_dir of a training")
