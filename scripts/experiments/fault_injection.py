"""Kills training repeatedly with `kill -9`, and compares the result with an uninterrupted training.

    python -m scripts.experiments.fault_injection --backends=torch,jax,tensorflow --kills=20
    python -m scripts.experiments.fault_injection --recipe=scripts/experiments/streams.flags --kills=10

The program trains in processes of trainers.train, with dropout and gradient accumulation, on random text. The model is
a small Transformer, or any other model that --recipe describes, such as a small AWD-LSTM that reads streams. Training
is killed at random updates. Every second kill waits until a checkpoint is being written. The same command then resumes.
At the end, the weights, the optimizer, the seeds of dropout and the log (except for times) must be bit-identical. The
program ends with status 1 if anything differs.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from absl import flags

from keras_adaptive.files import read_json_lines
from scripts.benchmarks import common
from trainers.support import command_line

FLAGS = flags.FLAGS
MODEL = (
    "--dim=32 --num_blocks=1 --num_heads=2 --ffn_dim=64 --cutoffs=100,400 --length=16 --batch_size=8 --dropout=0.2 "
    "--momentum=0.9"
)
TRAINING = "--micro_batches=2 --log_every=1 --notensorboard"
PATIENCE = 600  # largest number of seconds for an update, including compilation
COLUMNS = {"kill": 4, "after update": 12, "in a checkpoint": 15, "resumed from": 12, "updates lost": 12}


def define_flags():
    flags.DEFINE_list("backends", ["torch", "jax", "tensorflow"], "Backends to test.")
    flags.DEFINE_integer("kills", 20, "Number of kills.", lower_bound=1)
    flags.DEFINE_integer("updates", 600, "Number of updates to train.", lower_bound=1)
    flags.DEFINE_integer("evaluate_every", 60, "Number of updates between two validations.", lower_bound=1)
    flags.DEFINE_integer("save_every", 7, "Number of updates between two checkpoints.", lower_bound=1)
    flags.DEFINE_integer("seed", 1, "Seed of the updates at which training is killed.", lower_bound=0)
    command_line.define_path("recipe", None, "Flagfile of another model, its batches and its optimizer. Optional.")
    command_line.define_path("results", None, "JSON file to write. It needs a clean working tree.")


def prepare_text(folder):
    """Prepares a corpus of a thousand random words, and returns its folder."""
    from keras_adaptive.data import prepare

    numbers = np.random.default_rng(1)
    for split, lines in (("train", 2000), ("valid", 60), ("test", 20)):
        ranks = numbers.zipf(1.3, (lines, 12)) % 1000
        (folder / f"{split}.txt").write_text("\n".join(" ".join(f"w{rank}" for rank in row) for row in ranks) + "\n")
    prepare(folder, folder / "corpus", min_count=1)
    return folder / "corpus"


class Training:
    """A process of trainers.train with a run folder."""

    def __init__(self, corpus, run_dir, backend):
        self.run_dir, self.size = run_dir, None  # `size` is the size of the log when it was last read
        self.begun, self.start = time.time(), newest(run_dir)[0]
        flags_of_training = [f"--{name}={FLAGS[name].value}" for name in ("updates", "evaluate_every", "save_every")]
        recipe = [f"--flagfile={os.path.abspath(FLAGS.recipe)}"] if FLAGS.recipe else MODEL.split()
        arguments = [f"--data_dir={corpus}", f"--run_dir={run_dir}", *recipe, *TRAINING.split()]
        python_path = os.pathsep.join([str(common.ROOT), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainers.train", *arguments, *flags_of_training],
            env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": python_path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_until(self, condition, *arguments, pause):
        """Checks a condition every `pause` seconds. Returns whether it became true before the process ended."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            if condition(*arguments):
                return True
            if time.monotonic() > end:
                self.process.kill()
                raise TimeoutError(f"Nothing happened for {PATIENCE} s in {self.run_dir}.")
            time.sleep(pause)
        return False

    def reached(self, update):
        """Returns whether this process has reached an update. Log lines of earlier processes are ignored."""
        log = self.run_dir / "log.jsonl"
        if not log.exists() or log.stat().st_mtime <= self.begun or log.stat().st_size == self.size:
            return False
        self.size = log.stat().st_size
        return last_update(self.run_dir) >= max(update, self.start + 1)

    def is_saving(self):
        """Returns whether a checkpoint is being written."""
        return any(self.run_dir.glob("checkpoints/partial_*"))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        return self.finish()

    def finish(self):
        """Waits for the end of the process and returns its output."""
        return self.process.communicate()[0]


