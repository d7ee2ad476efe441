"""Evaluates trained runs on a split of their corpus and reports the perplexity per word.

The perplexity of a run of sub-words is per word too: the loss of a word is the sum of the losses of its pieces. Compare
runs of different units in bits per byte. Bits per word are comparable only if white space separates the words of both
runs, as with --unit=characters and --tokenizer=whitespace, but not with --tokenizer=words.

The text is scored in blocks, each after up to --context previous tokens. A block has --block tokens or, with
--blocks_of=lines, as many whole lines as fit in --block tokens. By default block and context are half of the length in
training each, or 1,024 tokens for linear biases, and the perplexity equals `perplexity` of the whole text in Python.
Training validates with --block of its length and --context=0. A run of --batching=sentences is evaluated line by line,
without context: --blocks_of=lines --block=1 --context=0. With --blocks_of=streams, the default for bodies with a
state of fixed size, each block continues from the state of the previous block: --block affects only the speed, and
--batch_size is the number of parts of the text that are read in parallel. The result is evaluation_SPLIT.json of the
run, with a cache, a memory or dynamic evaluation evaluation_SPLIT_cache.json and so on.

Several runs are evaluated separately and as an ensemble, whose probabilities are the mean of theirs: with equal
weights, and with the weights that are best for the validation text, found by expectation maximization. The runs must
have the same vocabulary and the same text. Their folders keep their losses (losses_*.npz), so that another ensemble
evaluates only new runs. A folder of trainers.kneser_ney can be a member.

python -m trainers.evaluate --run_dir=runs/quickstart --split=valid
python -m trainers.evaluate --run_dir=runs/wikitext103 --split=test --blocks_of=lines --block=512 --context=2560
python -m trainers.evaluate --run_dir=runs/mine --split=test --cache=2000
python -m trainers.evaluate --run_dir=runs/a,runs/b,runs/kn5 --split=test --output=runs/ensemble.json
"""

import math

from absl import flags

from keras_adaptive.backend.checks import check_finite
from keras_adaptive.evaluation import lengths
from keras_adaptive.files import check_result, write_json
from keras_adaptive.memory import ContinuousCache, adapting
from keras_adaptive.metrics import loss_by_frequency, perplexity
from keras_adaptive.models.reading import reading_of, state_grows
from trainers.experiments import ensembles
from trainers.experiments.memories import read_memory
from trainers.experiments.run_folder import RunFolder
from trainers.experiments.word_losses import Blocks, line_by_line, open_runs
from trainers.support import command_line

FLAGS = flags.FLAGS
RESULT = (
    "JSON file to write: a new one, or an older result, which is replaced. For a single run it is by default in its "
    "folder."
)
DATA_DIR = "Another corpus with the same vocabulary; by default that of the run."
MOST_TOKENS = 2**24  # largest number of tokens in a row
MOST_CACHED = 2**17  # words in a continuous cache
MIXED = ("cache", "memory", "dynamic")  # flags for a single run, of which one may be given
BLOCKS = {"tokens": "tokens", "lines": "tokens in whole lines", "streams": "tokens with the state carried"}


def define_flags():
    run_dir = "Folder of a trained run, or several separated by commas, whose probabilities are averaged."
    command_line.define_paths("run_dir", None, run_dir, required=True)
    command_line.define_path("data_dir", None, DATA_DIR)
    flags.DEFINE_enum("split", "valid", ["train", "valid", "test"], "Split to evaluate on.")
    flags.DEFINE_enum(
        "blocks_of",
        None,
        list(BLOCKS),
        "Blocks of exactly --block tokens, blocks of whole lines, or streams with the state carried from block to "
        "block. By default streams for a body with a state of fixed size, single lines for a run of "
        "--batching=sentences, otherwise tokens.",
    )
    flags.DEFINE_integer(
        "block", None, "Number of tokens to score at a time; by default what --context leaves.", 1, MOST_TOKENS
    )
    flags.DEFINE_integer(
        "context",
        None,
        "Number of previous tokens that a block sees, which are not scored; by default half of the length in training "
        "(1,024 for linear biases), or what --block leaves of it.",
        0,
        MOST_TOKENS,
    )
    flags.DEFINE_integer(
        "batch_size",
        None,
        "Number of blocks at a time, by default 16 (fewer if they are long, and 1 with --dynamic); number of streams, "
        "by default 1.",
        1,
        2**20,
    )
    flags.DEFINE_integer(
        "cache",
        0,
        "Number of words in a continuous cache, which is mixed with the probabilities of a single run: 0 for none. Its "
        "flatness and its share are those of the lowest loss on valid.",
        0,
        MOST_CACHED,
    )
    command_line.define_memory()
    command_line.define_float(
        "dynamic",
        0.0,
        "Learning rate of dynamic evaluation: the model of a single run learns from each batch of blocks after their "
        "losses, by gradient descent. 0 for none. Choose the rate on valid.",
        0.0,
    )
    flags.DEFINE_bool(
        "within_vocabulary",
        False,
        "Normalize the probabilities of --output=char_lstm, which spells any word, over the vocabulary. Expensive.",
    )
    flags.DEFINE_enum("model", "best", ["best", "last"], "Model of the run to evaluate.")
    command_line.define_path("output", None, RESULT)


