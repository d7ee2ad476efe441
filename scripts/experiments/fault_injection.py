"""Kills training with `kill -9`, again and again, and compares its end with the end of an undisturbed training.

    python -m scripts.experiments.fault_injection --backends=torch,jax,tensorflow --kills=20
    python -m scripts.experiments.fault_injection --recipe=scripts/experiments/streams.flags --kills=10

The program trains in processes of trainers.train, with dropout and gradient accumulation, on random text. The model is
a small Transformer, or any other that --recipe describes, such as a small AWD-LSTM that reads streams. The kills
come at random updates; every other one waits for a checkpoint that is being written. Then the same command resumes. In
the end the weights, the optimizer, the dropout's seeds and the log (but for times) must be bit-identical. The program
ends with status 1 if anything differs.
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

FLAGS = flags.FLAGS
MODEL = (
    "--dim=32 --num_blocks=1 --num_heads=2 --ffn_dim=64 --cutoffs=100,400 --length=16 --batch_size=8 --dropout=0.2 "
    "--momentum=0.9"
)
TRAINING = "--micro_batches=2 --log_every=1 --notensorboard"
PATIENCE = 600  # seconds for an update, compiling included
COLUMNS = {"kill": 4, "after update": 12, "in a checkpoint": 15, "resumed from": 12, "updates lost": 12}


def define_flags():
    flags.DEFINE_list("backends", ["torch", "jax", "tensorflow"], "Backends to test, one after the other.")
    flags.DEFINE_integer("kills", 20, "Number of kills.", lower_bound=1)
    flags.DEFINE_integer("updates", 600, "Updates of the training.", lower_bound=1)
    flags.DEFINE_integer("evaluate_every", 60, "Updates between two validations.", lower_bound=1)
    flags.DEFINE_integer("save_every", 7, "Updates between two checkpoints.", lower_bound=1)
    flags.DEFINE_integer("seed", 1, "Seed of the updates at which training is killed.", lower_bound=0)
    flags.DEFINE_string("recipe", None, "Flagfile of another model, its batches and its optimizer. Optional.")
    flags.DEFINE_string("results", None, "JSON file to write, from a working tree without changes.")


def prepare_text(folder):
    """Makes a corpus of a thousand random words and returns its folder."""
    from keras_adaptive.data import prepare

    numbers = np.random.default_rng(1)
    for split, lines in (("train", 2000), ("valid", 60), ("test", 20)):
        ranks = numbers.zipf(1.3, (lines, 12)) % 1000
        (folder / f"{split}.txt").write_text("\n".join(" ".join(f"w{rank}" for rank in row) for row in ranks) + "\n")
    prepare(folder, folder / "corpus", min_count=1)
    return folder / "corpus"


class Training:
    """Process of trainers.train on a run folder."""

    def __init__(self, corpus, run_dir, backend):
        self.run_dir, self.size = run_dir, None  # of the log when it was last read
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
        """Returns whether the condition came true before the process ended; asks every `pause` seconds."""
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
        """Returns whether this process has trained up to this update; lines of earlier processes do not count."""
        log = self.run_dir / "log.jsonl"
        if not log.exists() or log.stat().st_mtime <= self.begun or log.stat().st_size == self.size:
            return False
        self.size = log.stat().st_size
        return last_update(self.run_dir) >= max(update, self.start + 1)

    def is_saving(self):
        """Returns whether there is a half-written checkpoint."""
        return any(self.run_dir.glob("checkpoints/partial_*"))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        return self.finish()

    def finish(self):
        """Waits for the end of the process and returns what it printed."""
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
    """Returns a row for each kill, and what differs in the end between the killed training and an undisturbed one."""
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
            alive = training.wait_until(training.is_saving, pause=0.0005)  # it takes milliseconds
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


def differences(one, other):
    """Returns the names of what differs between the ends of two trainings."""
    found = []
    with np.load(newest(one)[1]) as first, np.load(newest(other)[1]) as second:
        found += [name for name in first.files if name != "state" and first[name].tobytes() != second[name].tobytes()]
        found += sorted(set(first.files) ^ set(second.files))
    if log_without_times(one) != log_without_times(other):
        found.append("log.jsonl")
    return found


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
        raise ValueError("A killed training differs from the undisturbed one, see above.")


if __name__ == "__main__":
    common.run(main, define_flags)
