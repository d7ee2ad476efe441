"""Trains and measures SASRec of RecTools as `scripts.experiments.recommenders` does ours, in an environment of its own.

    pip install torch "rectools[torch]"
    python scripts/experiments/rectools_sasrec.py LOG.npy LOSS MINUTES NEGATIVES BATCH_SIZE RATE RESULT.json

LOSS is softmax, gBCE, sampled_softmax or BCE, which with one of the NEGATIVES that are drawn for each target is the
loss of the example of keras_rs. The time is the CPU time of the training loop, without the preparation of the data.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

USERS = 10_000


def main(log, loss, minutes, negatives, batch_size, rate, result):
    import pytorch_lightning as lightning
    from rectools.dataset import Dataset
    from rectools.models.nn.transformers.sasrec import SASRecModel

    lightning.seed_everything(1, verbose=False)
    clicks, times, held = np.load(log), [], []

    class Watch(lightning.Callback):
        def on_train_start(self, *_):
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current level
            held.append(resident("VmRSS"))
            times.append(time.process_time())

        def on_train_batch_end(self, trainer, *_):
            times.append(time.process_time())
            trainer.should_stop = times[-1] - times[0] >= 60 * float(minutes)

    def trainer():
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        once = {"enable_checkpointing": False, "accelerator": "cpu", "callbacks": [Watch()]}
        return lightning.Trainer(max_epochs=1_000, **quiet, **once)

    model = SASRecModel(
        n_blocks=2,
        n_heads=2,
        n_factors=64,
        dropout_rate=0.2,
        session_max_len=clicks.shape[1] - 3,
        loss=loss,
        n_negatives=int(negatives),
        gbce_t=0.75,
        lr=float(rate),
        batch_size=int(batch_size),
        get_trainer_func=trainer,
    )
    model.fit(Dataset.construct(table(clicks[:, :-2])))
    used = resident("VmHWM") - held[0]  # beyond the weights, with the state of the optimizer
    ranks = ranks_of(
        model.recommend(np.arange(USERS), Dataset.construct(table(clicks[:USERS, :-1])), 10, False), clicks
    )
    figures = {"log": Path(log).stem, "loss": loss, "negatives": int(negatives), "batch_size": int(batch_size)}
    figures |= {"rate": float(rate), "seconds": times[-1] - times[0], "updates": len(times) - 1, "ranked": USERS}
    figures |= {"bytes": used}
    figures |= {"hit": len(ranks) / USERS, "ndcg": float((1 / np.log2(1 + ranks)).sum()) / USERS}
    print(figures)
    Path(result).write_text(json.dumps(figures), encoding="utf-8")


def resident(field):
    """Returns a size of the process in bytes, on Linux: VmRSS is its resident memory, and VmHWM is the peak."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def table(clicks):
    import pandas

    users, length = clicks.shape
    hours = np.datetime64("2026-01-01") + np.arange(length).astype("timedelta64[h]")
    columns = {"user_id": np.repeat(np.arange(users), length), "item_id": clicks.ravel()}
    return pandas.DataFrame({**columns, "weight": 1.0, "datetime": np.tile(hours, users)})


def ranks_of(recommended, clicks):
    """Returns the ranks of the last clicks that are among the recommended items."""
    targets = clicks[recommended["user_id"].to_numpy(), -1]
    return recommended["rank"].to_numpy()[recommended["item_id"].to_numpy() == targets]


if __name__ == "__main__":
    main(*sys.argv[1:])
