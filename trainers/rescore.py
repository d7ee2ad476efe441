"""Rescores the n-best lists of a speech recognizer, in the text formats of Kaldi.

--infile has a hypothesis per line, `UTTERANCE-N WORDS…`. --outfile gets the negative log-likelihood of each of its
words and of its end, in nats: `UTTERANCE-N COSTS…`, as steps/pytorchnn/compute_sentence_scores.py writes them.

python -m trainers.rescore --run_dir=runs/books --infile=words_text --outfile=lmwt.nn

--costs are files of other costs of the same hypotheses. --best gets the hypothesis with the smallest weighted sum of
each utterance. --weights has the weight of each file of --costs, in their order, and last the weight of the model.
--references, the words of the utterances, finds the weights. The first weight is then 1.

python -m trainers.rescore --run_dir=runs/books --infile=dev/words --costs=dev/acwt,dev/lmonly --references=dev/text
python -m trainers.rescore --run_dir=runs/books --infile=words_text --costs=acwt,lmonly --weights=1,4,8 --best=best
"""

import os
import sys

from absl import flags

from keras_adaptive.files import discard, partial, write_text, writing
from keras_adaptive.speech import (
    best_hypotheses,
    hypothesis_nll,
    read_costs,
    read_nbest,
    read_references,
    tune_weights,
    word_errors,
)
from keras_adaptive.speech.nbest import utterance_of
from keras_adaptive.speech.rescoring import check_oov, unknown_words
from keras_adaptive.text import TextModel
from trainers.experiments.memories import model_with_memory
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line
from trainers.support.progress import Progress

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_path("run_dir", None, "Folder of a trained run.", required=True)
    command_line.define_path("infile", None, "UTF-8 file of hypotheses, `UTTERANCE-N WORDS…`.", required=True)
    command_line.define_path("outfile", None, "File to write, `UTTERANCE-N COSTS…`, a cost for each word and the end.")
    flags.DEFINE_string("oov", "<unk>", "Word of the vocabulary that other words are read and scored as.")
    flags.DEFINE_integer("batch_size", 512, "Number of hypotheses to compute at a time.", 1, 2**20)
    command_line.define_paths("costs", None, "Files of other costs, `UTTERANCE-N COSTS…`, such as acoustic costs.")
    flags.DEFINE_list("weights", None, "Weight of each file of --costs and, last, of the model; 1 by default.")
    command_line.define_path("references", None, "File of the words that were spoken, which finds the weights.")
    command_line.define_path("best", None, "File to write, `UTTERANCE WORDS…`, the best hypothesis of each utterance.")
    command_line.define_reading()
    command_line.define_memory()
    flags.DEFINE_enum("model", "best", ["best", "last"], "Model of the run to use.")


def main():
    weights = check_flags()
    hypotheses = read_nbest(FLAGS.infile)
    keys, lines = list(hypotheses), list(hypotheses.values())
    costs = [read_costs(path, keys) for path in FLAGS.costs or []]
    references = FLAGS.references and read_spoken(keys)
    run = RunFolder(FLAGS.run_dir)
    how = {name: FLAGS[name].value for name in ("window", "context")}
    text = TextModel(model_with_memory(run, FLAGS.model, FLAGS.memory), run.codec, **how)
    check_oov(text, FLAGS.oov)
    note(text, lines)
    report = Progress("hypotheses")
    nll = hypothesis_nll(text, lines, oov=FLAGS.oov, batch_size=FLAGS.batch_size, report=report)
    if FLAGS.outfile:
        write_text(FLAGS.outfile, "".join(map(kaldi_line, keys, nll)))
    costs.append([values.sum() for values in nll])
    if references:
        errors = [word_errors(line, references[utterance_of(key)]) for key, line in hypotheses.items()]
        if weights is None:
            weights = tune_weights(keys, costs, errors)
        print_errors(keys, costs, weights, errors, sum(len(line.split()) for line in references.values()))
    if FLAGS.best:
        best = best_hypotheses(keys, costs, [1.0] * len(costs) if weights is None else weights)
        write_text(FLAGS.best, "".join(f"{utterance_of(key)} {hypotheses[key]}".rstrip() + "\n" for key in best))