def last_update(run_dir):
    """Returns the last update in the log."""
    log = run_dir / "log.jsonl"
    records = read_json_lines(log) if log.exists() else []
    return records[-1]["update"] if records else 0


def newest(run_dir):
    """Returns (update, path) of the newest checkpoint."""
    paths = sorted(run_dir.glob("checkpoints/update_*.npz"))
    return (int(paths[-1].stem.removeprefix("update_")), paths[-1]) if paths else (0, None)


def inject(corpus, folder, backend, moments):
    """Returns a row per kill, and the final differences between the killed and an uninterrupted training."""
    whole = Training(corpus, folder / "whole", backend)
    printed = whole.finish()
    if whole.process.returncode:
        raise ValueError(f"Training failed:\n{printed}")
    rows = []
    killed = folder / "killed"
    for number, moment in enumerate(moments, 1):
        training = Training(corpus, killed, backend)
        alive = training.wait_until(training.reached, moment, pause=0.005)
        if number % 2 == 0:
            alive = training.wait_until(training.is_saving, pause=0.0005)  # writing takes milliseconds
        if not alive:
            raise ValueError(f"Training ended before it could be killed:\n{training.finish()}")
        training.kill()
        reached, (kept, _) = last_update(killed), newest(killed)
        rows.append(dict(zip(COLUMNS, (number, reached, training.is_saving(), kept, reached - kept))))
        print_row(rows[-1])
    training = Training(corpus, killed, backend)
    printed = training.finish()
    if training.process.returncode:
        raise ValueError(f"Training did not resume:\n{printed}")
    return rows, differences(folder / "whole", killed)


def differences(run_dir, other_dir):
    """Returns the names of the arrays and files in which the results of two trainings differ."""
    names = []
    with np.load(newest(run_dir)[1]) as first, np.load(newest(other_dir)[1]) as second:
        names += [name for name in first.files if name != "state" and first[name].tobytes() != second[name].tobytes()]
        names += sorted(set(first.files) ^ set(second.files))
    if log_without_times(run_dir) != log_without_times(other_dir):
        names.append("log.jsonl")
    return names


def log_without_times(run_dir):
    records, times = read_json_lines(run_dir / "log.jsonl"), ("seconds", "tokens_per_second", "hours_left")
    return [{name: value for name, value in record.items() if name not in times} for record in records]


def print_row(row):
    words = {True: "yes", False: "no"}
    cells = (words[value] if isinstance(value, bool) else value for value in row.values())
    print("  ".join(f"{cell:>{width}}" for cell, width in zip(cells, COLUMNS.values())), flush=True)


def main():
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = prepare_text(Path(folder))
        for backend in FLAGS.backends:
            print(f"\n{backend}")
            print_row(dict(zip(COLUMNS, COLUMNS)))
            begun = time.monotonic()
            last = FLAGS.updates - 3 * FLAGS.save_every
            moments = sorted(random.Random(FLAGS.seed).choices(range(1, last), k=FLAGS.kills))
            rows, different = inject(corpus, Path(folder, backend), backend, moments)
            in_checkpoints = sum(row["in a checkpoint"] for row in rows)
            results[backend] = {
                "kills": len(rows),
                "in a checkpoint": in_checkpoints,
                "updates lost": sum(row["updates lost"] for row in rows),
                "differences": different,
                "seconds": round(time.monotonic() - begun),
                "rows": rows,
            }
            verdict = f"differ in {', '.join(different)}" if different else "are identical, bit for bit"
            print(f"{len(rows)} kills, {in_checkpoints} of them in a checkpoint: the ends {verdict}", flush=True)
    common.save(("kills", "updates", "evaluate_every", "save_every", "seed", "recipe"), backends=results)
    if any(result["differences"] for result in results.values()):
        raise ValueError("A killed training differs from the uninterrupted one, see above.")


if __name__ == "__main__":
    common.run(main, define_flags)
