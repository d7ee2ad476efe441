# %% [markdown]
# # The surprisal of words, against their length and frequency
#
# The surprisal of a word is −log2 of its probability after the words before it, in bits. Experiments with readers
# compare it with reading times, together with the length and the frequency of the word. This tutorial trains a small
# model on a novel of the public domain, in about two minutes, scores parts of the novel that the model has not seen,
# and shows how surprisal depends on length and frequency. `python -m scripts.tutorials.surprisal` runs it as a
# program.

# %%
import re
import urllib.request
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

from keras_adaptive.data import BlockBatches, TextCodec, prepare, split_text
from keras_adaptive.models import transformer_lm
from keras_adaptive.text import TextModel

dim = 128
length = 64
batch_size = 32
epochs = 8

# %% [markdown]
# ## A text
#
# The text is Great Expectations by Charles Dickens (1867), from Project Gutenberg, with a paragraph per line. Any
# other text will do: put it into this file.

# %%
novel = Path("novel.txt")
if not novel.exists():
    with urllib.request.urlopen("https://www.gutenberg.org/cache/epub/1400/pg1400.txt") as page:
        book = page.read().decode("utf-8-sig").replace("\r", "")
    book = re.search(r"\*\*\* START OF.*?\*\*\*(.*)\*\*\* END OF", book, re.DOTALL)[1]
    paragraphs = [" ".join(paragraph.split()) for paragraph in book.split("\n\n")]
    novel.write_text("\n".join(filter(None, paragraphs)), encoding="utf-8")

# %% [markdown]
# A tenth of the paragraphs is for the test. Words with fewer than 3 occurrences in training become `<unk>`.

# %%
Path("text").mkdir(exist_ok=True)
split_text(novel, "text", by="lines", test_fraction=0.1)
corpus, codec = prepare("text", "corpus", tokenizer="words"), TextCodec.load("corpus")
words = len(corpus.vocabulary)
print(f"{len(corpus.tokens('train')):,} words of training, {words:,} different ones")

# %% [markdown]
# ## A model
#
# It predicts each word from those before it in a block of 64 words. It would soon learn the novel by heart, so that a
# fourth of its activations is dropped in training.

# %%
model = transformer_lm(
    words, dim=dim, num_blocks=2, num_heads=4, ffn_dim=4 * dim, cutoffs=(words // 12, words // 3), dropout=0.25
)
model.compile(keras.optimizers.Adam(0.002, global_clipnorm=1.0))
train = BlockBatches(corpus.tokens("train"), length, batch_size, seed=1)
valid = BlockBatches(corpus.tokens("valid"), length, batch_size, seed=1, shuffle=False)
model.fit(
    train.batches(0),
    steps_per_epoch=len(train),
    epochs=epochs,
    validation_data=valid.batches(0),
    validation_steps=len(valid),
    shuffle=False,
    verbose=2,
)

# %% [markdown]
# ## The surprisal of a sentence
#
# `surprisals` returns a row per word, for example for `pandas.DataFrame`. The first word is scored after the end of a
# line.

# %%
lm = TextModel(model, codec)
sentence = lm.surprisals("I am sure that she had no idea of it .", end=False)
figure, axis = plt.subplots(figsize=(8, 3))
axis.bar(range(len(sentence)), [row["surprisal"] for row in sentence])
axis.set_xticks(range(len(sentence)), [row["word"] for row in sentence])
axis.set_ylabel("surprisal (bits)")
figure.savefig("sentence.png")

# %% [markdown]
# ## Length and frequency
#
# Unknown words and punctuation are left out: `<unk>` is one frequent symbol, so that it looks predictable.

# %%
lines = Path("text/test.txt").read_text(encoding="utf-8").splitlines()
known = set(corpus.vocabulary.words)
rows = [row for row in lm.surprisals(lines, end=False) if row["word"] in known and row["word"].isalpha()]
surprisal = np.array([row["surprisal"] for row in rows])
letters = np.array([len(row["word"]) for row in rows])
frequency = np.array([row["log_frequency"] for row in rows]) / np.log(10)  # powers of 10
print(f"{len(rows):,} words, mean surprisal {surprisal.mean():.2f} bits")

# %% [markdown]
# Each point is the mean of a group of words with its standard error: of words of one length, and of a tenth of all
# words by frequency.


# %%
def means(values, groups):
    """Returns the mean of `values` and of the surprisal of each group, and the standard error of the latter."""
    chosen = [group for group in groups if group.sum() > 1]
    errors = [surprisal[group].std() / group.sum() ** 0.5 for group in chosen]
    return [values[group].mean() for group in chosen], [surprisal[group].mean() for group in chosen], errors


order = np.argsort(np.argsort(frequency))  # 0 is the rarest
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
left.errorbar(*means(letters, [letters == number for number in range(1, 15)]), fmt="o-")
left.set(xlabel="length (letters)", ylabel="surprisal (bits)")
right.errorbar(*means(frequency, [order * 10 // len(order) == tenth for tenth in range(10)]), fmt="o-")
right.set(xlabel="frequency (log10 of the share of the training text)")
figure.tight_layout()
figure.savefig("length_and_frequency.png")

# %% [markdown]
# Long words are rare words. A regression on both says what each has for itself: bits per letter, and bits per power of
# 10 of the frequency.

# %%
design = np.stack([np.ones(len(rows)), letters, frequency], axis=1)
(_, per_letter, per_power), *_ = np.linalg.lstsq(design, surprisal, rcond=None)
print(f"a letter more: {per_letter:+.2f} bits; ten times as frequent: {per_power:+.2f} bits")
for name, values in {"length": letters, "frequency": frequency}.items():
    print(f"correlation of surprisal and {name}: {np.corrcoef(values, surprisal)[0, 1]:.2f}")
