"""Times whole training steps – forward, backward, clipping and update – against each other and the programs in peers/.

    python -m scripts.benchmarks.step --backend=torch --results=scripts/results/benchmarks/step_torch.json
    python -m scripts.benchmarks.step --backend=torch --dtype=mixed_bfloat16
    python -m scripts.benchmarks.step --backend=torch --optimizer=muon
    python -m scripts.benchmarks.step --case=systems --backend=torch --data_dir=data/books \\
        --subword_dir=data/books_bpe --flagfiles='configs/books_comparison/*.flags'
    python -m scripts.benchmarks.step --case=systems --backend=torch --data_dir=data/books \\
        --flagfiles='scripts/benchmarks/wikitext103_1024/*.flags'
    python -m scripts.benchmarks.step --case=recurrent --backend=torch --data_dir=data/books
    python -m scripts.benchmarks.step --case=big_lstm --backend=tensorflow

All models take a few updates in turn: this package by `fit`, and the peers in their own loop. The peers of PyTorch run
in processes of their own, as any program and with the memory options of this package's programs.

- `transformer`: the paper's WikiText-103 model, scaled to fit two cores: its vocabulary and cutoffs, 8 blocks with
  dimensions of 512 and 2,048 and 8 heads, and 8 × 128 tokens drawn by Zipf's law, without dropout. The peer also runs
  with tied words; with --compiled compiled by `torch.compile`, and with another --dtype than float32 in bfloat16,
  beside this package's step in float32. The time of a step beyond its two parts is spent on summing tied gradients,
  clipping, the optimizer, the metrics and `fit`. The floor is the matrix products of forward and backward only, on
  --backend and in --dtype.
- `systems`: flagfiles of trainers.train, as in scripts.experiments.compare, on the batches of a corpus in the order of
  training. Each is relative to the first.
- `recurrent`: AWD-LSTM, AWD-QRNN of the same layers and units, and the peer, with the dropout and the penalties of a
  flagfile. They read the same text in batches of a single length, and carry the state along the streams.
- `big_lstm`: BIG LSTM of Jozefowicz et al. 2016, scaled to fit into the memory of a small machine, without dropout.
  Both programs carry the state of their streams, clip the gradients of the LSTM to a norm of 1 and update the rows of
  words by Adagrad. The peer is written in Keras and TensorFlow.
"""

import itertools
import math
import time

import numpy as np
from absl import flags

from scripts.benchmarks import common, products
from scripts.benchmarks.own_process import in_own_process
from scripts.experiments import systems
from trainers.support import command_line

FLAGS = flags.FLAGS
UPDATES = 3  # number of updates in a turn
PEERS = {  # options of the peer, and whether the process keeps freed memory
    "torch_lm": ({}, False),
    "torch_lm, freed memory kept": ({}, True),
    "torch_lm, tied, freed memory kept": ({"tied": True}, True),
}
QRNN = ("--body=qrnn", "--weight_dropout=0")  # configs/books_awd_qrnn.flags, except for the number of layers
BIG_LSTM = ("backend", "vocabulary_size", "num_layers", "units", "dim", "batch_size", "length", "num_samples")
RATE, CLIP_NORM = 0.2, 1.0  # of BIG LSTM


