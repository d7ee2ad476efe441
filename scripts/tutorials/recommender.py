"""Tutorial 2: the next of a million items.

    python -m scripts.tutorials.recommender

A recommender that predicts the next click is a language model whose words are items. A softmax over a million items is
affordable with bands, and with an optimizer that changes only the rows of the items in a batch.
"""

import keras
import numpy as np

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.optimizers import LazyAdam

GROUPS = 50  # groups of items; a user clicks items of one group


def example_clicks(items, users, length):
    """Returns item ids (users, length + 1): popular items more often, and each user in one group of items."""
    random = np.random.default_rng(0)
    group = random.integers(GROUPS, size=(users, 1))
    return group + GROUPS * (random.zipf(1.3, (users, length + 1)) % (items // GROUPS))


def main(items=1_000_000, users=20_000, length=10, dim=64, epochs=2):
    # 1. Sort items in descending order of their clicks, so that id 0 is the most clicked one, as these are:
    #    `Vocabulary.from_counts` does it for any ids and keeps the map. The last users are held out.
    clicks = example_clicks(items, users, length)
    train, test = clicks[: -users // 10], clicks[-users // 10 :]

    # 2. The input is a history of clicks, the target one item. Items share vectors between input and output.
    cutoffs = (items // 100, items // 10)
    history = keras.Input((None,), dtype="int32")
    next_item = keras.Input((), dtype="int32")
    embedding = AdaptiveEmbedding(items, dim, cutoffs)
    softmax = AdaptiveSoftmax(items, cutoffs, tied_to=embedding)
    taste = keras.layers.GRU(dim)(embedding(history))

    # 3. Given targets, the output layer adds its loss to the model. `LazyAdam` reads and writes only the rows of the
    #    tables that a batch uses, so that an update does not touch a million vectors.
    model = keras.Model([history, next_item], softmax(taste, next_item))
    model.compile(LazyAdam(0.005))
    model.fit([train[:, :-1], train[:, -1]], batch_size=64, epochs=epochs, verbose=2)

    # 4. `recommend` maps a history to the best items that are not in it.
    reader = keras.Model(history, taste)

    def recommend(histories, k=10):
        _, best = softmax.top_k(reader.predict(histories, verbose=0), k, exclude=histories)
        return keras.ops.convert_to_numpy(best)

    # 5. Measure: how often is the next item, if it is new, among the ten? The most clicked items are the baseline.
    popular = np.argsort(-np.bincount(train.ravel(), minlength=items))[:10]
    new = np.array([row[-1] not in row[:-1] for row in test])
    recommended = recommend(test[new, :-1])
    found = np.mean([row[-1] in best for row, best in zip(test[new], recommended)])
    baseline = np.mean(np.isin(test[new, -1], popular))
    print(f"next item among ten: {found:.1%}; among the ten most popular: {baseline:.1%}")
    return {"histories": test[new, :-1], "recommended": recommended, "found": found, "baseline": baseline}


if __name__ == "__main__":
    main()
