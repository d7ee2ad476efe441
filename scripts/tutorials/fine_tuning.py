# %% [markdown]
# # Fine-tuning a task of KerasHub by LoRA, without its logits
#
# The logits of a language model, (tokens, words), take more memory than all its layers when the vocabulary is large.
# This tutorial measures it, and then trains the same task without them. It needs KerasHub, and Linux, to measure
# memory. Set `TF_ENABLE_ONEDNN_OPTS=0` for TensorFlow, whose oneDNN kernels keep theirs. `python -m
# scripts.tutorials.fine_tuning` runs it as a program.

# %%
import ctypes
import gc
import re
from pathlib import Path

import keras
import keras_hub
import numpy as np

import keras_adaptive

words = 50_257  # of GPT-2
lines = 128
length = 16
epochs = 6

# %% [markdown]
# ## A task
#
# A task of KerasHub takes strings. This one is a small GPT-2 with random weights, and room for the words of GPT-2;
# `keras_hub.models.CausalLM.from_preset` has trained ones. Its tokenizer is made here, so that nothing is downloaded: a
# piece is the beginning of a word, and Ġ stands for a space.

# %%
BEFORE = "Return a list of the names in the folder . Return the name of the folder . Return the length of the list ."
AFTER = "Return the names of a folder in the list . Return the list of the length of a name in the folder ."

keras.utils.set_random_seed(1)
starts = [space + word for space in ("Ġ", "") for word in sorted({*BEFORE.split()})]
merges = dict.fromkeys(f"{word[:end]} {word[end]}" for word in starts for end in range(1, len(word)))
pieces = ["<|endoftext|>", *sorted({*"".join(starts)}), *(merge.replace(" ", "") for merge in merges)]
vocabulary = {piece: number for number, piece in enumerate(pieces)}
tokenizer = keras_hub.tokenizers.GPT2Tokenizer(vocabulary, merges=list(merges))
preprocessor = keras_hub.models.GPT2CausalLMPreprocessor(tokenizer, sequence_length=length)
backbone = keras_hub.models.GPT2Backbone(words, 2, 2, hidden_dim=64, intermediate_dim=128, max_sequence_length=length)
task = keras_hub.models.GPT2CausalLM(backbone, preprocessor)


def sentences(text):
    """Returns lines of 12 words that begin at random places of a text."""
    parts, places = text.split(), np.random.default_rng(0).integers(len(text.split()), size=lines)
    return [" ".join((2 * parts)[place : place + 12]) for place in places]


text = sentences(BEFORE)

# %% [markdown]
# ## The memory of an update
#
# An update as KerasHub computes it holds the logits of the batch several times. The same update without logits has the
# same weights, and holds a chunk of them.


# %%
def status(field):
    """Returns a field of the memory of this process, in bytes."""
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def memory_of_update():
    """Returns the bytes by which the memory of this process rises during an update."""
    task.compile(keras.optimizers.Adam(0.003), sampler="greedy")
    task.train_on_batch(text[:64])  # compiles
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now the present level
    before = status("VmRSS")
    task.train_on_batch(text[:64])
    return status("VmHWM") - before


plain = memory_of_update()
keras_adaptive.without_logits(task)
ours = memory_of_update()
print(f"memory of an update of 64 × {length} tokens: {plain / 2**20:.0f} MiB, without logits {ours / 2**20:.0f}")

# %% [markdown]
# ## Training
#
# `fit` and `evaluate` are used as before. The log has the perplexity, too.

# %%
task.fit(text, batch_size=8, epochs=epochs, verbose=2, shuffle=False)

# %% [markdown]
# ## LoRA
#
# LoRA freezes the backbone, word vectors included, and trains two small matrices per attention projection. As the word
# vectors are frozen, one of the three matrix products of the loss is left out. The other text has the same words in
# another order.

# %%
other = sentences(AFTER)
task.backbone.enable_lora(4)
task.compile(keras.optimizers.Adam(0.01), sampler="greedy")
print(f"trainable: {sum(np.prod(one.shape) for one in task.trainable_variables):,} of {task.count_params():,}")
before = task.evaluate(other, batch_size=8, verbose=0, return_dict=True)["perplexity"]
task.fit(other, batch_size=8, epochs=epochs, verbose=2, shuffle=False)
after = task.evaluate(other, batch_size=8, verbose=0, return_dict=True)["perplexity"]
print(f"perplexity of another text: {before:.1f} before, {after:.1f} after")

# %% [markdown]
# ## Files
#
# Files hold the plain task: call `without_logits` again after loading.

# %%
task.save_weights("fine_tuned.weights.h5")
