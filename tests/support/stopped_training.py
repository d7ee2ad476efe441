"""Trains with `trainers.train` by a strategy, once in peace and once stopped and continued, in each of its processes.

    python -m tests.support.stopped_training DEVICES FOLDER FLAG...

`tests/distribution/test_strategies.py` compares the folders `whole` and `stopped`. The last process is told to stop.
"""

import os
import sys

from scripts.benchmarks.virtual_devices import make_devices


def main(devices, folder, flags):
    make_devices(int(devices))
    from tests.support.backends import use_graph_optimizer
    from tests.support.programs import call
    from tests.support.runs import stopped
    from trainers import train

    use_graph_optimizer(False)
    last = os.environ.get("RANK") in (None, "1")
    call(train, *flags, f"--run_dir={folder}/whole")
    with stopped("on_train_batch_end", 1 if last else None):
        call(train, *flags, f"--run_dir={folder}/stopped")
    call(train, *flags, f"--run_dir={folder}/stopped")
    print("ended")


if __name__ == "__main__":
    main(*sys.argv[1:3], sys.argv[3:])
