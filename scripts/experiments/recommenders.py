"""Trains the same SASRec with one of several losses for some minutes, and ranks all items for users who are left out.

    python -m scripts.experiments.recommenders --make=generated --log=logs/generated.npy
    python -m scripts.experiments.recommenders --log=logs/generated.npy --loss=uniform --minutes=5 --results=r.json

`--make=generated` writes a log of 400,000 users and 1.1 million items with known truth: each click is in the group of
the user, of 1,000 groups, which changes with probability 0.1, and groups, like the items of a group, are clicked by a
power law. The ten most popular items of the group, which an ideal model finds, have an NDCG@10 of 0.21.
`--make=books` writes the words of a corpus as the items of users who read 51 of them. Items are numbers in random
order.

The last click of a user is the test, and the one before it is in no training. The first `--users` users are ranked
among all items, seen ones included. The time is the CPU time of `fit`, with its compilation, so that other work on the
machine does not count. `scripts/experiments/rectools_sasrec.py` does the same with RecTools.
"""

import functools
import time
from pathlib import Path

import numpy as np
from absl import flags

from keras_adaptive.files import write_json
from scripts.benchmarks.memory import peak_bytes
from trainers.support import command_line

FLAGS = flags.FLAGS
GROUPS, SIZE, CHANGE = 1_000, 1_500, 0.1
GROUP_POWER, ITEM_POWER = 0.5, 1.0
DIM, BLOCKS, HEADS, DROPOUT = 64, 2, 2, 0.2


def define_flags():
    command_line.define_path("log", None, "Log to write or to read, (users, clicks).", required=True)
    flags.DEFINE_enum("make", None, ["generated", "books"], "Log to write.")
    command_line.define_path("data_dir", None, "Corpus of --make=books.")
    flags.DEFINE_enum("loss", "adaptive", sorted(LOSSES), "Loss of the training.")
    flags.DEFINE_integer("noise", 4096, "Number of noise items per update.", 1)
    flags.DEFINE_float("minutes", 5.0, "CPU time of the training.")
    flags.DEFINE_float("rate", 1e-3, "Learning rate of LazyAdam.")
    flags.DEFINE_float("stddev", DIM**-0.5, "Standard deviation of the initial vectors of items.")
    flags.DEFINE_integer("batch_size", 128, "Number of users in an update.", 1)
    flags.DEFINE_integer("users", 10_000, "Number of users who are ranked.", 1)
    command_line.define_path("results", None, "JSON file to write.")


def generated(users=400_000, clicks=21):
    random, columns = np.random.default_rng(0), []
    new_groups = functools.partial(random.choice, GROUPS, users, p=power_law(GROUPS, GROUP_POWER))
    group, popularity = new_groups(), power_law(SIZE, ITEM_POWER)
    for _ in range(clicks):
        group = np.where(random.random(users) < CHANGE, new_groups(), group)
        columns.append(group * SIZE + random.choice(SIZE, users, p=popularity))
    return random.permutation(GROUPS * SIZE)[np.stack(columns, axis=1)]


def power_law(number, power):
    weights = np.arange(1, number + 1) ** -power
    return weights / weights.sum()


