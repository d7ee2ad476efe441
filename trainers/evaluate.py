"""Evaluates a trained run on a split of its corpus: the perplexity of a word.

A run of sub-words is measured by words too, those that a run of words has: the loss of a word is the sum over its
pieces.

python -m trainers.evaluate --run_dir=runs/quickstart --split=valid
python -m trainers.evaluate --run_dir=runs/wikitext103 --split=test --block=512 --context=2560
"""

import numpy as np
from absl import flags

from keras_adaptive.data import ContextWindows
from keras_adaptive.metrics import loss_by_frequency
from trainers import command_line
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("run_dir", None, "Folder of a trained run.", required=True)
    flags.DEFINE_string("data_dir", None, "Another corpus of the same vocabulary; by default that of the run.")
    flags.DEFINE_enum("split", "valid", ["train", "valid", "test"], "What to evaluate on.")
    flags.DEFINE_integer("block", None, "Tokens scored at a time; by default the length of training.", lower_bound=1)
    flags.DEFINE_integer(
        "context",
        None,
        "Evaluate blocks of whole lines behind up to so many previous tokens, instead of plain blocks.",
        0,
    )
    flags.DEFINE_integer("batch_size", 16, "Blocks at a time.", lower_bound=1)
    flags.DEFINE_enum("model", "best", ["best", "last"], "Which of the run's models.")


def main():
    run = RunFolder(FLAGS.run_dir)
    corpus, model = run.corpus(FLAGS.data_dir), run.model(FLAGS.model).for_inference()
    block = FLAGS.block or int(run.flags()["length"])
    by_lines = FLAGS.context is not None
    nll, words = word_losses(model, corpus, FLAGS.split, block, FLAGS.context or 0, FLAGS.batch_size, by_lines)
    result = {
        "split": FLAGS.split,
        "perplexity": float(np.exp(nll.mean())),
        "loss": float(nll.mean()),
        "unit": "word" if corpus.metadata["unit"] == "word" else "word (of sub-words)",
        "block": block,
        "blocks_of": "tokens" if FLAGS.context is None else "whole lines",
        "context": FLAGS.context or 0,
        "tokens": len(corpus.tokens(FLAGS.split)),
        "words": len(nll),
        "model": FLAGS.model,
        "by_frequency": by_frequency(nll, words, corpus),
    }
    path = run.write_json(f"evaluation_{FLAGS.split}.json", result)
    counted = "{tokens:,} tokens" if result["unit"] == "word" else "{words:,} words in {tokens:,} tokens"
    print(
        (
            "{split} perplexity {perplexity:.2f} per {unit} ({loss:.4f} nats): " + counted + " counted, blocks of "
            "{block} {blocks_of}, context {context}"
        ).format(**result)
    )
    print(f"Written to {path}")


def word_losses(model, corpus, split, block, context, batch_size, by_lines=False):
    """The float64 loss of every word of a split, in order, and the id of every word.

    The arguments are those of `ContextWindows`. The loss of a word of sub-words is the sum of those of its pieces.
    """
    corpus.verify(split)
    tokens = corpus.tokens(split)
    windows = ContextWindows(tokens, block, context, batch_size, by_lines)
    nll = np.concatenate([losses(model, *batch) for batch in windows])
    return np.add.reduceat(nll, corpus.word_starts(split)), np.asarray(corpus.words(split))


def by_frequency(nll, words, corpus, edges=None):
    """`loss_by_frequency` of losses that belong to these words, the scored ones or others, by the corpus' counts."""
    return loss_by_frequency(nll, words, corpus.word_vocabulary.counts, edges)


def losses(model, inputs, targets, weights):
    """The float64 losses of the scored tokens of a batch of windows, in order."""
    return model.nll(inputs, targets)[weights > 0].astype("float64")


if __name__ == "__main__":
    command_line.run(main, define_flags)
