# %% [markdown]
# # An adaptive softmax in a Keras model of your own
#
# A model that predicts the next word usually ends in `Dense(words, activation="softmax")`. With a large vocabulary
# this layer holds most of the weights, and its logits most of the memory. This tutorial replaces it and keeps the
# rest. `python -m scripts.tutorials.own_model` runs it as a program.

# %%
import keras
import numpy as np

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.models import WordModel

words = 50_000
lines = 1_024
length = 32
dim = 128
epochs = 2

# %% [markdown]
# ## A text
#
# The text is generated: in half of all places, word w is followed by word w + 1, and other words are drawn by Zipf's
# law. Ids must be sorted by descending frequency: id 0 is the most frequent word.

# %%
random = np.random.default_rng(0)
text = random.zipf(1.2, (lines, length + 1)) % words
for place in range(length):
    follows = random.random(lines) < 0.5
    text[follows, place + 1] = (text[follows, place] + 1) % words
inputs, targets = text[:, :-1], text[:, 1:]

# %% [markdown]
# ## A plain model, to compare with
#
# Its logits would be an array (batch, length, words).

# %%
plain = keras.Sequential(
    [
        keras.Input((None,), dtype="int32"),
        keras.layers.Embedding(words, dim),
        keras.layers.LSTM(dim, return_sequences=True),
        keras.layers.Dense(words),
    ]
)

# %% [markdown]
# ## The same model with adaptive input and output
#
# `cutoffs` divide the words into bands. The first band, up to a twelfth of the words, has vectors of `dim` values;
# each rarer band has a quarter as many. Input and output share their tables (`tied_to`). A `WordModel` owns the
# output: the loss is computed in chunks of rows, so `compile` needs no loss.

# %%
cutoffs = (words // 12, words // 3)
ids = keras.Input((None,), dtype="int32")
embedding = AdaptiveEmbedding(words, dim, cutoffs)
softmax = AdaptiveSoftmax(words, cutoffs, tied_to=embedding)
hidden = keras.layers.LSTM(dim, return_sequences=True)(embedding(ids))
model = WordModel(ids, hidden, word_output=softmax)
model.compile(keras.optimizers.Adam(0.005))
print(f"parameters: {plain.count_params():,} plain, {model.count_params():,} adaptive")

# %% [markdown]
# ## Training
#
# `fit` and `evaluate` work as usual, also with sample weights. The perplexity is over all targets.

# %%
weights = np.ones(targets.shape, "float32")
_, before = model.evaluate(inputs, targets, verbose=0)
model.fit(inputs, targets, sample_weight=weights, batch_size=32, epochs=epochs, verbose=2)
_, after = model.evaluate(inputs, targets, verbose=0)
print(f"perplexity: {before:.0f} before, {after:.0f} after")

# %% [markdown]
# ## The most probable words
#
# `predict` returns hidden states. `top_k` is exact, and visits rare bands only where they can matter.

# %%
log_probs, best = softmax.top_k(model.predict(inputs[:3], verbose=0)[:, -1], k=5)
for line, best_of_line in zip(inputs, keras.ops.convert_to_numpy(best)):
    print(f"after word {line[-1]}: {best_of_line.tolist()}")

# %% [markdown]
# ## A file
#
# A saved model loads on every backend. Loading it needs `import keras_adaptive`, which registers the layers.

# %%
model.save("own_model.keras")
loaded = keras.saving.load_model("own_model.keras")
print(f"perplexity after loading: {loaded.evaluate(inputs, targets, verbose=0)[1]:.0f}")
