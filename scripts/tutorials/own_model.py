"""Tutorial 1: an adaptive softmax in a Keras model of your own.

    python -m scripts.tutorials.own_model

A model that predicts the next word usually ends in `Dense(words, activation="softmax")`. With a large vocabulary this
layer holds most of the weights, and its logits most of the memory. This tutorial replaces it and keeps the rest.
"""

import keras
import numpy as np

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.models import WordModel


def example_text(words, lines, length):
    """Returns ids (lines, length + 1). In half of all places, word w is followed by word w + 1."""
    random = np.random.default_rng(0)
    ids = random.zipf(1.2, (lines, length + 1)) % words
    for place in range(length):
        follows = random.random(lines) < 0.5
        ids[follows, place + 1] = (ids[follows, place] + 1) % words
    return ids


def main(words=50_000, lines=1_024, length=32, dim=128, epochs=2):
    # 1. Ids must be sorted by descending frequency: id 0 is the most frequent word. `cutoffs` divide them into bands.
    #    The first band, up to a tenth of the words, has vectors of `dim` values; each rarer band has a quarter as many.
    cutoffs = (words // 12, words // 3)
    text = example_text(words, lines, length)
    inputs, targets = text[:, :-1], text[:, 1:]

    # 2. A plain model, to compare with. Its logits would be an array (batch, length, words).
    plain = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(words, dim),
            keras.layers.LSTM(dim, return_sequences=True),
            keras.layers.Dense(words),
        ]
    )

    # 3. The same model with adaptive input and output, which share their tables (`tied_to`). A `WordModel` owns the
    #    output: the loss is computed in chunks of rows, so `compile` needs no loss.
    ids = keras.Input((None,), dtype="int32")
    embedding = AdaptiveEmbedding(words, dim, cutoffs)
    softmax = AdaptiveSoftmax(words, cutoffs, tied_to=embedding)
    hidden = keras.layers.LSTM(dim, return_sequences=True)(embedding(ids))
    model = WordModel(ids, hidden, word_output=softmax)
    model.compile(keras.optimizers.Adam(0.005))
    print(f"parameters: {plain.count_params():,} plain, {model.count_params():,} adaptive")

    # 4. `fit` and `evaluate` work as usual, also with sample weights. The perplexity is over all targets.
    weights = np.ones(targets.shape, "float32")
    _, before = model.evaluate(inputs, targets, verbose=0)
    model.fit(inputs, targets, sample_weight=weights, batch_size=32, epochs=epochs, verbose=2)
    _, after = model.evaluate(inputs, targets, verbose=0)
    print(f"perplexity: {before:.0f} before, {after:.0f} after")

    # 5. `predict` returns hidden states. `top_k` is exact, and visits rare bands only where they can matter.
    log_probs, best = softmax.top_k(model.predict(inputs[:3], verbose=0)[:, -1], k=5)
    for line, words_of_line in zip(inputs, keras.ops.convert_to_numpy(best)):
        print(f"after word {line[-1]}: {words_of_line.tolist()}")

    # 6. A saved model loads on every backend. Loading it needs `import keras_adaptive`, which registers the layers.
    return {"plain": plain, "model": model, "perplexity": (before, after), "best": best, "inputs": inputs}


if __name__ == "__main__":
    main()["model"].save("own_model.keras")
