"""Trains a language model on a prepared corpus, into a run folder; the same command goes on where it stopped.

The program ends with 0 when the run is complete, with 143 or 130 when SIGTERM or SIGINT stopped it behind a checkpoint
(the same command goes on), and with 1, and a line that says why, when the same command would not help.

Losses and perplexities are per token of the corpus here: per word, or per piece of a word in a corpus of sub-words.
trainers.evaluate gives the perplexity per word of both.

With --strategy it trains on several devices, with the same updates.

python -m trainers.train --flagfile=configs/quickstart.flags --data_dir=data/docstrings --run_dir=runs/quickstart
"""

import contextlib
import json
import math
import os
import sys

import keras
from absl import flags

from keras_adaptive import distribution
from keras_adaptive.callbacks import (
    SGDR,
    Backup,
    Checkpoint,
    StopOnSignal,
    TerminateOnNonFinite,
    Throughput,
    TrainLog,
)
from keras_adaptive.callbacks.train_log import exp
from keras_adaptive.data import load_corpus
from trainers import command_line, experiment, summary
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS


def define_flags():
    experiment.define_flags()
    flags.DEFINE_string("run_dir", None, "Folder of the run: new, or one of the same flags, which is then continued.")
    flags.DEFINE_integer("log_every", 10, "Updates between two lines of log.jsonl.", lower_bound=1)
    flags.DEFINE_integer("save_every", 0, "Updates between two checkpoints; 0 for one with each validation.", 0)
    flags.DEFINE_integer("keep", 3, "Checkpoints to keep, the newest.", lower_bound=1)
    flags.DEFINE_integer("max_skipped", 20, "Updates in a row without finite gradients that end training.", 1)
    strategies = ["none", *distribution.BACKENDS]
    flags.DEFINE_enum("strategy", "none", strategies, "How several devices train together; see the README.")
    flags.DEFINE_integer("model_devices", 0, "Devices that share the word tables of model_parallel; 0 for all.", 0)
    flags.DEFINE_bool("tensorboard", True, "Write the log for TensorBoard too.")
    flags.DEFINE_integer("vocabulary_size", 0, "Words that --summary assumes where there is no --data_dir.", 0)
    flags.DEFINE_bool("summary", False, "Print parameters and an estimate of the memory, and stop.")


class Validation(keras.utils.PyDataset):
    """The validation batches in their order, of each what this process works on, for `fit`."""

    def __init__(self, batches, strategy):
        super().__init__()
        self.batches = batches
        self.strategy = strategy

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.strategy.part(self.batches.batch(index))


def main():
    if FLAGS.summary and FLAGS.vocabulary_size and not FLAGS.data_dir:
        return summary.print_summary(summary.stand_in(FLAGS.vocabulary_size))
    if not FLAGS.data_dir:
        raise ValueError("--data_dir is missing: make a corpus with `python -m trainers.prepare` and pass its folder.")
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
    corpus.verify("train", "valid")
    train = experiment.build_batches(corpus.tokens("train"))
    valid = experiment.build_batches(corpus.tokens("valid"), shuffle=False)
    schedule = experiment.build_schedule()
    strategy = distribution.start(FLAGS.strategy, FLAGS.model_devices)
    check_rows(strategy)
    run = RunFolder(FLAGS.run_dir)
    with strategy.scope():
        model = new_model(corpus.vocabulary)
        fit(strategy, run, corpus, model, schedule, train, Validation(valid, strategy))
    if strategy.process == 0:
        loss = best_loss(run.path / "log.jsonl")
        print(f"Trained {FLAGS.updates} updates; best validation perplexity {exp(loss):.2f}, in {run.path}/best.keras")


def check_rows(strategy):
    """Raises a ValueError if there is a device, or a part of its work, that would have nothing but padding to do."""
    if FLAGS.batch_size < strategy.replicas * FLAGS.micro_batches:
        raise ValueError(
            "--batch_size must be at least the number of replicas times --micro_batches. Received: --batch_size="
            f"{FLAGS.batch_size} --micro_batches={FLAGS.micro_batches} --strategy={FLAGS.strategy} with "
            f"{strategy.replicas} replicas."
        )


def make_repeatable():
    """Seeds everything, and keeps the order of sums in TensorFlow's graphs.

    Its optimizer of arithmetic would merge trees of additions into one, which begins with whichever input's memory is
    free to be taken over at the moment, so that two trainings would differ by rounding.
    """
    keras.utils.set_random_seed(FLAGS.seed)
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})