def define_flags():
    common.define_flags(7, **common.WIKITEXT103)
    common.define_case(CASES)
    flags.DEFINE_string("dtype", "float32", "Keras dtype policy of this package and the floor. The peer is in float32.")
    flags.DEFINE_integer("length", 128, "Number of tokens in a block.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 8, "Number of blocks or streams in an update.", lower_bound=1)
    flags.DEFINE_bool("tie_words", True, "Tie words and projections, as in ADP-T; one of the peers always does.")
    flags.DEFINE_enum("optimizer", "nag", ["nag", "muon"], "Muon updates the matrices of the body, Adam the rest.")
    flags.DEFINE_bool("peers", True, "Time the peer too.")
    flags.DEFINE_bool("compiled", False, "Time the peer compiled by `torch.compile`, too, which needs a C++ compiler.")
    flags.DEFINE_integer("product_size", 0, "Also time square matrix products, and report the share of their speed.")
    flags.DEFINE_bool("parts", True, "Also time the loss alone, all layers before it, and the floor.")
    command_line.define_path("data_dir", None, "Corpus of words, of systems and recurrent models.")
    command_line.define_path("subword_dir", None, "Corpus of sub-words of the same text.")
    command_line.define_path("common", None, "Flagfile of trainers.train for all systems. Optional.")
    command_line.define_paths("flagfiles", None, "Flagfiles of the systems, or patterns of them.")
    command_line.define_path("system", "configs/books_awd_lstm.flags", "Flagfile of trainers.train with an AWD-LSTM.")
    flags.DEFINE_integer("num_layers", None, "Number of LSTM layers, of AWD-LSTM as in --system.", lower_bound=1)
    flags.DEFINE_integer("units", 2_048, "Number of cells in a layer of BIG LSTM.", lower_bound=1)
    flags.DEFINE_integer("num_samples", 8_192, "Number of noise words per update of BIG LSTM.", lower_bound=1)


def transformer():
    tokens, targets = divided(common.zipf((FLAGS.batch_size, FLAGS.length + 1)))
    policies = {"ours": FLAGS.dtype} | ({} if FLAGS.dtype == "float32" else {"ours in float32": "float32"})
    ours = {name: our_transformer(dtype) for name, dtype in policies.items()}
    losses = {name: [] for name in ours}
    batches = itertools.repeat((tokens, targets))
    models = {name: (fit_turn(model, batches, losses[name]), model.count_params()) for name, model in ours.items()}
    if FLAGS.peers:
        body = FLAGS.num_blocks, FLAGS.dim, FLAGS.ffn_dim, FLAGS.num_heads
        sizes = FLAGS.vocabulary_size, list(common.cutoffs()), *body, 0.0, FLAGS.length
        chosen = {"compiled": FLAGS.compiled, "bfloat16": FLAGS.dtype != "float32"}
        more = {f"torch_lm, {name}, freed memory kept": ({name: True}, True) for name, on in chosen.items() if on}
        for name, (options, keep) in {**PEERS, **more}.items():
            given = sizes, {**options, "optimizer": FLAGS.optimizer}, tokens, targets
            models[name] = in_own_process(transformer_peer, *given, keep_freed_memory=keep)
    shapes, parts = products.of_step(tokens, targets), {}
    if FLAGS.parts:
        floor = timed(products.gradients(shapes, FLAGS.dtype))
        parts = {**part_turns(ours["ours"], tokens, targets), "matrix products": floor}
    results, parts = measure(models, dict.fromkeys(models, tokens.size), parts)
    facts = state(ours["ours"], losses["ours"]) | share(results["ours"]["seconds"], shapes)
    names = "backend", "dtype", *common.MODEL_FLAGS, "length", "batch_size", "tie_words", "optimizer"
    common.save(names, candidates=results, parts=parts, facts=facts)


def divided(text):
    """Returns the tokens and the targets of a text (rows, length + 1)."""
    return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])


def our_transformer(dtype):
    from keras_adaptive.optimizers import NAG
    from trainers.experiments.parts import muon

    model = common.build(tie_words=FLAGS.tie_words, dtype=dtype)
    nag = NAG(1e-3, momentum=0.99, global_clipnorm=0.1)
    model.compile(muon(max_rate=1e-3, clip_norm=0.1) if FLAGS.optimizer == "muon" else nag)
    return model


def transformer_peer(sizes, options, tokens, targets):
    """Returns `turn_of` the peer's updates on the same batch, and its number of parameters."""
    import torch

    from scripts.benchmarks.peers.torch_lm import Trainer

    trainer = Trainer(sizes, **options)
    batch = [torch.from_numpy(array).to(common.torch_device()).long() for array in (tokens, targets)]
    return turn_of(trainer.update, itertools.repeat(batch)), trainer.count_params()


def of_flagfiles():
    from trainers.experiments.experiment import Experiment, row_length

    shared = [f"--flagfile={FLAGS.common}"] if FLAGS.common else []
    given = systems.read(FLAGS.flagfiles, FLAGS.data_dir, FLAGS.subword_dir)
    experiments = {name: Experiment.of_arguments([*shared, *arguments]) for name, arguments in given.items()}
    models = {name: training(experiment) for name, experiment in experiments.items()}
    settings = {name: settings_of(experiment) for name, experiment in experiments.items()}
    tokens = {name: chosen["batch_size"] * row_length(chosen) for name, chosen in settings.items()}
    common.save(("backend",), {"systems": settings}, candidates=measure(models, tokens)[0])


def settings_of(experiment):
    """Returns the parts and the settings of an experiment, without the corpus, which is a folder of this machine."""
    settings = {**experiment.parts, **experiment.settings}
    del settings["data_dir"]
    return settings


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


