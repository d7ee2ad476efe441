"""Estimates a modified Kneser-Ney model of a corpus with KenLM, and keeps its losses in a folder like a run.

    pip install kenlm
    python -m trainers.kneser_ney --data_dir=data/mine --lmplz=kenlm/build/bin/lmplz --run_dir=runs/kn5
    python -m trainers.evaluate --run_dir=runs/a,runs/b,runs/kn5 --split=test --output=runs/ensemble.json
    python -m trainers.analyze --baseline=runs/kn5 runs/a runs/b runs/kn5

The model is interpolated and not pruned. Only its losses are kept. It reads each line separately, after a `<s>`, and
predicts its words and one `</s>`, as every model of this package does. `<unk>` is treated as a word and written
`<<unk>>`, because KenLM uses `<unk>` for words outside the training text. Words of the vocabulary that are not in the
training text share the probability of KenLM's `<unk>`.

--arpa=FILE uses an existing model. It must have the same order and exactly the words of the training text.
"""

import math
import os
import re
import subprocess
import tempfile

import numpy as np
from absl import flags

from keras_adaptive import evaluation
from keras_adaptive.data import EOS, SPECIAL_WORDS, SPLITS, load_corpus
from keras_adaptive.files import complete_or_absent, reading
from keras_adaptive.metrics import perplexity
from trainers.experiments.run_folder import RunFolder
from trainers.experiments.word_losses import WordLosses, write_ngrams
from trainers.support import command_line
from trainers.support.progress import Progress

FLAGS = flags.FLAGS
CHUNK = 1 << 20  # number of tokens in memory at a time
NO_WORD = re.compile(r"[\0\t\n\v\f\r ]")  # characters that separate words for KenLM


def define_flags():
    command_line.define_path("data_dir", None, "Corpus of words or sub-words.", required=True)
    command_line.define_path("run_dir", None, "Folder to write.", required=True)
    flags.DEFINE_integer("order", 5, "Number of words in the longest n-grams.", 2, 6)
    command_line.define_path("lmplz", "lmplz", "Estimator of KenLM, built from its source.")
    command_line.define_path("arpa", None, "File of an existing model in the ARPA format. Optional.")
    flags.DEFINE_string("memory", "2G", "Memory for the estimation, in the format of `lmplz -S`.")


def main():
    try:
        import kenlm
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Models of KenLM need its Python module: pip install kenlm.", name="kenlm") from None
    RunFolder(FLAGS.run_dir).check_empty()
    corpus = load_corpus(FLAGS.data_dir)
    corpus.verify(*SPLITS)
    names, seen = names_of(corpus), np.flatnonzero(counts_of(corpus))
    with complete_or_absent(FLAGS.run_dir) as folder, tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = FLAGS.arpa or estimate(corpus, names, scratch)
        ngrams = check_arpa(path, len(seen))
        model = kenlm.Model(str(path))
        check_words(path, model, [names[id] for id in seen if id != EOS])
        unseen = len(names) - len(seen)
        for split in ("valid", "test"):
            nll = losses(model, corpus, split, names, unseen)
            nll, words = evaluation.sum_by_word(nll, corpus, split)
            write_ngrams(folder, corpus, split, WordLosses(nll, words, ngrams))
            print(
                f"{split} perplexity {perplexity(nll.mean()):.2f} per word ({nll.mean():.4f} nats): {len(nll):,} words"
            )
        settings = {"data_dir": os.path.abspath(FLAGS.data_dir), "order": FLAGS.order}
        flags_text = "".join(f"--{name}={value}\n" for name, value in settings.items())
        RunFolder(folder).write(flags_text, corpus.vocabulary, corpus.metadata)
    print(f"Wrote {FLAGS.run_dir}: {ngrams:,} n-grams of up to {FLAGS.order} words")


