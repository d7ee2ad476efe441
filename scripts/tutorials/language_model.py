"""Tutorial 3: train, resume and serve a language model.

    KERAS_BACKEND=tensorflow python -m scripts.tutorials.language_model

The programs `keras-adaptive prepare`, `train`, `score` and `export` do all of this; the tutorial shows how in Python.
It trains on any backend; a SavedModel is exported on TensorFlow. Remove runs/tutorial before you run it again.
"""

import sys
from pathlib import Path

import keras

from keras_adaptive.callbacks import Backup
from keras_adaptive.data import BlockBatches, TextCodec, load_corpus, prepare, write_docstrings
from keras_adaptive.export import export_saved_model
from keras_adaptive.models import transformer_lm
from keras_adaptive.text import TextModel


def build(words, dim, rate=0.002):
    cutoffs = (words // 12, words // 3)
    model = transformer_lm(words, dim=dim, num_blocks=2, num_heads=4, ffn_dim=4 * dim, cutoffs=cutoffs, dropout=0.1)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=0.1))
    return model


def main(folder="runs/tutorial", text=None, dim=128, length=64, batch_size=32, every=150, epochs=4):
    folder = Path(folder)

    # 1. Prepare a corpus: a folder with train.txt, valid.txt and test.txt becomes token ids and a vocabulary. The text
    #    is the documentation of Python unless you pass a folder of your own.
    if text is None:
        text = folder / "text"
        text.mkdir(parents=True)
        write_docstrings(text)
    prepare(text, folder / "data", tokenizer="words")
    corpus, codec = load_corpus(folder / "data"), TextCodec.load(folder / "data")
    batches = BlockBatches(corpus.tokens("train"), length, batch_size, seed=1)
    valid = BlockBatches(corpus.tokens("valid"), length, batch_size, seed=1, shuffle=False)

    # 2. Train with checkpoints. The batch of an update depends on the seed and on the number of the update alone, so
    #    that a checkpoint needs to hold no data. Here training stops halfway, as if the machine were turned off.
    def fit(model, epochs):
        backup = Backup(folder / "checkpoints")
        backup.restore(model)  # does nothing if there is no checkpoint
        print(f"training from update {backup.update}")
        steps = {"steps_per_epoch": every, "initial_epoch": backup.epoch, "epochs": epochs}
        model.fit(batches.batches(backup.update), **steps, callbacks=[backup], shuffle=False, verbose=2)
        return backup.update

    words = len(corpus.vocabulary)
    fit(build(words, dim), epochs // 2)

    # 3. Resume in a new model. It continues bit-identically: with the same weights, optimizer, dropout and batches.
    model = build(words, dim)
    updates = fit(model, epochs)
    _, perplexity = model.evaluate(valid.batches(0), steps=len(valid), verbose=0)
    print(f"valid perplexity after {updates} updates: {perplexity:.2f}")

    # 4. Strings in, strings out.
    lm = TextModel(model, codec)
    print("Return the" + lm.generate("Return the", length=20, temperature=0.8, seed=1))
    made = {"model": model, "updates": updates, "perplexity": perplexity, "lm": lm}

    # 5. Serve. A SavedModel takes text and needs TensorFlow alone: no Keras, no tokenizer, nothing of this package.
    if keras.config.backend() != "tensorflow":
        print("A SavedModel is exported on TensorFlow: set KERAS_BACKEND=tensorflow.", file=sys.stderr)
        return made
    import tensorflow as tf

    export_saved_model(model, corpus.vocabulary, folder / "exports" / "1", codec.tokenizer)
    served = tf.saved_model.load(folder / "exports" / "1")
    answer = served.score(["Return the name of the file ."])
    print(f"perplexity of a line, served: {float(answer['perplexity'][0]):.1f}")
    return {**made, "served": answer}


if __name__ == "__main__":
    main()