def main():
    if len(FLAGS.run_dir) > 1:
        evaluate_together()
    else:
        evaluate_one(RunFolder(FLAGS.run_dir[0]))


def evaluate_one(run):
    if FLAGS.output:
        check_result(FLAGS.output, ("split", "perplexity", "tokens"))
    check_one_of_mixed()
    corpus, model = run.corpus(FLAGS.data_dir), run.model(FLAGS.model)
    blocks = blocks_for(run, model)
    if FLAGS.dynamic:
        model = adapting(model, FLAGS.dynamic, blocks.batch_size if blocks.of == "streams" else None)
    else:
        model = model.for_inference()
    if FLAGS.within_vocabulary:
        divide_by_total(model.word_output)
    memory = open_memory(run, corpus) if FLAGS.memory else None
    cache = tuned_cache(blocks, model, corpus) if FLAGS.cache else None
    mixing = memory or cache
    nll, words = blocks.word_losses(model, corpus, FLAGS.split, mix=mixing and mixing.nll, keys=memory is not None)
    loss, bits = float(nll.mean()), float(nll.sum()) / math.log(2)
    check_finite(perplexity(nll.sum() / len(corpus.tokens(FLAGS.split))))  # per word of many tokens it may overflow
    result = {
        "split": FLAGS.split,
        "perplexity": perplexity(loss),
        "loss": loss,
        "unit": unit_of(corpus),
        **{f"bits_per_{unit}": bits / number for unit, number in lengths(corpus, FLAGS.split).items()},
        "block": blocks.size,
        "blocks_of": BLOCKS[blocks.of],
        "context": blocks.context,
        "reading": blocks.describe(len(corpus.tokens(FLAGS.split))),
        "tokens": len(corpus.tokens(FLAGS.split)),
        "words": len(nll),
        "model": FLAGS.model,
        "cache": cache and cache._asdict(),
        "memory": FLAGS.memory and {"folder": FLAGS.memory, **memory.settings},
        "dynamic": FLAGS.dynamic or None,
        "within_vocabulary": getattr(model.word_output, "normalized", True),
        "by_frequency": loss_by_frequency(nll, words, corpus.word_vocabulary.counts),
    }
    counted = "{words:,} words in {tokens:,} tokens" if corpus.merges_sha256 else "{tokens:,} tokens"
    print(
        (
            "{split} perplexity {perplexity:.2f} per {unit} ({loss:.4f} nats): " + counted + " counted, read {reading}"
        ).format(**result)
    )
    if memory:
        print(
            f"Mixed with {FLAGS.memory}, {len(memory):,} keys: {memory.neighbors:,} neighbors, temperature "
            f"{memory.temperature:.3g}, share {memory.share}"
        )
    elif cache:
        print(
            f"Mixed with a cache of {cache.size:,} words by a share of {cache.share}, tuned on valid: flatness "
            f"{cache.flatness:.3g}"
        )
    elif FLAGS.dynamic:
        print(f"The model has learned from each batch after its losses, by a rate of {FLAGS.dynamic}")
    elif blocks.context and FLAGS.block is FLAGS.context is None:
        block = "" if blocks.size + blocks.context == run.length else f"--block={run.length} "
        how = f"in blocks of {run.length:,} tokens without context: {block}--context=0 repeats that number"
        print(f"Training validates {how}")
    measures = [f"{value:.4f} per {name[9:]}" for name, value in result.items() if name.startswith("bits_per_")]
    print(f"Bits of the same text: {', '.join(measures)}")
    mixed = "".join(f"_{name}" for name in MIXED if FLAGS[name].value)
    path = FLAGS.output or run.path / f"evaluation_{FLAGS.split}{mixed}.json"
    write_json(path, result)  # last, because the folder may be read-only
    print(f"Written to {path}")


def check_one_of_mixed():
    given = [f"--{name}={FLAGS[name].value}" for name in MIXED if FLAGS[name].value]
    if len(given) > 1:
        raise ValueError(
            f"{', '.join(f'--{name}' for name in MIXED)} exclude one another. Received: {' '.join(given)}. Pass one."
        )


