"""Trains a language model on a prepared corpus. The same command resumes a run that was stopped.

The program ends with status 0 when the run is complete, and with status 143 or 130 when SIGTERM or SIGINT stopped it
after a checkpoint (the same command resumes). Status 75 means that another process was lost or is hanging; the same
command in all processes resumes. Status 1, with a line that names the reason, means that the same command would fail
again.

Losses and perplexities are per token of the corpus: per word, or per piece of a word in a corpus of sub-words.
trainers.evaluate reports the perplexity per word for both.

With --batching=streams, the body carries its state from batch to batch. Validation reads its text in --batch_size
streams, each from its first token to its last. trainers.evaluate reads the text as a single stream.

--strategy trains on several devices. The updates are the same as on one device.

python -m trainers.train --flagfile=configs/quickstart.flags --data_dir=data/docstrings --run_dir=runs/quickstart
"""

import atexit
import contextlib
import math
import os
import sys
from typing import Any, NamedTuple

import keras
from absl import flags

from keras_adaptive import distribution
from keras_adaptive.backend.any_length import of_any_length
from keras_adaptive.backend.optimizer_step import inner_optimizer
from keras_adaptive.backend.unallocated import check_memory, unallocated
from keras_adaptive.callbacks import (
    SGDR,
    Backup,
    NonMonotonicAveraging,
    SaveModels,
    StopOnSignal,
    TerminateOnHang,
    TerminateOnNonFinite,
    Throughput,
    TrainLog,
)
from keras_adaptive.callbacks.terminate_on_hang import end_at_once
from keras_adaptive.data import Corpus, load_corpus
from keras_adaptive.files import read_json_lines
from keras_adaptive.metrics import perplexity
from keras_adaptive.models.transfer import transfer
from keras_adaptive.optimizers import AveragedSGD
from trainers.experiments import checks, experiment, plan, resume, summary
from trainers.experiments.experiment import Experiment
from trainers.experiments.hyperparameters import NUMBER
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line
from trainers.support.progress import TrainingLines

FLAGS = flags.FLAGS


def define_flags():
    experiment.define_flags()
    command_line.define_path("run_dir", None, "Folder of the run. An existing run with the same flags resumes.")
    flags.DEFINE_integer("log_every", 10, "Number of updates between two lines of log.jsonl.", lower_bound=1)
    flags.DEFINE_integer(
        "save_every", 0, "Number of updates between two checkpoints; 0 for one checkpoint per validation.", 0
    )
    flags.DEFINE_integer("keep", 3, "Number of checkpoints to keep; older ones are removed.", lower_bound=1)
    flags.DEFINE_integer(
        "patience", 0, "Number of validations without a lower loss after which training ends; 0 for no limit.", 0
    )
    flags.DEFINE_integer(
        "max_skipped", 20, "Number of updates in a row without finite gradients after which training ends.", 1
    )
    strategies = ["none", *distribution.BACKENDS]
    flags.DEFINE_enum("strategy", "none", strategies, "Strategy for training on several devices.")
    flags.DEFINE_integer(
        "model_devices", 0, "Number of devices that shard the word tables under model_parallel; 0 for all.", 0
    )
    flags.DEFINE_integer(
        "timeout", 1800, "Seconds without progress after which one of several processes ends.", 1, NUMBER
    )
    flags.DEFINE_bool("tensorboard", None, "Write the log for TensorBoard too; by default if it is installed.")
    flags.DEFINE_bool(
        "summary",
        False,
        "Print the size of the model, the memory and a plan for several devices, and exit.",
    )


class Validation(keras.utils.PyDataset):
    """Validation batches in order. Each process passes its part of every batch to `fit`."""

    def __init__(self, batches, strategy):
        super().__init__()
        self.batches = batches
        self.strategy = strategy

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.strategy.local_batch(self.batches.batch(index))

    def __iter__(self):
        return map(self.__getitem__, range(len(self)))


class Training(NamedTuple):
    """What `fit` trains on, and where; `board` says whether to write for TensorBoard."""

    experiment: Experiment
    corpus: Corpus
    run: RunFolder
    strategy: distribution.Strategy
    batches: Any
    validation: Validation
    board: bool


def main():
    chosen = Experiment.of_flags()
    if FLAGS.summary:
        return summarize(chosen)
    board, corpus = checks.check_flags(chosen), open_corpus(chosen)
    chosen = fit_cutoffs(chosen, corpus.vocabulary)
    train = chosen.batches(corpus.tokens("train"))
    checks.check_stages(chosen, train)
    valid = chosen.batches(corpus.tokens("valid"), shuffle=False)
    several = FLAGS.strategy != "none" and distribution.launched_processes() > 1
    with TerminateOnHang(FLAGS.timeout if several else math.inf) as alive:
        strategy = start()
        checks.check_rows(strategy, chosen.settings, train.stream_rows)
        smaller = "pass smaller dimensions or fewer blocks; --summary prints the size of each part."
        check_memory(unallocated(lambda: chosen.model(corpus.vocabulary)), smaller)
        run = RunFolder(FLAGS.run_dir)
        with strategy.scope(), all_processes(strategy.processes > 1):
            model = new_model(chosen, corpus.vocabulary, train.stream_rows)
            if chosen.settings["init_from"] and not run.has_checkpoints:
                start_from(RunFolder(chosen.settings["init_from"]), model, corpus.vocabulary, strategy)
            training = Training(chosen, corpus, run, strategy, train, Validation(valid, strategy), board)
            updates = fit(training, model, alive)
    if strategy.process == 0:
        print_result(chosen, run, updates)