def check_flags():
    """Checks the flags and the files to write, and returns the weights or `None`."""
    if not (FLAGS.outfile or FLAGS.best or FLAGS.references):
        raise ValueError("Pass a file to write, --outfile or --best, or --references. Received: none of them.")
    if FLAGS.references and FLAGS.weights is None and not FLAGS.costs:
        raise ValueError("--references finds the weights of --costs and the model: pass --costs too. Received: none.")
    read = [*(FLAGS.costs or []), FLAGS.infile, *filter(None, [FLAGS.references])]
    for path in filter(None, [FLAGS.outfile, FLAGS.best]):
        if any(os.path.realpath(path) == os.path.realpath(other) for other in read):
            raise ValueError(f"The file to write must not be one to read. Received: {path!r} for both.")
        if os.path.isdir(path):
            raise ValueError(f"The file to write must be a file. Received: {path!r}, a folder.")
        with writing(path), open(partial(path), "wb"):  # fails before any work
            pass
        discard(path)
    if FLAGS.weights is None:
        return None
    try:
        weights = [float(value) for value in FLAGS.weights]
    except ValueError:
        weights = []
    kinds = len(FLAGS.costs or []) + 1
    if len(weights) != kinds or not all(0 <= weight < float("inf") for weight in weights):
        raise ValueError(
            f"--weights must be {kinds} numbers of at least 0, one for each file of --costs and one for "
            f"the model. Received: --weights={','.join(FLAGS.weights)}."
        )
    return weights


def read_spoken(keys):
    """Returns the words of the utterances of hypotheses, by utterance."""
    references, utterances = read_references(FLAGS.references), dict.fromkeys(map(utterance_of, keys))
    if missing := next((name for name in utterances if name not in references), None):
        raise ValueError(
            f"{FLAGS.references} must have every utterance of --infile. Received: a file without {missing!r}."
        )
    return {name: references[name] for name in utterances}


def note(text, lines):
    """Prints one line each, on the standard error, about empty hypotheses and words outside the vocabulary."""
    program = command_line.name_of_program()
    if empty := sum(not line for line in lines):
        print(f"{program}: {empty:,} empty hypotheses, which have the cost of their end only.", file=sys.stderr)
    if unknown := unknown_words(text, lines):
        shown = ", ".join(unknown[:5]) + ", …" * (len(unknown) > 5)
        print(f"{program}: {len(unknown):,} unknown words are scored as {FLAGS.oov}: {shown[:200]}", file=sys.stderr)


def kaldi_line(key, nll):
    """Returns the line of a hypothesis. Kaldi's script writes a space after every field, the last one too."""
    return "".join(f"{field} " for field in [key, *(f"{value:.4f}" for value in nll)]) + "\n"


def print_errors(keys, costs, weights, errors, words):
    """Prints the weights, and the word error rates by them, without the model, and of the best hypotheses there are."""
    of = dict(zip(keys, errors))
    least = {}
    for key, value in of.items():
        least[utterance_of(key)] = min(value, least.get(utterance_of(key), value))
    without = [*weights[:-1], 0.0]
    rates = {
        "with the model": sum(of[key] for key in best_hypotheses(keys, costs, weights)),
        "without": sum(of[key] for key in best_hypotheses(keys, costs, without)),
        "of the best hypotheses": sum(least.values()),
    }
    print(f"--weights={','.join(f'{weight:.6g}' for weight in weights)}")
    shown = ", ".join(f"{100 * count / max(words, 1):.2f} % {name}" for name, count in rates.items())
    print(f"word error rate: {shown} ({words:,} words)")


if __name__ == "__main__":
    command_line.run(main, define_flags)
