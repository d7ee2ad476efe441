"""Trains with `trainers.train` by a strategy, once in peace and once stopped and continued, in each of its processes.

    python -m tests.support.stopped_training DEVICES FOLDER FLAG...

`tests/distribution/test_strategies.py` compares the folders `whole` and `stopped`. The last process is told to stop.
"""

import os
import signal
import sys

from scripts.benchmarks.virtual_devices import make_devices


def main(devices, folder, flags):
    make_devices(int(devices))
    import keras

    from tests.support.backends import use_graph_optimizer
    from tests.support.programs import call
    from trainers import train

    use_graph_optimizer(False)
    last = os.environ.get("RANK") in (None, "1")
    stop = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: os.kill(os.getpid(), signal.SIGTERM) if batch == 1 and last else None
    )
    fit = keras.Model.fit
    call(train, *flags, f"--run_dir={folder}/whole")
    keras.Model.fit = lambda *arguments, callbacks, **rest: fit(*arguments, callbacks=[stop, *callbacks], **rest)
    try:
        call(train, *flags, f"--run_dir={folder}/stopped")
        sys.exit("It was not stopped.")
    except SystemExit as stopped:
        assert stopped.code == 143, stopped.code
    keras.Model.fit = fit
    call(train, *flags, f"--run_dir={folder}/stopped")
    print("ended")


if __name__ == "__main__":
    main(*sys.argv[1:3], sys.argv[3:])