def of_books(users=100_000, clicks=51):
    from keras_adaptive.data import load_corpus

    tokens, random = np.asarray(load_corpus(FLAGS.data_dir).tokens("train")), np.random.default_rng(0)
    rows = tokens[: len(tokens) // clicks * clicks].reshape(-1, clicks)
    return random.permutation(tokens.max() + 1)[rows[random.permutation(len(rows))[:users]]]


def sasrec(items, counts):
    """Returns the model with the loss of the flags. Items have one vector for input and output."""
    from keras_adaptive import losses
    from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, WordEmbedding
    from keras_adaptive.models import LanguageModel, transformer

    noise = {"counts": counts} if FLAGS.loss == "unigram" else {}
    loss = LOSSES[FLAGS.loss] and LOSSES[FLAGS.loss](losses, **noise)
    cutoffs = (items // 100, items // 10) if FLAGS.loss == "adaptive" else ()
    words = AdaptiveEmbedding(items, DIM, cutoffs) if cutoffs else WordEmbedding(items, DIM)
    if FLAGS.stddev != DIM**-0.5:
        words.build()
        for table in words.tables:
            table.assign(table * (FLAGS.stddev * DIM**0.5))
    body = transformer(num_blocks=BLOCKS, dim=DIM, ffn_dim=DIM, num_heads=HEADS, dropout=DROPOUT)
    return LanguageModel(words, body, AdaptiveSoftmax(items, cutoffs, tied_to=words, loss=loss))


LOSSES = {
    "softmax": None,
    "adaptive": None,
    "log_uniform": lambda losses: losses.ImportanceSampling(FLAGS.noise),
    "uniform": lambda losses: losses.ImportanceSampling(FLAGS.noise, noise="uniform"),
    "unigram": lambda losses, counts: losses.ImportanceSampling(FLAGS.noise, counts=counts),
    "in_batch": lambda losses: losses.ImportanceSampling(FLAGS.noise, noise="in_batch"),
    "corrected": lambda losses: losses.CorrectedLogQ(FLAGS.noise, noise="uniform"),
    "gbce": lambda losses: losses.GBCE(FLAGS.noise, t=0.75),
}


def main():
    if FLAGS.make:
        Path(FLAGS.log).parent.mkdir(parents=True, exist_ok=True)
        np.save(FLAGS.log, (generated() if FLAGS.make == "generated" else of_books()).astype("int32"))
        return
    import keras

    from keras_adaptive.data import item_sequences
    from keras_adaptive.optimizers import LazyAdam

    keras.utils.set_random_seed(1)
    clicks = np.load(FLAGS.log)
    users, length = clicks.shape
    log = {"user": np.repeat(np.arange(users), length), "item": clicks.ravel()}
    sequences = item_sequences(log, time=None)
    model = sasrec(len(sequences.vocabulary), sequences.vocabulary.counts)
    model.compile(LazyAdam(FLAGS.rate, global_clipnorm=1.0))
    stop, start = Stop(FLAGS.minutes * 60), time.process_time()
    data = sequences.batches(length - 3, FLAGS.batch_size, seed=1)
    fit = functools.partial(model.fit, data, epochs=1_000, shuffle=False, verbose=0, callbacks=[stop.callback()])
    memory = peak_bytes(fit)  # beyond the weights, with the state of the optimizer
    seconds, start = time.process_time() - start, time.process_time()
    test = [array[: FLAGS.users] for array in sequences.histories("test", length - 1)]
    parts = zip(*(np.array_split(array, -(-FLAGS.users // 500)) for array in test))
    ranks = np.concatenate([ranks_of(model, *part) for part in parts])
    within = ranks <= 10
    result = {"log": Path(FLAGS.log).stem, "items": len(sequences.vocabulary), "loss": FLAGS.loss, "seconds": seconds}
    result |= {"noise": FLAGS.noise, "rate": FLAGS.rate, "updates": stop.updates, "backend": keras.config.backend()}
    result |= {"bytes": memory, "batch_size": FLAGS.batch_size, "stddev": FLAGS.stddev}
    result |= {"ranked": len(ranks), "hit": float(within.mean()), "ranking_seconds": time.process_time() - start}
    result["ndcg"] = float((within / np.log2(1 + ranks)).mean())
    print(result)
    if FLAGS.results:
        write_json(FLAGS.results, result)


def ranks_of(model, tokens, targets, weights):
    """Returns the ranks of the targets, of which each row has one, among all items."""
    import keras

    hidden = keras.ops.convert_to_numpy(model(tokens))[weights > 0]
    return keras.ops.convert_to_numpy(model.word_output.rank(hidden, targets[weights > 0]))


class Stop:
    """Ends `fit` after some seconds of CPU time."""

    def __init__(self, seconds):
        self.end, self.updates = time.process_time() + seconds, 0

    def callback(self):
        import keras

        def after_update(batch, logs=None):
            self.updates += 1
            callback.model.stop_training = time.process_time() >= self.end

        callback = keras.callbacks.LambdaCallback(on_train_batch_end=after_update)
        return callback


if __name__ == "__main__":
    command_line.run(main, define_flags)