def open_memory(run, corpus):
    """Returns the `Memory` of --memory, which must be one of this run."""
    text = corpus.metadata["splits"][FLAGS.split]["sha256"]
    return read_memory(FLAGS.memory, run, corpus.vocabulary, FLAGS.model, text)


def tuned_cache(blocks, model, corpus):
    """Returns the `ContinuousCache` of --cache words with the lowest loss on valid."""
    found = []

    def tune(hidden, targets, nll):
        found.append(ContinuousCache.tuned(FLAGS.cache, hidden, targets, nll))
        return nll

    blocks.word_losses(model, corpus, "valid", "valid, for the cache", mix=tune)
    return found[0]


def divide_by_total(word_output):
    if not hasattr(word_output, "normalized"):
        raise ValueError(
            "--within_vocabulary belongs to runs of --output=char_lstm: other outputs are normalized over the "
            f"vocabulary already. Received: a run with {type(word_output).__name__}. Omit --within_vocabulary."
        )
    word_output.normalized = True


def evaluate_together():
    if not FLAGS.output:
        raise ValueError("Several runs need --output, the JSON file to write: pass one, such as runs/ensemble.json.")
    for name in MIXED:
        if FLAGS[name].value:
            received = f"--{name}={FLAGS[name].value} for several"
            raise ValueError(f"--{name} supports a single run. Received: {received}. Omit --{name}.")
    if FLAGS.within_vocabulary:
        raise ValueError("--within_vocabulary supports a single run. Received: several. Omit --within_vocabulary.")
    runs = open_runs(FLAGS.run_dir, data_dir=FLAGS.data_dir, model=FLAGS.model)
    ensembles.check_one_vocabulary(runs)
    blocks = [run.blocks(lambda folder: blocks_for(folder, folder.structure(FLAGS.model))) for run in runs]
    check_result(FLAGS.output, ("unit", "members", "equal"))
    splits = list(dict.fromkeys([ensembles.DECIDES, FLAGS.split]))
    of_runs = [run.losses([(split, how) for split in splits]) for run, how in zip(runs, blocks)]
    losses = {split: [run_losses[split, how] for run_losses, how in zip(of_runs, blocks)] for split in splits}
    members, means = ensembles.evaluate(losses)
    unit = unit_of(runs[0].corpus)
    print(f"perplexity per {unit}; the weights are optimal for {ensembles.DECIDES}")
    print(*ensembles.table([run.name for run in runs], members, means), sep="\n")
    members = [
        {"name": run.name, "path": str(run.folder.path), "blocks": how and how._asdict(), **figures}
        for run, how, figures in zip(runs, blocks, members)
    ]
    words = {split: len(some[0].words) for split, some in losses.items()}
    write_json(FLAGS.output, {"unit": unit, "words": words, "members": members, **means})
    print(f"Written to {FLAGS.output}")


def unit_of(corpus):
    """Returns the name of the unit of the perplexity of a corpus."""
    return "word (of sub-words)" if corpus.unit.is_piece else corpus.unit


def blocks_for(run, model):
    """Returns the `Blocks` of the flags, with the defaults for a run and its model."""
    carries, length, size = not state_grows(model.body), run.length, FLAGS.batch_size
    block, context, rows = FLAGS.block, FLAGS.context, size or (1 if FLAGS.dynamic else 16)
    if run.of_sentences and FLAGS.blocks_of is block is context is None:
        return line_by_line(rows)
    as_stream = run.of_streams or carries and block is context is None
    blocks_of = FLAGS.blocks_of or ("streams" if as_stream else "tokens")
    if blocks_of == "streams":
        check_streams(run, carries)
        return Blocks(blocks_of, block or length, 0, size or 1)
    window = length if carries else reading_of(model).window
    if block is None and (context or 0) >= window:
        raise ValueError(
            f"--context must be below {window}, the number of tokens of a window of {run.path}, or --block must be "
            f"given too: pass one of them. Received: --context={context}."
        )
    if block is None:
        block = window - reading_of(model, window, context).context
    context = max(window - block, 0) if context is None else context
    return Blocks(blocks_of, block, context, rows)


def check_streams(run, carries):
    """Raises a ValueError unless a run can be evaluated with --blocks_of=streams and the other flags."""
    if not carries:
        raise ValueError(
            "--blocks_of=streams needs a body that carries a state of fixed size from block to block, such as an LSTM. "
            f"Received: --blocks_of=streams for {run.path}, whose body has attention. Pass --blocks_of=tokens or lines."
        )
    if FLAGS.context:
        raise ValueError(
            "--context belongs to --blocks_of=tokens|lines, because a block of a stream follows all previous text. "
            f"Received: --context={FLAGS.context} --blocks_of=streams."
        )


if __name__ == "__main__":
    command_line.run(main, define_flags)
