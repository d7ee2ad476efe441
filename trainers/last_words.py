"""Measures how often a run predicts the last word of a passage, given all words before it.

A file of passages has one passage per line, such as the test and control texts of LAMBADA or the files of
trainers.passages. A prediction is the most probable word of the whole vocabulary. In a run of sub-words, it is correct
if each piece of the word is the most probable piece, as in greedy decoding; the pieces after the word are ignored. A
last word outside the vocabulary counts as wrong. Models with attention read as many last tokens of a passage as a row
of training has, since they predict poorly after more: --context reads more or fewer.

The table shows the accuracy in percent and the number of passages: for all passages, and for those whose last word
occurs at least twice before in the passage (CF), occurs fewer than 1,500 times in the training text (LF), or is a named
entity (Ent.), which needs spaCy and its model en_core_web_sm. The perplexity covers the last words in the vocabulary.

python -m trainers.last_words --run_dir=runs/mine --passages=data/downloads/lambada/test.txt
python -m trainers.last_words --run_dir=runs/a,runs/b --passages=data/broad.txt --output=runs/broad.json
"""

from typing import NamedTuple

import numpy as np
from absl import flags

from keras_adaptive.data import EOS, SPECIAL_WORDS, TOKENIZERS
from keras_adaptive.files import check_result, read_text_lines, write_json
from keras_adaptive.metrics import perplexity
from keras_adaptive.models.reading import reading_of
from keras_adaptive.text.scoring import score_rows
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line
from trainers.support.progress import Progress
from trainers.support.tables import aligned

FLAGS = flags.FLAGS
FREQUENT, RARE = 2, 1500  # occurrences before in the passage, and in the training text
CLASSES = {"all": "all", "context_frequent": "CF", "low_frequency": "LF", "named_entity": "Ent."}


def define_flags():
    command_line.define_paths(
        "run_dir", None, "Folder of a trained run, or several separated by commas.", required=True
    )
    command_line.define_path("passages", None, "UTF-8 file with one passage per line.", required=True)
    flags.DEFINE_integer(
        "context", None, "Number of last tokens that a model reads; by default the length in training.", 1, 2**20
    )
    flags.DEFINE_integer("batch_size", 16, "Number of passages at a time.", 1, 2**20)
    flags.DEFINE_enum("model", "best", ["best", "last"], "Model of each run to measure.")
    command_line.define_path(
        "output", None, "JSON file to write: a new one, or an older result, which is replaced. Optional."
    )


class Passages(NamedTuple):
    """Passages in the tokens of a run.

    Attributes:
        ids: List of the token ids of each passage, (tokens,).
        sizes: Number of tokens in each last word, (passages,).
        outside: Whether each last word is outside the vocabulary, (passages,).
        classes: Dict from the name of a class to whether each last word belongs to it, (passages,), or None.
    """

    ids: list
    sizes: np.ndarray
    outside: np.ndarray
    classes: dict


def main():
    with open(FLAGS.passages, "rb") as source:
        lines = list(read_text_lines(source, FLAGS.passages))
    if not lines:
        raise ValueError(f"{FLAGS.passages} is empty: it must contain one passage per line.")
    runs = [RunFolder(path) for path in FLAGS.run_dir]
    texts = []
    for run in runs:  # raises errors before the work begins
        run.model_file(FLAGS.model)
        texts.append(read_passages(run, lines))
    if FLAGS.output:
        check_result(FLAGS.output, ("passages", "model", "runs"))
    entities = named_entities(lines)
    results = []
    for run, text in zip(runs, texts):
        text.classes["named_entity"] = entities
        results.append(measure(run, text))
    print(*table(results), *notes(results), sep="\n")
    if FLAGS.output:
        write_json(FLAGS.output, {"passages": FLAGS.passages, "model": FLAGS.model, "runs": results})
        print(f"Written to {FLAGS.output}")