def recurrent():
    from trainers.experiments.experiment import Experiment, row_length

    arguments = [f"--flagfile={FLAGS.system}", f"--data_dir={FLAGS.data_dir}", f"--dtype={FLAGS.dtype}"]
    arguments += [] if FLAGS.num_layers is None else [f"--num_layers={FLAGS.num_layers}"]
    lstm, qrnn = (Experiment.of_arguments([*arguments, *body]) for body in ((), QRNN))
    models = {"awd_lstm": training(lstm), "awd_qrnn": training(qrnn)}
    for name, keep in {"torch_awd_lstm": False, "torch_awd_lstm, freed memory kept": True}.items():
        models[name] = in_own_process(recurrent_peer, arguments, keep_freed_memory=keep)
    tokens = dict.fromkeys(models, lstm.settings["batch_size"] * row_length(lstm.settings))
    common.save(("backend",), settings_of(lstm), candidates=measure(models, tokens)[0])


def recurrent_peer(arguments):
    """Returns `turn_of` the peer's updates, with the sizes and rates of an experiment, and its number of parameters."""
    import torch

    from keras_adaptive.data import load_corpus
    from scripts.benchmarks.peers.torch_awd_lstm import AWDLSTM, Trainer
    from trainers.experiments.experiment import Experiment

    experiment = Experiment.of_arguments(arguments)
    given, corpus = experiment.settings, load_corpus(experiment.settings["data_dir"])
    dims = [given["dim"], *[given["units"]] * (given["num_layers"] - 1), given["dim"]]
    model = AWDLSTM(
        len(corpus.vocabulary),
        given["cutoffs"],
        dims,
        weight_drop=given["weight_dropout"],
        dropout=[given[f"{place}_dropout"] for place in ("vector", "hidden", "output")],
        penalties=(given["activation_penalty"], given["temporal_penalty"]),
    )
    trainer = Trainer(model, given["max_rate"], given["clip_norm"])
    batches = experiment.batches(corpus.tokens("train"), shuffle=False).batches(0)
    time_major = (
        [torch.from_numpy(np.ascontiguousarray(ids.T)).long() for ids in (tokens, targets)]
        for (tokens, _), targets, _ in batches
    )
    return turn_of(trainer.update, time_major), sum(parameter.numel() for parameter in model.parameters())


def big_lstm():
    from scripts.benchmarks.peers.tensorflow_big_lstm import Trainer

    shape = FLAGS.batch_size, FLAGS.length + 1
    tokens, targets = divided(common.log_uniform(np.random.default_rng(1), shape, FLAGS.vocabulary_size))
    sizes = FLAGS.vocabulary_size, FLAGS.num_layers, FLAGS.units, FLAGS.dim
    options = {"rows": FLAGS.batch_size, "num_samples": FLAGS.num_samples, "rate": RATE, "clip_norm": CLIP_NORM}
    model, peer = our_big_lstm(), Trainer(*sizes, **options)
    batch = (tokens, np.zeros(FLAGS.batch_size, bool)), targets
    models = {
        "ours": (fit_turn(model, itertools.repeat(batch)), model.count_params()),
        "keras": (turn_of(peer.update, itertools.repeat((tokens, targets))), peer.count_params()),
    }
    common.save(BIG_LSTM, candidates=measure(models, dict.fromkeys(models, tokens.size))[0])


def our_big_lstm():
    import keras

    from keras_adaptive.layers import LSTMDecoder, SampledSoftmax, WordEmbedding
    from keras_adaptive.models import LanguageModel

    body = LSTMDecoder(FLAGS.num_layers, FLAGS.units, FLAGS.dim, projection_dim=FLAGS.dim)
    words, softmax = FLAGS.vocabulary_size, SampledSoftmax(FLAGS.vocabulary_size, FLAGS.num_samples)
    model = LanguageModel(WordEmbedding(words, FLAGS.dim), body, softmax)
    optimizer = keras.optimizers.Adagrad(RATE, initial_accumulator_value=1.0, global_clipnorm=CLIP_NORM)
    model.compile(optimizer, stream_rows=FLAGS.batch_size, clip_parts=("body",))
    return model


def turn_of(update, batches):
    """Returns a function that takes a few updates and returns the seconds of all except the first."""

    def turn():
        times = []
        for batch in itertools.islice(batches, UPDATES + 1):
            update(*batch)
            common.wait()
            times.append(time.perf_counter())
        return [end - start for start, end in itertools.pairwise(times)]

    return turn


