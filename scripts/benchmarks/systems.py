"""Times training steps of several systems on real text, each relative to the first.

    python -m scripts.benchmarks.systems --backend=torch --data_dir=data/books --subword_dir=data/books_bpe \\
        --flagfiles='configs/books_comparison/*.flags'
    python -m scripts.benchmarks.systems --backend=torch --data_dir=data/books \\
        --flagfiles='scripts/benchmarks/wikitext103_1024/*.flags'

A system is a flagfile of trainers.train, as in scripts.experiments.compare. A step is forward, backward, clipping and
update by `fit`, on the batches of the corpus in the order of training. The steps of all systems are interleaved in one
process.
"""

from absl import flags

from scripts.benchmarks import common
from scripts.benchmarks.step import fit_turn, report_speeds
from scripts.experiments import systems
from trainers.support import command_line

FLAGS = flags.FLAGS


def define_flags():
    common.define_flags(5)
    command_line.define_path("data_dir", None, "Corpus of words.", required=True)
    command_line.define_path("subword_dir", None, "Corpus of sub-words of the same text.")
    command_line.define_path("common", None, "Flagfile of trainers.train for all systems. Optional.")
    command_line.define_paths("flagfiles", None, "Flagfiles of the systems, or patterns of them.", required=True)


def main():
    from trainers.experiments.experiment import Experiment, row_length

    shared = [f"--flagfile={FLAGS.common}"] if FLAGS.common else []
    turns, parameters, settings = {}, {}, {}
    for name, arguments in systems.read(FLAGS.flagfiles, FLAGS.data_dir, FLAGS.subword_dir).items():
        experiment = Experiment.of_arguments([*shared, *arguments])
        turns[name], parameters[name] = training(experiment)
        settings[name] = {**experiment.parts, **experiment.settings}
        del settings[name]["data_dir"]  # a folder of this machine
    tokens = {name: chosen["batch_size"] * row_length(chosen) for name, chosen in settings.items()}
    results = report_speeds(common.time_interleaved(turns, FLAGS.repeats, timed=True), parameters, tokens)
    common.save(("backend",), {"systems": settings}, candidates=results)


def training(experiment):
    """Returns the function that trains a new model of the experiment for a few updates, and its parameters.

    All batches of streams have the same length, so that no turn compiles.
    """
    from keras_adaptive.data import load_corpus

    corpus = load_corpus(experiment.settings["data_dir"])
    model = experiment.model(corpus.vocabulary)
    batches = experiment.batches(corpus.tokens("train"), shuffle=experiment.parts["batching"] != "streams")
    micro_batches = experiment.settings["micro_batches"]
    model.compile(experiment.optimizer(), micro_batches=micro_batches, stream_rows=batches.stream_rows)
    data = ((tokens, targets) for tokens, targets, _ in batches.batches(0))
    return fit_turn(model, data), model.count_params()


if __name__ == "__main__":
    common.run(main, define_flags)
