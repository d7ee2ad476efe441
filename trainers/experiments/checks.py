"""Checks of the flags, the devices and the checkpoints of a training. Each raises a ValueError with what to pass."""

import importlib.util
import sys

from absl import flags

from trainers.experiments import experiment

FLAGS = flags.FLAGS


def check_flags(chosen):
    """Raises a ValueError if training with these flags is impossible, and returns whether to write for TensorBoard."""
    if not FLAGS.run_dir:
        raise ValueError("--run_dir is missing: pass the folder of the run.")
    updates, every = chosen.settings["updates"], chosen.evaluate_every
    if updates % every:
        raise ValueError(
            "--updates must be a multiple of --evaluate_every, since a run ends with a validation. "
            f"Received: --updates={updates} --evaluate_every={every}."
        )
    patience = chosen.settings.get("average_after")
    if patience is not None and 0 < FLAGS.patience <= patience + 1:
        raise ValueError(
            f"--patience must be 0 or above {patience + 1}, the value of --average_after plus 1: otherwise, training "
            f"ends before averaging starts. Received: --patience={FLAGS.patience} --average_after={patience}."
        )
    check_reached(chosen)
    if FLAGS.model_devices and FLAGS.strategy != "model_parallel":
        raise ValueError("--model_devices belongs to --strategy=model_parallel: omit it, or choose that strategy.")
    chosen.schedule()  # raises errors about learning rates before anything is written
    installed = importlib.util.find_spec("tensorboard") is not None
    if FLAGS.tensorboard and not installed:
        raise ValueError("--tensorboard needs a package: pip install tensorboard, or pass --notensorboard.")
    if FLAGS.tensorboard is None and not installed:
        print("tensorboard is not installed: log.jsonl is the only log. pip install tensorboard", file=sys.stderr)
    return installed if FLAGS.tensorboard is None else FLAGS.tensorboard


def check_reached(chosen):
    """Raises a ValueError if the learning rate is 0, or training ends before its flags take effect.

    A trial, which ends before the first validation of the recipe, may end before the rest of it too.
    """
    settings = chosen.settings
    updates, validations = settings["updates"], settings["updates"] // chosen.evaluate_every
    if not settings["max_rate"]:
        raise ValueError("--max_rate must be above 0: no weight would change. Received: --max_rate=0.")
    if chosen.is_trial:
        every = settings["evaluate_every"]
        print(f"A trial: --updates={updates} is below --evaluate_every={every}, so it validates at its end", flush=True)
        return
    if (decay_at := settings.get("decay_at")) and decay_at[-1] >= updates:
        raise ValueError(
            "--decay_at must be below --updates: otherwise, the learning rate is never divided. "
            f"Received: --decay_at={experiment.plain(decay_at)} --updates={updates}."
        )
    if settings.get("average_after", 0) >= validations:
        raise ValueError(
            f"--average_after must be below the number of validations ({validations}): pass more --updates or a "
            f"smaller --evaluate_every, so that averaging starts. Received: --average_after="
            f"{settings['average_after']}."
        )


def check_stages(chosen, train):
    """Raises a ValueError if a stage ends between two validations, or the last one would not begin."""
    updates, every = chosen.settings["updates"], chosen.evaluate_every
    if not chosen.is_trial and train.stage_ends and train.stage_ends[-1] >= updates:
        raise ValueError(
            "--updates must exceed the updates of all stages of --lengths but the last, which would not begin. "
            f"Received: --lengths={chosen.settings['lengths']} --updates={updates}."
        )
    if odd := [end for end in train.stage_ends if end < updates and end % every]:
        raise ValueError(
            "A stage of --lengths must end with a validation: pass numbers of updates that are multiples of "
            f"--evaluate_every. Received: --lengths={chosen.settings['lengths']} --evaluate_every={every}, and a stage "
            f"that ends after {odd[0]} updates."
        )


def check_rows(strategy, settings, stream_rows):
    """Raises a ValueError if a micro-batch would hold only padding, or for streams, whose rows have states, any."""
    rows, parts = settings["batch_size"], strategy.replicas * settings["micro_batches"]
    if rows < parts or (stream_rows and rows % parts):
        raise ValueError(
            f"--batch_size must be {'a multiple of' if stream_rows else 'at least'} the number of replicas times "
            f"--micro_batches. Received: --batch_size={rows} --micro_batches={settings['micro_batches']} "
            f"--strategy={FLAGS.strategy} with {strategy.replicas} replicas."
        )


def check_carries_state(body, parts):
    """Raises a ValueError if the body cannot carry its state from batch to batch."""
    try:
        body.initial_state(1)
    except ValueError as error:
        raise ValueError(
            "--batching={batching} needs a --body that carries its state from batch to batch. Received: --body={body}. "
            "Choose another body, or --batching=blocks.".format(**parts)
        ) from error


def check_same_checkpoint(strategy, backup):
    """Waits for all processes, and raises a ValueError in all of them if they restored different checkpoints."""
    least, most = -strategy.all_reduce_max(-backup.update), strategy.all_reduce_max(backup.update)
    if least != most:
        raise ValueError(
            "The processes restored checkpoints of different updates: --run_dir must be on a shared file system. "
            f"Received: updates {least} to {most}."
        )
