"""Draws what a run wrote into its folder, as PNG files beside it.

    python -m trainers.plot RUN [RUN ...]

- learning_curve.png from log.jsonl: loss and perplexity, training and validation, above the learning rate;
- loss_by_frequency_SPLIT.png from evaluation_SPLIT.json: the loss of rare and of frequent words, and their share;
- surprisal.png from score.jsonl: a passage, each word shaded by how little the model expected it.

The program names every file that the run has not written, and skips its picture.
"""

from trainers import command_line


def define_flags():
    """Defines no flags: the program takes folders of runs."""


def main(*run_dirs):
    from trainers.plots.run import draw_run

    for run_dir in run_dirs:
        draw_run(run_dir)


if __name__ == "__main__":
    command_line.run(main, define_flags, paths="RUN, the --run_dir of a training")