def start():
    """Starts the strategy and returns it. A process that does not arrive counts as lost."""
    with all_processes(FLAGS.strategy != "none"):
        return distribution.start(FLAGS.strategy, FLAGS.model_devices, FLAGS.timeout)


@contextlib.contextmanager
def all_processes(several):
    """Ends this process with status 75 if another process is lost, whatever error reports it.

    After any other error this process ends with status 1 and does not wait for the others, which wait for it: JAX
    would wait at the end of Python for as long as they do.
    """
    try:
        yield
    except Exception as error:
        if several and (reason := distribution.lost_process(error)):
            end_at_once(f"train: another process was lost ({reason}). Run the same command again in every process.")
        if several:
            atexit.register(end_alone)  # called first, after the line that names the error
        raise


def end_alone():
    """Ends this process with status 1 at once."""
    with contextlib.suppress(OSError):  # the disk may be full
        sys.stdout.flush()
    os._exit(1)


def summarize(chosen):
    """Prints the size of the model for the corpus or, without a corpus, for --vocabulary_size words."""
    settings = chosen.settings
    if settings["data_dir"] or not settings["vocabulary_size"]:
        vocabulary = open_corpus(chosen, verify=False).vocabulary
    else:
        vocabulary = summary.stand_in(settings["vocabulary_size"])
    model = unallocated(lambda: chosen.model(vocabulary))
    sizes = settings["batch_size"], experiment.row_length(settings), settings["micro_batches"]
    summary.print_summary(model, chosen.optimizer(), *sizes)
    rate = plan.measured_rate(RunFolder(FLAGS.run_dir).path / "log.jsonl") if FLAGS.run_dir else None
    print(f"\nPlan of updates of {sizes[0] * sizes[1]:,} tokens on several devices:")
    plan.print_plans(plan.plans(model, chosen.optimizer(), vocabulary.counts, *sizes), rate)


def open_corpus(chosen, verify=True):
    """Opens the corpus in --data_dir, and verifies the checksums of the files that training reads."""
    data_dir = chosen.settings["data_dir"]
    if not data_dir:
        raise ValueError("--data_dir is missing: make a corpus with trainers.prepare and pass its folder.")
    corpus = load_corpus(data_dir)
    if verify:
        corpus.verify("train", "valid")
    return corpus


def fit_cutoffs(chosen, vocabulary):
    """Returns the experiment with the cutoffs for the vocabulary, and prints them if the flags have others."""
    fitted = chosen.fitted(vocabulary)
    if fitted is not chosen:
        given, cutoffs = (experiment.plain(each.settings["cutoffs"]) for each in (chosen, fitted))
        reason = "" if given == "auto" else f", since {given} do not fit"
        print(f"Training with --cutoffs={cutoffs} for {len(vocabulary):,} words{reason}", flush=True)
    return fitted


def make_repeatable(seed):
    """Seeds all random numbers, and fixes the order of sums in TensorFlow's graphs.

    TensorFlow's arithmetic optimizer would merge trees of additions into a sum that begins with any input whose memory
    can be reused, so that two trainings would differ by rounding.
    """
    keras.utils.set_random_seed(seed)
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})


def new_model(chosen, vocabulary, stream_rows):
    """Returns the compiled model of an experiment, with its initial weights."""
    make_repeatable(chosen.settings["seed"])
    model, optimizer = chosen.model(vocabulary), chosen.optimizer()
    if stream_rows:
        checks.check_carries_state(model.body, chosen.parts)
    micro_batches, clip_parts = chosen.settings["micro_batches"], chosen.clip_parts()
    model.compile(optimizer, micro_batches=micro_batches, stream_rows=stream_rows, clip_parts=clip_parts)
    return model


def start_from(run, model, vocabulary, strategy):
    """Sets a model to the best weights of a run, whose vocabulary and output may differ."""
    source = run.model()
    known = transfer(model, vocabulary, source, run.codec.vocabulary)
    new, old = type(model.word_output).__name__, type(source.word_output).__name__
    output = "" if new == old else f"; the weights of its {old} are not used, and the {new} starts from random ones"
    if strategy.process == 0:
        print(f"Starting from {run.path}, which has {known:,} of the {len(vocabulary):,} words{output}", flush=True)


