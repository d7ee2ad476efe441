"""Tutorial 2: the next of a million items.

    python -m scripts.tutorials.recommender
    python -m scripts.tutorials.recommender ml-100k gru4rec

A recommender that predicts the next click is a language model whose words are items. A softmax over a million items is
affordable with bands, and with an optimizer that changes only the rows of the items in a batch. The log is generated,
with known truth, or MovieLens 100K, which `pip install recbole` brings along. The body is that of SASRec (Kang and
McAuley 2018) or of GRU4Rec (Hidasi et al. 2016).
"""

import importlib.util
import sys
from pathlib import Path

import keras
import numpy as np

from keras_adaptive.data import item_sequences
from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.metrics import MRR, NDCG, HitRate
from keras_adaptive.models import WordModel, transformer
from keras_adaptive.optimizers import LazyAdam
from keras_adaptive.special_words import SPECIAL_WORDS

GROUPS = 50  # groups of items; a user clicks items of one group


def generated(items=1_000_000, users=20_000, clicks=12):
    """Returns a log: popular items more often, and each user in one group of items."""
    random = np.random.default_rng(0)
    group = random.integers(GROUPS, size=(users, 1))
    ranks = random.zipf(1.3, (users, clicks)) % (items // GROUPS)
    best = np.sort(np.bincount(ranks.ravel()))[-10:].sum() / ranks.size
    print(f"the ten most popular items of the user's group are {best:.1%} of the clicks: an ideal model finds these")
    names = [f"item {number}" for number in random.permutation(items)]
    return {"user": np.repeat(np.arange(users), clicks), "item": np.array(names)[(group + GROUPS * ranks).ravel()]}


def ml_100k():
    """Returns the log that the installed package RecBole contains."""
    if (package := importlib.util.find_spec("recbole")) is None:
        raise ModuleNotFoundError("MovieLens 100K comes with RecBole: pip install --no-deps recbole")
    path = Path(package.origin).parent / "dataset_example/ml-100k/ml-100k.inter"
    user, item, _, time = np.loadtxt(path, skiprows=1, dtype="int64", unpack=True)
    return {"user": user, "item": item, "time": time}


LOGS = {"generated": generated, "ml-100k": ml_100k}
EPOCHS = {"generated": 2, "ml-100k": 25}  # of one row per user


def main(log="generated", body="sasrec", *, length=50, dim=64, epochs=None, batch_size=64, **sizes):
    # 1. From clicks to ids: in descending order of their counts, as the bands need them. The last click of each user is
    #    the test, the one before it the validation.
    clicks = LOGS[log](**sizes)
    sequences = item_sequences(clicks, time="time" if "time" in clicks else None)
    print(sequences.summary)
    items = len(sequences.vocabulary)

    # 2. The model reads a history and predicts the next item at every place. Items share vectors between input and
    #    output. A few thousand items need no bands.
    cutoffs = (items // 100, items // 10) if items > 20_000 else ()
    history = keras.Input((None,), dtype="int32", name="history")
    embedding = AdaptiveEmbedding(items, dim, cutoffs)
    if body == "sasrec":
        taste = transformer(num_blocks=2, dim=dim, ffn_dim=dim, num_heads=2, dropout=0.2)(embedding(history))
    else:
        taste = keras.layers.GRU(dim, return_sequences=True)(embedding(history))
    model = WordModel(history, taste, word_output=AdaptiveSoftmax(items, cutoffs, tied_to=embedding))

    # 3. `LazyAdam` reads and writes only the rows of the tables that a batch uses, so that an update does not touch a
    #    million vectors. Ranks are among all items.
    model.compile(LazyAdam(0.002), metrics=[HitRate(10), NDCG(10), MRR()])
    train, valid = sequences.batches(length, batch_size, seed=1), sequences.histories("valid", length)
    model.fit(
        train, epochs=epochs or EPOCHS[log], shuffle=False, validation_data=valid, validation_batch_size=256, verbose=2
    )

    # 4. Measure. The most clicked items, which are the first ids, are the baseline.
    tokens, targets, weights = sequences.histories("test", length)
    results = model.evaluate(tokens, targets, sample_weight=weights, batch_size=256, return_dict=True, verbose=0)
    popular = np.mean(targets[weights > 0] < len(SPECIAL_WORDS) + 10)
    found = f"HitRate@10 {results['hit_rate_at_10']:.1%}, NDCG@10 {results['ndcg_at_10']:.4f}"
    print(f"test: {found}; the ten most popular items have a hit rate of {popular:.1%}")

    # 5. Recommend: names in, names out, without what was clicked before and the words that are no items.
    allowed = np.arange(items) >= len(SPECIAL_WORDS)

    def recommend(names, k=10):
        ids = sequences.vocabulary.encode(names)[None, -length:]
        hidden = model.predict(ids, verbose=0)[:, -1]
        _, best = model.word_output.top_k(hidden, k, exclude=ids, allowed=allowed)
        return sequences.vocabulary.decode(keras.ops.convert_to_numpy(best)[0])

    clicked = sequences.vocabulary.decode(tokens[0][: int(np.argmax(weights[0])) + 1])
    print(f"after {clicked[-3:]}: {recommend(clicked)[:3]}")
    return {"results": results, "popular": popular, "clicked": clicked, "recommended": recommend(clicked)}


if __name__ == "__main__":
    main(*sys.argv[1:])