def new_model(vocabulary):
    """The compiled model of the flags, with starting weights."""
    make_repeatable()
    model = experiment.build_model(vocabulary)
    model.compile(experiment.build_optimizer(), micro_batches=FLAGS.micro_batches)
    return model


def fit(strategy, run, corpus, model, schedule, train, valid):
    """Trains to the last update, from the run's newest checkpoint or from the start.

    Of several processes the first one writes, and all of them go on from what it wrote.
    """
    writes = strategy.process == 0
    path, board = (run.path / "log.jsonl", run.path / "tensorboard") if writes else (os.devnull, None)
    log = TrainLog(path, FLAGS.log_every, board if FLAGS.tensorboard else None)
    finite, models = TerminateOnNonFinite(FLAGS.max_skipped), Checkpoint(run.path, writes=writes)
    backup = Backup(run.checkpoints, FLAGS.save_every or None, FLAGS.keep, [log, finite, models], writes)
    claimed = run.claimed(experiment, corpus) if writes else contextlib.nullcontext()
    with claimed, StopOnSignal(backup, strategy.largest) as stop:
        if not backup.restore(model) and writes:
            path.unlink(missing_ok=True)  # of updates that are lost
        check_same_checkpoint(strategy, backup)
        strategy.synchronize(model)
        speed = Throughput(train.tokens_per_epoch / len(train))
        callbacks = [SGDR(schedule), speed, log, finite, models, backup, stop]
        if writes:
            print_start(strategy, run, backup, model, train)
        batches = lambda: strategy.shard(train.batches(backup.update), FLAGS.micro_batches)  # noqa: E731
        every, last = FLAGS.evaluate_every, FLAGS.updates // FLAGS.evaluate_every
        if backup.step == every:
            validate(model, backup.epoch, valid, callbacks)
        elif backup.step:
            fit_epochs(model, batches(), backup, every - backup.step, backup.epoch + 1, valid, callbacks)
        if backup.epoch < last:
            fit_epochs(model, batches(), backup, every, last, valid, callbacks)
        else:
            log.set_model(model)
            log.on_train_begin()  # ends the log of a training that was stopped behind its last checkpoint
            log.on_train_end()


def check_same_checkpoint(strategy, backup):
    """Raises a ValueError in all processes if they do not see the same files; they have restored when it returns."""
    least, most = -strategy.largest(-backup.update), strategy.largest(backup.update)
    if least != most:
        raise ValueError(
            "The processes found checkpoints of different updates: --run_dir must be one folder that all of them see. "
            f"Received: updates {least} to {most}."
        )


def print_start(strategy, run, backup, model, train):
    begins = f"Continuing {run.path} from {backup.path}" if backup.path else f"Training {run.path}"
    passes = backup.update / len(train)
    where = keras.config.backend()
    if FLAGS.strategy != "none":
        where += f", {FLAGS.strategy} with {strategy.replicas} replicas"
    print(
        f"{begins} on {where}: {model.count_params():,} parameters, update {backup.update} of "
        f"{FLAGS.updates}, epoch {backup.epoch + 1} of {FLAGS.updates // FLAGS.evaluate_every}, {passes:.2f} times "
        f"through {train.tokens_per_epoch:,} tokens",
        flush=True,
    )


def fit_epochs(model, batches, backup, steps, last, valid, callbacks):
    """Trains from where the backup is up to the end of an epoch; an epoch goes from one validation to the next."""
    model.fit(
        batches,
        shuffle=False,
        steps_per_epoch=steps,
        initial_epoch=backup.epoch,
        epochs=last,
        validation_data=valid,
        callbacks=callbacks,
        verbose=0 if not backup.writes else 1 if sys.stdout.isatty() else 2,
    )


def validate(model, epoch, valid, callbacks):
    """The validation, in which training was stopped, that ends an epoch."""
    callbacks = keras.callbacks.CallbackList(callbacks, model=model)
    callbacks.on_train_begin()
    found = model.evaluate(valid, callbacks=callbacks, verbose=0, return_dict=True)
    callbacks.on_epoch_end(epoch, {f"val_{name}": value for name, value in found.items()})
    callbacks.on_train_end()


def best_loss(log):
    """The lowest validation loss in a run's log."""
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return min((record["val_loss"] for record in records if record.get("val_loss") is not None), default=math.inf)


if __name__ == "__main__":
    command_line.run(main, define_flags)