def read_passages(run, lines):
    """Returns the `Passages` of lines of at least two words, not all of whose last words are unknown to the run."""
    codec, tokenizer, vocabulary = run.codec, run.codec.tokenizer, run.codec.vocabulary
    if codec.unit.is_character:
        raise ValueError(f"{run.path} must be a run of words or sub-words. Received: --unit={tokenizer}.")
    split = TOKENIZERS[tokenizer]
    ids, sizes, frequent = [], [], []
    for number, line in enumerate(lines, 1):
        words = [word for text in line.split() for word in ([text] if text in SPECIAL_WORDS else split(text))]
        if len(words) < 2:
            raise ValueError(
                f"Line {number} of {FLAGS.passages} must have at least two words, so that others precede the last one. "
                f"Received: {len(words)}."
            )
        pieces = list(codec.cut(words))
        ids.append(vocabulary.encode([piece for word in pieces for piece in word]))
        sizes.append(len(pieces[-1]))
        frequent.append(words[:-1].count(words[-1]) >= FREQUENT)
    outside = np.array([min(tokens[-size:]) < len(SPECIAL_WORDS) for tokens, size in zip(ids, sizes)])
    if outside.all():
        raise ValueError(
            f"The vocabulary of {run.path} contains none of the last words of {FLAGS.passages}: pass passages that are "
            "tokenized like the text of the run."
        )
    is_counted = not codec.unit.is_piece and vocabulary.counts.any()  # a run of sub-words has no counts of words
    rare = np.array([vocabulary.counts[tokens[-1]] < RARE for tokens in ids]) | outside if is_counted else None
    classes = {"all": np.full(len(ids), True), "context_frequent": np.array(frequent), "low_frequency": rare}
    return Passages(ids, np.array(sizes), outside, classes)


def named_entities(lines):
    """Returns whether the last word of each line is part of a named entity, (lines,), or None without spaCy."""
    try:
        import spacy

        tagger = spacy.load("en_core_web_sm")
    except (ImportError, OSError):
        return None
    texts = ([word for word in line.split() if word != "</s>"] for line in lines)
    tagged = tagger.pipe(spacy.tokens.Doc(tagger.vocab, words=words or ["."]) for words in texts)
    return np.array([bool(text[-1].ent_type_) for text in tagged])


def measure(run, passages):
    """Measures a run on passages, and returns a dict of its figures."""
    model = run.model(FLAGS.model).for_inference()
    longest = FLAGS.context or reading_of(model).window or np.inf
    lengths = np.array(list(map(len, passages.ids)))
    log_probs, right = np.zeros(len(lengths)), ~passages.outside
    order, report = np.argsort(lengths, kind="stable"), Progress(f"passages, {run.path}")  # rows of similar length
    for start in range(0, len(order), FLAGS.batch_size):
        batch = order[start : start + FLAGS.batch_size]
        rows = [row_of(passages.ids[number], longest) for number in batch]
        for number, (scores, ranks) in zip(batch, score_rows(model, rows)):
            size = passages.sizes[number]
            log_probs[number] = scores[-size:].astype("float64").sum()
            right[number] &= (ranks[-size:] == 1).all()
        report(start + len(batch), len(order))
    hits = {name: right[members] for name, members in passages.classes.items() if members is not None}
    return {
        "run": str(run.path),
        "accuracy": {name: float(of_class.mean()) if of_class.size else None for name, of_class in hits.items()},
        "passages": {name: of_class.size for name, of_class in hits.items()},
        "perplexity": perplexity(-log_probs[~passages.outside].mean()),
        "outside_vocabulary": int(passages.outside.sum()),
        "shortened": int((lengths > longest).sum()),
    }


def row_of(ids, longest):
    """Returns the last inputs and targets of a passage, which begins after a `</s>`."""
    start = max(0, len(ids) - longest)
    return np.append(EOS, ids[:-1])[start:], ids[start:]


def table(results):
    """Returns the accuracy of each run in each class, and the numbers of passages, as lines of text."""
    names = [name for name in CLASSES if any(name in result["accuracy"] for result in results)]
    rows = [["run", *(CLASSES[name] for name in names), "perplexity"]]
    for result in results:
        cells = [shown(result["accuracy"].get(name), result["passages"].get(name)) for name in names]
        rows.append([result["run"], *cells, f"{result['perplexity']:.2f}"])
    return aligned(rows, str.ljust)


def shown(accuracy, passages):
    return "-" if accuracy is None else f"{100 * accuracy:.2f} of {passages:,}"


def notes(results):
    """Yields remarks on the table, as lines of text."""
    for result in results:
        if number := result["outside_vocabulary"]:
            yield f"{result['run']}: {number:,} last words are outside the vocabulary and count as wrong"
        if number := result["shortened"]:
            yield f"{result['run']}: only the last tokens of {number:,} long passages were read"
        if "low_frequency" not in result["accuracy"]:
            yield f"{result['run']}: LF is omitted, since its vocabulary has no counts of words"
    if "named_entity" not in results[0]["accuracy"]:
        yield "Ent. is omitted: it needs spaCy and its model en_core_web_sm"


if __name__ == "__main__":
    command_line.run(main, define_flags)
