"""Tutorial: fine-tuning a task of KerasHub by LoRA, without its logits.

    python -m scripts.tutorials.fine_tuning

The logits of a language model, (tokens, words), take more memory than all its layers when the vocabulary is large. This
tutorial measures it, and then trains the same task without them. It needs KerasHub, `pip install ".[hub]"`, and Linux,
to measure memory. Set TF_ENABLE_ONEDNN_OPTS=0 for TensorFlow, whose oneDNN kernels keep theirs.
"""

import keras
import keras_hub
import numpy as np

import keras_adaptive
from scripts.benchmarks.memory import peak_bytes

BEFORE = "Return a list of the names in the folder . Return the name of the folder . Return the length of the list ."
AFTER = "Raise an error if the name is not in the list . Raise an error if the list has no names ."


def make_task(words, length):
    """Returns a small GPT-2 with random weights; `keras_hub.models.CausalLM.from_preset` has trained ones."""
    keras.utils.set_random_seed(1)
    pieces = ["<|endoftext|>", *sorted({*BEFORE, *AFTER} - {" "}), "Ġ", "Ġo", "Ġof"]  # Ġ stands for a space
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = keras_hub.tokenizers.GPT2Tokenizer(vocabulary, merges=["Ġ o", "Ġo f"])
    preprocessor = keras_hub.models.GPT2CausalLMPreprocessor(tokenizer, sequence_length=length)
    backbone = keras_hub.models.GPT2Backbone(
        words, 2, 2, hidden_dim=64, intermediate_dim=128, max_sequence_length=length
    )
    return keras_hub.models.GPT2CausalLM(backbone, preprocessor)


def sentences(words, lines):
    """Returns sentences of 12 words in random order."""
    return [" ".join(np.random.default_rng(line).choice(words.split(), 12)) for line in range(lines)]


def main(words=50_257, lines=64, length=32, epochs=5):
    # 1. A task of KerasHub takes strings. This one has room for the words of GPT-2, and reads characters.
    task, text = make_task(words, length), sentences(BEFORE, lines)

    # 2. An update as KerasHub computes it holds the logits of the batch several times. The same update without logits
    #    has the same weights, and holds a chunk of them.
    plain = memory_of_update(task, text)
    keras_adaptive.without_logits(task)
    ours = memory_of_update(task, text)
    print(
        f"memory of an update of {lines} × {length} tokens: {plain / 2**20:.0f} MiB, without logits {ours / 2**20:.0f}"
    )

    # 3. `fit` and `evaluate` are used as before. The log has the perplexity, too.
    task.fit(text, batch_size=8, epochs=epochs, verbose=2, shuffle=False)

    # 4. LoRA freezes the backbone, word vectors included, and trains two small matrices per attention projection. As
    #    the word vectors are frozen, one of the three matrix products of the loss is left out.
    other = sentences(AFTER, lines)
    task.backbone.enable_lora(4)
    task.compile(keras.optimizers.Adam(0.01), sampler="greedy")
    print(f"trainable: {sum(np.prod(one.shape) for one in task.trainable_variables):,} of {task.count_params():,}")
    before = task.evaluate(other, batch_size=8, verbose=0, return_dict=True)["perplexity"]
    task.fit(other, batch_size=8, epochs=epochs, verbose=2, shuffle=False)
    after = task.evaluate(other, batch_size=8, verbose=0, return_dict=True)["perplexity"]
    print(f"perplexity of another text: {before:.1f} before, {after:.1f} after")
    print(task.generate("Raise an", max_length=length))

    # 5. Files hold the plain task: `without_logits` is called again after loading.
    return {"task": task, "memory": (plain, ours), "perplexity": (before, after)}


def memory_of_update(task, text):
    """Returns the bytes by which the memory of this process rises during an update."""
    task.compile(keras.optimizers.Adam(0.003), sampler="greedy")
    task.train_on_batch(text)
    return peak_bytes(lambda: task.train_on_batch(text))


if __name__ == "__main__":
    main()["task"].save_weights("fine_tuned.weights.h5")