def names_of(corpus):
    """Returns the words of the vocabulary as KenLM reads them. It reserves `<s>`, `</s>` and `<unk>`."""
    if corpus.unit.is_character:
        raise ValueError(
            f"{corpus.data_dir} must be a corpus of words or sub-words, since KenLM separates words by spaces. "
            f"Received: a corpus of {corpus.unit}s."
        )
    names = [*(f"<{word}>" for word in SPECIAL_WORDS), *corpus.vocabulary.words[len(SPECIAL_WORDS) :]]
    bad = [name for name in names if NO_WORD.search(name)] + [name for name in names[:4] if name in corpus.vocabulary]
    if bad:
        raise ValueError(
            "KenLM needs words that contain no space and are not special words in another pair of brackets. "
            f"Received: the word {bad[0]!r}."
        )
    return names


def counts_of(corpus):
    """Returns the number of occurrences of each id in the tokens of the training text."""
    tokens, size = corpus.tokens("train"), len(corpus.vocabulary)
    parts = (tokens[start : start + CHUNK] for start in range(0, len(tokens), CHUNK))
    return sum(np.bincount(np.asarray(part), minlength=size) for part in parts)


def lines(corpus, split, names):
    """Yields the lines of a split as KenLM reads them, without their `</s>`."""
    line, tokens = [], corpus.tokens(split)
    for start in range(0, len(tokens), CHUNK):
        for id in np.asarray(tokens[start : start + CHUNK]).tolist():
            if id == EOS:
                yield " ".join(line)
                line = []
            else:
                line.append(names[id])


def estimate(corpus, names, folder):
    """Estimates the model of the training text, and returns its path in `folder`."""
    text, path = (os.path.join(folder, name) for name in ("train.txt", "model.arpa"))
    report = Progress("lines written for lmplz")
    with open(text, "w", encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(lines(corpus, "train", names), 1):
            file.write(line + "\n")
            report(number)
    command = [FLAGS.lmplz, "--order", FLAGS.order, "--text", text, "--arpa", path, "-S", FLAGS.memory, "-T", folder]
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    except OSError as error:
        raise ValueError(
            f"--lmplz must be the estimator of KenLM ({error.strerror}: {FLAGS.lmplz}). Build it from "
            "its source, and pass the path of build/bin/lmplz."
        ) from None
    if done.returncode:
        raise ValueError(f"{FLAGS.lmplz} failed: {done.stderr[-300:]}")
    return path


def check_arpa(path, words):
    """Checks the number of distinct `words` in the header of an ARPA file, and returns its number of n-grams."""
    with reading(path, "a model in the ARPA format", "Pass another --arpa."), open(path, "rb") as file:
        while (line := file.readline(1000)) and line.strip() != b"\\data\\":
            pass
        counts = []
        while match := re.fullmatch(rb"ngram (\d{1,2})=(\d{1,15})", file.readline(1000).strip()):
            counts.append(int(match[2]))
        if not counts:
            raise ValueError("its \\data\\ has no numbers of n-grams")
    if len(counts) != FLAGS.order:
        raise ValueError(f"{path} must be a model of --order={FLAGS.order}. Received: order {len(counts)}.")
    if counts[0] != words + 2:  # <s> and KenLM's own <unk>
        raise ValueError(
            f"{path} must be a model of the {words:,} words in the training text of {FLAGS.data_dir}. Received: a "
            f"model of {counts[0] - 2:,} words. Omit --arpa to estimate it on this corpus."
        )
    return sum(counts)


def check_words(path, model, names):
    """Raises a ValueError if a model of KenLM lacks a word."""
    missing = next((name for name in names if name not in model), None)
    if missing is not None:
        raise ValueError(
            f"{path} must be a model of the words of {FLAGS.data_dir}. Received: a model that lacks {missing!r}. "
            "Omit --arpa to estimate it on this corpus."
        )


def losses(model, corpus, split, names, unseen):
    """Returns the loss of each token in nats, float64 (tokens,). `unseen` words share the probability of `<unk>`."""
    scores, report = [], Progress(f"lines of {split}")
    for number, line in enumerate(lines(corpus, split, names), 1):
        scores += [(log_prob, unknown) for log_prob, _, unknown in model.full_scores(line)]
        report(number)
    log10, unknown = np.array(scores, np.float64).T
    return -math.log(10) * log10 + unknown * math.log(max(unseen, 1))


if __name__ == "__main__":
    command_line.run(main, define_flags)