def fit_turn(model, batches, losses=None):
    """Returns `turn_of` updates by `fit`.

    It appends the loss of every update to the list `losses`, if given.
    """
    import keras

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            losses.append(float(logs["loss"]))  # waits for the update
            common.wait()
            times.append(time.perf_counter())

    times, losses = [], [] if losses is None else losses

    def turn():
        times.clear()
        some = (batch for batch in itertools.islice(batches, UPDATES + 1))  # fit takes generators
        model.fit(some, steps_per_epoch=UPDATES + 1, shuffle=False, verbose=0, callbacks=[Clock()])
        return [end - start for start, end in itertools.pairwise(times)]

    return turn


def part_turns(model, tokens, targets):
    """Returns functions that compute the gradients of the two parts of a step: input and body, and the word loss."""
    import keras

    tokens, targets = (keras.ops.convert_to_tensor(array) for array in (tokens, targets))
    hidden = keras.ops.convert_to_tensor(keras.ops.convert_to_numpy(model(tokens)))
    weights = keras.ops.ones(targets.shape)
    parts = {
        "input and body": (lambda ids: keras.ops.sum(model(ids, training=True)), tokens),
        "word loss": (lambda *data: model.word_output.total_nll(*data, training=True), hidden, targets, weights),
    }

    def turn(part, *data):
        variables = model.trainable_variables, model.non_trainable_variables
        gradients = lambda *data: common.differentiated(part, data, *variables)  # noqa: E731
        return timed(common.compiled_step(gradients, model.variables, *data))

    return {name: turn(*part) for name, part in parts.items()}


def timed(step):
    """Returns a function that calls `step` and returns its time as a list."""

    def turn():
        start = time.perf_counter()
        step()
        return [time.perf_counter() - start]

    return turn


def state(model, losses):
    """Returns the first and the last loss and, under mixed_float16, the loss scale and the steps that were taken."""
    from keras.optimizers import LossScaleOptimizer

    facts = {"first_loss": losses[0], "last_loss": losses[-1], "updates": len(losses)}
    if isinstance(model.optimizer, LossScaleOptimizer):
        steps = model.optimizer.inner_optimizer.iterations
        facts |= {"loss_scale": float(model.optimizer.dynamic_scale), "steps_taken": int(steps)}
    return facts


def share(seconds, shapes):
    """Returns the speed of an update as a share of the speed of square products, if --product_size is given.

    Only the matrix products of an update count as its operations, forward and backward.
    """
    size = FLAGS.product_size
    if not size:
        return {}
    square = [((size, size), (size, size))]
    times = common.times_of({"square": products.gradients(square, FLAGS.dtype)})
    speed, rate = (
        sum(6 * math.prod(x) * kernel[-1] for x, kernel in each) / time["median"]
        for each, time in ((shapes, seconds), (square, times["square"]))
    )
    print(f"{speed / 1e12:.1f} of the {rate / 1e12:.1f} TFLOP/s of products of size {size}: {speed / rate:.2f}")
    return {"operations_per_second": speed, "product_operations_per_second": rate, "share": speed / rate}


def measure(models, tokens, others=None):
    """Times models and `others` in turns, prints a table, and returns the figures of the models and the others' times.

    A model is a pair of a turn, which returns a list of its own measurements in seconds, and its number of parameters.
    """
    turns = {name: turn for name, (turn, _) in models.items()} | (others or {})
    times = common.times_of(turns, timed=True)
    results = {
        name: {"seconds": times[name], "tokens_per_second": tokens[name] / times[name]["median"], "parameters": size}
        for name, (_, size) in models.items()
    }
    speeds = {name: f"{result['tokens_per_second']:,.0f}" for name, result in results.items()}
    parameters = {name: f"{result['parameters']:,}" for name, result in results.items()}
    common.print_times(times, **{"tokens/s": speeds, "parameters": parameters})
    return results, {name: times[name] for name in others or {}}


CASES = {
    "transformer": common.Case(transformer),
    "systems": common.Case(of_flagfiles, required=("data_dir", "flagfiles")),
    "recurrent": common.Case(recurrent, required=("data_dir",)),
    "big_lstm": common.Case(
        big_lstm,
        {"vocabulary_size": 200_000, "num_layers": 2, "dim": 256, "batch_size": 128, "length": 20},
        backends=("tensorflow",),
    ),
}


def main():
    common.run_case(CASES)


if __name__ == "__main__":
    common.run(main, define_flags)
