# %% [markdown]
# # The next of a million items
#
# A recommender that predicts the next click is a language model whose words are items. A softmax over a million items
# is affordable with bands, and with an optimizer that changes only the rows of the items in a batch. The log is
# generated, with known truth, or MovieLens 100K, which `pip install --no-deps recbole` brings along. The body is that
# of SASRec (Kang and McAuley 2018) or of GRU4Rec (Hidasi et al. 2016). `python -m scripts.tutorials.recommender` runs
# it as a program.

# %%
import importlib.util
from collections import Counter
from pathlib import Path

import keras
import numpy as np

from keras_adaptive.data import Vocabulary, item_sequences
from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.metrics import MRR, NDCG, HitRate
from keras_adaptive.models import WordModel, transformer
from keras_adaptive.optimizers import LazyAdam
from keras_adaptive.special_words import SPECIAL_WORDS

log = "generated"  # or "ml-100k"
body = "sasrec"  # or "gru4rec"
catalog = 1_000_000
users = 20_000
clicks = 12
groups = 50
length = 50
dim = 64
batch_size = 64
epochs = 2  # of a row per user; 25 for "ml-100k"

# %% [markdown]
# ## A log of clicks
#
# In the generated log each user clicks items of one of 50 groups, popular items more often. An ideal model finds out
# the group of a user, and then recommends its most popular items. Its vocabulary has all items of the catalog, also
# those that nobody has clicked.


# %%
def generated():
    random = np.random.default_rng(0)
    group = random.integers(groups, size=(users, 1))
    ranks = random.zipf(1.3, (users, clicks)) % (catalog // groups)
    best = np.sort(np.bincount(ranks.ravel()))[-10:].sum() / ranks.size
    print(f"the ten most popular items of the user's group are {best:.1%} of the clicks: an ideal model finds these")
    names = np.array([f"item {number}" for number in random.permutation(catalog)])
    items = names[group + groups * ranks]
    counts = dict.fromkeys(names.tolist(), 0) | Counter(items[:, :-2].ravel().tolist())  # in training
    vocabulary = Vocabulary.from_counts(counts, min_count=0)
    return {"user": np.repeat(np.arange(users), clicks), "item": items.ravel()}, vocabulary


def ml_100k():
    path = Path(importlib.util.find_spec("recbole").origin).parent / "dataset_example/ml-100k/ml-100k.inter"
    user, item, _, time = np.loadtxt(path, skiprows=1, dtype="int64", unpack=True)
    return {"user": user, "item": item, "time": time}, None


table, vocabulary = generated() if log == "generated" else ml_100k()

# %% [markdown]
# ## From clicks to ids
#
# Ids are in descending order of the counts in training, as the bands need them. The last click of each user is the
# test, the one before it the validation. Without a vocabulary, `item_sequences` makes one of the items that are
# clicked in training.

# %%
sequences = item_sequences(table, time="time" if "time" in table else None, vocabulary=vocabulary)
items = len(sequences.vocabulary)
print(sequences.summary)

# %% [markdown]
# ## The model
#
# It reads a history and predicts the next item at every place. Items share vectors between input and output. A few
# thousand items need no bands.

# %%
cutoffs = (items // 100, items // 10) if items > 20_000 else ()
history = keras.Input((None,), dtype="int32", name="history")
embedding = AdaptiveEmbedding(items, dim, cutoffs)
if body == "sasrec":
    taste = transformer(num_blocks=2, dim=dim, ffn_dim=dim, num_heads=2, dropout=0.2)(embedding(history))
else:
    taste = keras.layers.GRU(dim, return_sequences=True)(embedding(history))
model = WordModel(history, taste, word_output=AdaptiveSoftmax(items, cutoffs, tied_to=embedding))
print(f"{model.count_params():,} parameters")

# %% [markdown]
# ## Training
#
# `LazyAdam` reads and writes only the rows of the tables that a batch uses, so that an update does not touch the
# vectors of all items. Ranks are among all items, never among a sample of them.

# %%
model.compile(LazyAdam(0.002), metrics=[HitRate(10), NDCG(10), MRR()])
train, valid = sequences.batches(length, batch_size, seed=1), sequences.histories("valid", length)
model.fit(train, epochs=epochs, shuffle=False, validation_data=valid, validation_batch_size=256, verbose=2)

# %% [markdown]
# ## Evaluation
#
# The most clicked items, which are the first ids, are the baseline.

# %%
tokens, targets, weights = sequences.histories("test", length)
results = model.evaluate(tokens, targets, sample_weight=weights, batch_size=256, return_dict=True, verbose=0)
popular = np.mean(targets[weights > 0] < len(SPECIAL_WORDS) + 10)
print(f"test: HitRate@10 {results['hit_rate_at_10']:.1%}, NDCG@10 {results['ndcg_at_10']:.4f}")
print(f"the ten most popular items: HitRate@10 {popular:.1%}")

# %% [markdown]
# ## Recommendations
#
# Names in, names out, without what was clicked before and the words that are no items.

# %%
allowed = np.arange(items) >= len(SPECIAL_WORDS)


def recommend(names, k=10):
    ids = sequences.vocabulary.encode(names)[None, -length:]
    hidden = model.predict(ids, verbose=0)[:, -1]
    _, best = model.word_output.top_k(hidden, k, exclude=ids, allowed=allowed)
    return sequences.vocabulary.decode(keras.ops.convert_to_numpy(best)[0])


clicked = sequences.vocabulary.decode(tokens[0][: int(np.argmax(weights[0])) + 1])
recommended = recommend(clicked)
print(f"after {clicked[-3:]}: {recommended[:3]}")