def fit(training, model, alive):
    """Trains to the last update, from the newest checkpoint of the run or from the start, and returns their number.

    Process 0 writes, and all processes resume from its checkpoint.
    """
    chosen, corpus, run, strategy, train, valid, board = training
    settings, writes = chosen.settings, strategy.process == 0
    every, epochs = chosen.evaluate_every, settings["updates"] // chosen.evaluate_every
    path = run.path / "log.jsonl" if writes else os.devnull
    log = TrainLog(path, FLAGS.log_every, run.path / "tensorboard" if writes and board else None)
    finite = TerminateOnNonFinite(FLAGS.max_skipped)
    models = SaveModels(run.path, writes=writes, patience=FLAGS.patience or None)
    averages = isinstance(inner_optimizer(model.optimizer), AveragedSGD)
    averaging = [NonMonotonicAveraging()] if averages else []
    stateful = [log, finite, models, *averaging]
    backup = Backup(run.checkpoints, FLAGS.save_every or None, FLAGS.keep, stateful, writes)
    claimed = run.claimed(chosen, corpus) if writes else contextlib.nullcontext()
    with claimed, StopOnSignal(backup, strategy.all_reduce_max) as stop:
        if not backup.restore(model) and writes:
            path.unlink(missing_ok=True)  # the updates in this log are lost
        if writes:
            run.lengthen(chosen)  # after `restore`: an error there must not change the run
        checks.check_same_checkpoint(strategy, backup)
        strategy.synchronize(model)
        speed = Throughput(train.tokens_per_epoch / len(train), lambda: settings["updates"] - backup.update)
        rates = SGDR(chosen.schedule(), lambda: train.rate_factor(backup.update))
        lines = [TrainingLines(backup, settings["updates"], sys.stdout.isatty())] if writes else []
        callbacks = [rates, speed, *stateful, backup, *lines, alive, stop]
        if writes:
            print_start(chosen, strategy, run, backup, model, train)
        if backup.epoch < epochs and not models.has_ended:
            if train.lengths_differ:
                valid = of_any_length(valid, len(valid))
            ends = [*(end // every for end in train.stage_ends if end < settings["updates"]), epochs]
            for last, length in zip(ends, chosen.stage_lengths):
                if backup.epoch < last and not models.has_ended:
                    model.trained_length = length  # TensorFlow does not see it in the batches of a second stage
                    data = remaining(training, backup, None if last == epochs else last * every)
                    resume.fit(model, backup, data, every, last, valid, callbacks)
        else:
            log.set_model(model)
            log.on_train_begin()  # completes the log if training was stopped after its last checkpoint
            log.on_train_end()
        return backup.update


def remaining(training, backup, stop):
    """Returns a function that returns the batches of this process from the next update on, to `stop` if it is given."""

    def batches():
        own = training.strategy.shard(
            training.batches.batches(backup.update, stop), training.experiment.settings["micro_batches"]
        )
        return of_any_length(own) if training.batches.lengths_differ else own

    return batches


def print_start(chosen, strategy, run, backup, model, train):
    """Prints where training starts, on which devices, and the size of the model and of the text."""
    begins = f"Continuing {run.path} from {backup.path}" if backup.path else f"Training {run.path}"
    passes, updates = backup.update / len(train), chosen.settings["updates"]
    where = keras.config.backend()
    if FLAGS.strategy != "none":
        where += f", {FLAGS.strategy} with {strategy.replicas} replicas"
    print(
        f"{begins} on {where}: {model.count_params():,} parameters, update {backup.update} of "
        f"{updates}, epoch {backup.epoch + 1} of {updates // chosen.evaluate_every}, {passes:.2f} times through "
        f"{train.tokens_per_epoch:,} tokens",
        flush=True,
    )


def print_result(chosen, run, updates=None):
    """Prints the best validation of a run that ended after `updates`, by default after all of them."""
    planned, loss = chosen.settings["updates"], best_loss(run.path / "log.jsonl")
    best, updates = perplexity(loss), planned if updates is None else updates
    if not math.isfinite(best):
        raise FloatingPointError(
            f"Trained {updates} updates, and the best validation loss is {loss:.6g} nats: training has diverged. Lower "
            "the learning rate, warm up longer, or clip to a smaller norm."
        )
    ended = f", of {planned}: {FLAGS.patience} validations brought no lower loss" if updates < planned else ""
    print(f"Trained {updates} updates{ended}; best validation perplexity {best:.2f}, in {run.path}/best.keras")


def best_loss(log):
    """Returns the lowest validation loss in the log of a run; infinity if none was finite."""
    losses = [record["val_loss"] for record in read_json_lines(log) if "val_loss" in record]
    if not losses:
        raise ValueError(f"{log} contains no validation, but the run is complete: use the models beside it.")
    return min((loss for loss in losses if isinstance(loss, float)), default=math.inf)


if __name__ == "__main__":
    command_line.run(main, define_flags)
