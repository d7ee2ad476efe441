"""Trains a language model on a prepared corpus, into a run folder.

Losses and perplexities are per token of the corpus here: per word, or per piece of a word in a corpus of sub-words.
trainers.evaluate gives the perplexity per word of both.

python -m trainers.train --flagfile=configs/quickstart.flags --data_dir=data/docstrings --run_dir=runs/quickstart
"""

import json
import math
import sys

import keras
from absl import flags

from keras_adaptive.callbacks import SGDR, Checkpoint, Throughput, TrainLog
from keras_adaptive.data import load_corpus
from trainers import command_line, experiment, summary
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS


def define_flags():
    experiment.define_flags()
    flags.DEFINE_string("run_dir", None, "Folder of the run: new, or one of the same flags, which is then continued.")
    flags.DEFINE_integer("log_every", 10, "Updates between two lines of log.jsonl.", lower_bound=1)
    flags.DEFINE_bool("tensorboard", True, "Write the log for TensorBoard too.")
    flags.DEFINE_integer("vocabulary_size", 0, "Words that --summary assumes where there is no --data_dir.", 0)
    flags.DEFINE_bool("summary", False, "Print parameters and an estimate of the memory, and stop.")


class Validation(keras.utils.PyDataset):
    """The validation batches in their order, for `fit`."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches.batch(index)


def main():
    if FLAGS.summary and FLAGS.vocabulary_size and not FLAGS.data_dir:
        return summary.print_summary(summary.stand_in(FLAGS.vocabulary_size))
    if not FLAGS.data_dir:
        raise ValueError("--data_dir is missing: make a corpus with scripts/prepare_corpus.py and pass its folder.")
    corpus = load_corpus(FLAGS.data_dir)
    if FLAGS.summary:
        return summary.print_summary(corpus.vocabulary)
    if not FLAGS.run_dir:
        raise ValueError("--run_dir is missing: pass the folder to keep the run in.")
    if FLAGS.updates % FLAGS.evaluate_every:
        raise ValueError(
            "--updates must be a multiple of --evaluate_every, since a run ends with a validation. "
            f"Received: --updates={FLAGS.updates} --evaluate_every={FLAGS.evaluate_every}."
        )
    train = experiment.build_batches(corpus.tokens("train"))
    valid = experiment.build_batches(corpus.tokens("valid"), shuffle=False)
    run = RunFolder(FLAGS.run_dir)
    keras.utils.set_random_seed(FLAGS.seed)
    schedule = experiment.build_schedule()
    model = experiment.build_model(corpus.vocabulary)
    model.compile(experiment.build_optimizer(), micro_batches=FLAGS.micro_batches)
    run.claim(experiment, corpus)
    fit(run, model, train, valid, schedule)


def fit(run, model, train, valid, schedule):
    """Trains from the run's last model, or from the start, and says where the result is."""
    best = math.inf
    if (run.path / "last.keras").exists():
        model, best = run.model("last"), best_loss(run.path / "log.jsonl")
    done = int(keras.ops.convert_to_numpy(model.optimizer.iterations.value))
    print(
        f"{'Continuing' if done else 'Training'} {run.path} on {keras.config.backend()}: {model.count_params():,} "
        f"parameters, update {done} of {FLAGS.updates}, {train.tokens_per_epoch:,} tokens an epoch",
        flush=True,
    )
    callbacks = [
        SGDR(schedule),
        Throughput(train.tokens_per_epoch / len(train)),
        TrainLog(run.path / "log.jsonl", FLAGS.log_every, run.path / "tensorboard" if FLAGS.tensorboard else None),
        Checkpoint(run.path, best),
    ]
    if done < FLAGS.updates:
        model.fit(
            train.batches(done),
            shuffle=False,
            steps_per_epoch=FLAGS.evaluate_every,
            initial_epoch=done // FLAGS.evaluate_every,
            epochs=FLAGS.updates // FLAGS.evaluate_every,
            validation_data=Validation(valid),
            callbacks=callbacks,
            verbose=1 if sys.stdout.isatty() else 2,
        )
    best = best_loss(run.path / "log.jsonl")
    print(f"Trained {FLAGS.updates} updates; best validation perplexity {math.exp(best):.2f}, in {run.path}/best.keras")


def best_loss(log):
    """The lowest validation loss in a run's log."""
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return min((record["val_loss"] for record in records if record.get("val_loss") is not None), default=math.inf)


if __name__ == "__main__":
    command_line.run(main, define_flags)
