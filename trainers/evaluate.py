"""Evaluates a trained run on a split of its corpus and reports the perplexity per word.

A run of sub-words is measured by the same words as a run of words: the loss of a word is the sum over its pieces.
Compare runs of different units in bits per byte; in bits per word only if the words of both have white space between
them, as those of --unit=characters and of --tokenizer=whitespace do, and those of --tokenizer=words do not. The text is
scored in blocks, each after up to --context previous tokens. A block has --block tokens or, with --blocks_of=lines, all
whole lines that fit in --block tokens. With --blocks_of=streams, the default for a run that trained on streams, each
block continues from the state of the block before it, from the first token to the last: --block changes only the speed,
and --batch_size is the number of parts of the text that are read side by side.

python -m trainers.evaluate --run_dir=runs/quickstart --split=valid
python -m trainers.evaluate --run_dir=runs/wikitext103 --split=test --blocks_of=lines --block=512 --context=2560
"""

import math

from absl import flags

from keras_adaptive.evaluation import by_frequency, lengths, word_losses, word_losses_of_streams
from keras_adaptive.metrics import perplexity
from trainers import command_line
from trainers.progress import Progress
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS
MOST_TOKENS = 2**24  # of a row
BLOCKS = {"tokens": "tokens", "lines": "tokens in whole lines", "streams": "tokens with the state carried"}


def define_flags():
    flags.DEFINE_string("run_dir", None, "Folder of a trained run.", required=True)
    flags.DEFINE_string("data_dir", None, "Another corpus of the same vocabulary; by default the run's own.")
    flags.DEFINE_enum("split", "valid", ["train", "valid", "test"], "Split to evaluate on.")
    flags.DEFINE_enum(
        "blocks_of",
        None,
        list(BLOCKS),
        "Cut blocks of --block tokens, or of the lines that fit in them, or carry the state from block to block; by "
        "default streams for a run of --batching=streams, otherwise tokens.",
    )
    flags.DEFINE_integer("block", None, "Tokens scored at a time; by default the length of training.", 1, MOST_TOKENS)
    flags.DEFINE_integer("context", 0, "Previous tokens that a block may see, which are not scored.", 0, MOST_TOKENS)
    flags.DEFINE_integer(
        "batch_size",
        None,
        "Blocks at a time, by default 16, fewer if they are long; streams, by default 1.",
        1,
        2**20,
    )
    flags.DEFINE_bool(
        "within_vocabulary",
        False,
        "Divide the probabilities of --output=char_lstm, which spells any word, by that of all words together: "
        "expensive.",
    )
    flags.DEFINE_enum("model", "best", ["best", "last"], "Which of the run's models.")


def main():
    run = RunFolder(FLAGS.run_dir)
    corpus, model = run.corpus(FLAGS.data_dir), run.model(FLAGS.model).for_inference()
    if FLAGS.within_vocabulary:
        divide_by_total(model.word_output)
    block = FLAGS.block or run.length
    blocks_of = FLAGS.blocks_of or ("streams" if run.of_streams else "tokens")
    if blocks_of == "streams":
        check_no_context()
        how, report = (FLAGS.split, block, FLAGS.batch_size or 1), Progress(f"blocks of {FLAGS.split}")
        nll, words = word_losses_of_streams(model, corpus, *how, report)
    else:
        how = block, FLAGS.context, FLAGS.batch_size or 16, blocks_of == "lines"
        nll, words = word_losses(model, corpus, FLAGS.split, *how, Progress(f"tokens of {FLAGS.split}"))
    loss, bits = float(nll.mean()), float(nll.sum()) / math.log(2)
    result = {
        "split": FLAGS.split,
        "perplexity": perplexity(loss),
        "loss": loss,
        "unit": "word (of sub-words)" if corpus.metadata["unit"] == "sub-word" else corpus.metadata["unit"],
        **{f"bits_per_{unit}": bits / number for unit, number in lengths(corpus, FLAGS.split).items()},
        "block": block,
        "blocks_of": BLOCKS[blocks_of],
        "context": FLAGS.context,
        "tokens": len(corpus.tokens(FLAGS.split)),
        "words": len(nll),
        "model": FLAGS.model,
        "within_vocabulary": getattr(model.word_output, "normalized", True),
        "by_frequency": by_frequency(nll, words, corpus),
    }
    counted = "{words:,} words in {tokens:,} tokens" if corpus.merges_sha256 else "{tokens:,} tokens"
    print(
        (
            "{split} perplexity {perplexity:.2f} per {unit} ({loss:.4f} nats): " + counted + " counted, blocks of "
            "{block} {blocks_of}, context {context}"
        ).format(**result)
    )
    measures = [f"{value:.4f} per {name[9:]}" for name, value in result.items() if name.startswith("bits_per_")]
    print(f"Bits of the same text: {', '.join(measures)}")
    path = run.write_json(f"evaluation_{FLAGS.split}.json", result)  # at the end: the folder may be read-only
    print(f"Written to {path}")


def divide_by_total(word_output):
    if not hasattr(word_output, "normalized"):
        raise ValueError(
            "--within_vocabulary belongs to runs of --output=char_lstm: other outputs give no probability to other "
            f"words. Received: a run with {type(word_output).__name__}. Leave --within_vocabulary out."
        )
    word_output.normalized = True


def check_no_context():
    if FLAGS.context:
        raise ValueError(
            "--context belongs to --blocks_of=tokens|lines, because a block of a stream follows all the text before "
            f"it. Received: --context={FLAGS.context} --blocks_of=streams."
        )


if __name__ == "__main__":
    command_line.run(main, define_flags)
