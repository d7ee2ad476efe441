"""Times a whole training step – forward, backward, clip, NAG – against the PyTorch program in peers/.

    python -m scripts.benchmarks.step --backend=torch --results=scripts/results/benchmarks/step_torch.json
    python -m scripts.benchmarks.step --backend=jax
    python -m scripts.benchmarks.step --backend=torch --dtype=mixed_bfloat16
    python -m scripts.benchmarks.step --backend=torch --optimizer=muon

The default is the paper's WikiText-103 model, scaled to fit two cores: its vocabulary and cutoffs, 8 blocks with
dimensions of 512 and 2,048 and 8 heads, and 8 × 128 tokens drawn by Zipf's law. Both models train without dropout on
the same tokens, a few updates in turn: this package by `fit`, and the peer in its own loop and process. The peer runs
as any program, with the memory options of this package's programs, and with tied words; with --compiled also compiled
by `torch.compile`, and with another --dtype than float32 also in bfloat16, beside this package's step in float32. The
time of a step beyond its two parts is spent on summing tied gradients, clipping, NAG, the metrics and `fit`. The floor
are the matrix products of forward and backward alone, on --backend and in --dtype.
"""

import itertools
import math
import time

import numpy as np
from absl import flags

from scripts.benchmarks import common
from scripts.benchmarks.own_process import in_own_process

FLAGS = flags.FLAGS
UPDATES = 3  # number of updates in a turn
PEERS = {  # options of `peer_turn`, and whether the process keeps freed memory
    "torch_lm": ({}, False),
    "torch_lm, freed memory kept": ({}, True),
    "torch_lm, tied, freed memory kept": ({"tied": True}, True),
}


def define_flags():
    body = {"num_blocks": 8, "dim": 512, "ffn_dim": 2048, "num_heads": 8}
    common.define_flags(7, vocabulary_size=267_744, cutoffs=["20000", "60000"], **body)
    flags.DEFINE_string("dtype", "float32", "Keras dtype policy of this package and the floor. The peer is in float32.")
    flags.DEFINE_integer("length", 128, "Number of tokens in a block.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 8, "Number of blocks in an update.", lower_bound=1)
    flags.DEFINE_bool("tie_words", True, "Tie words and projections, as in ADP-T; one of the peers always does.")
    flags.DEFINE_enum("optimizer", "nag", ["nag", "muon"], "Muon updates the matrices of the body, Adam the rest.")
    flags.DEFINE_bool("peers", True, "Time the peer too.")
    flags.DEFINE_bool("compiled", False, "Time the peer compiled by `torch.compile`, too, which needs a C++ compiler.")
    flags.DEFINE_integer("product_size", 0, "Also time square matrix products, and report the share of their speed.")
    flags.DEFINE_bool("parts", True, "Also time the loss alone, all layers before it, and the floor.")


def our_model(dtype):
    from keras_adaptive.optimizers import NAG
    from trainers.experiments.parts import muon

    model = common.build(tie_words=FLAGS.tie_words, tie_projections=FLAGS.tie_words, dtype=dtype)
    nag = NAG(1e-3, momentum=0.99, global_clipnorm=0.1)
    model.compile(muon(max_rate=1e-3, clip_norm=0.1) if FLAGS.optimizer == "muon" else nag)
    return model


def fit_turn(model, batches, losses=None):
    """Returns a function that trains a few updates by `fit` and returns the seconds of all except the first.

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
        return timed(
            common.compiled_step(lambda *data: common.differentiated(part, data, model), model.variables, *data)
        )

    return {name: turn(*part) for name, part in parts.items()}


def products(tokens, targets):
    """Returns the shapes of all matrix products of a step: of adaptive embedding, blocks and word loss."""
    rows, dim, heads = tokens.size, FLAGS.dim, FLAGS.num_heads
    scores, mixed = (FLAGS.batch_size * heads, FLAGS.length, FLAGS.length), (FLAGS.length, dim // heads)
    shapes = [((count, dim // 4**band), (dim // 4**band, dim)) for band, count in enumerate(common.band_counts(tokens))]
    shapes += common.loss_products(targets, dim)
    for _ in range(FLAGS.num_blocks):
        shapes += [((rows, dim), (dim, dim))] * 4  # queries, keys, values and outputs
        shapes += [((*scores[:1], *mixed), (*scores[:1], *mixed[::-1])), (scores, (*scores[:1], *mixed))]
        shapes += [((rows, dim), (dim, FLAGS.ffn_dim)), ((rows, FLAGS.ffn_dim), (FLAGS.ffn_dim, dim))]
    return shapes


def timed(step):
    """Returns a function that calls `step` and returns its time as a list."""

    def turn():
        start = time.perf_counter()
        step()
        return [time.perf_counter() - start]

    return turn


def peer_optimizers(model, name):
    """Returns the optimizers of the peer: one of PyTorch's Nesterov method, or its Muon for the body and its Adam."""
    import torch

    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if name == "nag":
        return [torch.optim.SGD(weights, lr=1e-3, momentum=0.99, nesterov=True, fused=True)]
    body = [weight for weight in model.blocks.parameters() if weight.ndim == 2]
    rest = [weight for weight in weights if all(weight is not other for other in body)]
    return [torch.optim.Muon(body, lr=1e-3, weight_decay=0, ns_steps=3), torch.optim.Adam(rest, lr=1e-3, fused=True)]


def peer_turn(options, sizes, tokens, targets):
    """Returns `fit_turn` for the peer, with an optimizer and the clipping of PyTorch, and its parameters.

    Options: its `optimizer`, whether its words are `tied`, whether it is `compiled`, and whether it computes in
    `bfloat16`.
    """
    import torch

    from scripts.benchmarks.peers.torch_lm import TransformerLM

    device = common.torch_device()
    model = TransformerLM(*sizes)
    model = (model.tie() if options.get("tied") else model).to(device)
    model.output_dtype = torch.bfloat16 if options.get("bfloat16") else torch.float32
    forward = torch.compile(model) if options.get("compiled") else model
    optimizers = peer_optimizers(model, options["optimizer"])
    tokens, targets = (torch.from_numpy(array).to(device).long() for array in (tokens, targets))
    weights = torch.ones(targets.shape, device=device)

    def turn():
        times = [time.perf_counter()]
        for _ in range(UPDATES):
            with torch.autocast(device, torch.bfloat16, enabled=options.get("bfloat16", False)):
                loss = forward(tokens, targets, weights) / targets.numel()
            model.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            for optimizer in optimizers:
                optimizer.step()
            loss.item()
            common.wait()
            times.append(time.perf_counter())
        return [end - start for start, end in itertools.pairwise(times)]

    return turn, sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def main():
    random = np.random.default_rng(0)
    probabilities = 1.0 / (np.arange(FLAGS.vocabulary_size) + 2.7)
    shape = FLAGS.batch_size, FLAGS.length + 1
    text = random.choice(FLAGS.vocabulary_size, size=shape, p=probabilities / probabilities.sum()).astype("int32")
    tokens, targets = np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])

    turns, parameters, losses = {}, {}, {}
    policies = {"ours": FLAGS.dtype} | ({} if FLAGS.dtype == "float32" else {"ours in float32": "float32"})
    models = {name: our_model(dtype) for name, dtype in policies.items()}
    for name, model in models.items():
        losses[name] = []
        turns[name] = fit_turn(model, itertools.repeat((tokens, targets)), losses[name])
        parameters[name] = model.count_params()
    if FLAGS.peers:
        body = FLAGS.num_blocks, FLAGS.dim, FLAGS.ffn_dim, FLAGS.num_heads
        sizes = FLAGS.vocabulary_size, list(common.cutoffs()), *body, 0.0, FLAGS.length
        chosen = {"compiled": FLAGS.compiled, "bfloat16": FLAGS.dtype != "float32"}
        more = {f"torch_lm, {name}, freed memory kept": ({name: True}, True) for name, on in chosen.items() if on}
        for name, (options, keep) in {**PEERS, **more}.items():
            given = {**options, "optimizer": FLAGS.optimizer}, sizes, tokens, targets
            turns[name], parameters[name] = in_own_process(peer_turn, *given, keep_freed_memory=keep)
    shapes = products(tokens, targets)
    if FLAGS.parts:
        floor = timed(common.matrix_products(shapes, FLAGS.dtype))
        turns |= {**part_turns(models["ours"], tokens, targets), "matrix products": floor}
    seconds = common.time_interleaved(turns, FLAGS.repeats, timed=True)
    facts = state(models["ours"], losses["ours"]) | share(seconds["ours"], shapes)
    results = report_speeds(seconds, parameters, dict.fromkeys(parameters, tokens.size))
    parts = {name: common.spread(times) for name, times in seconds.items() if name not in parameters}
    names = "backend", "dtype", *common.MODEL_FLAGS, "length", "batch_size", "tie_words", "optimizer"
    common.save(names, candidates=results, parts=parts, facts=facts)


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
    turns = common.time_interleaved({"": common.matrix_products(square, FLAGS.dtype)}, FLAGS.repeats)
    speed, rate = (
        sum(6 * math.prod(x) * kernel[-1] for x, kernel in each) / common.spread(times)["median"]
        for each, times in ((shapes, seconds), (square, turns[""]))
    )
    print(f"{speed / 1e12:.1f} of the {rate / 1e12:.1f} TFLOP/s of products of size {size}: {speed / rate:.2f}")
    return {"operations_per_second": speed, "product_operations_per_second": rate, "share": speed / rate}


def report_speeds(seconds, parameters, tokens):
    """Prints a table of times, and returns the figures of the candidates that are models.

    Args:
        seconds: The result of `time_interleaved`.
        parameters: `{name: number of parameters}` of the models.
        tokens: `{name: number of tokens}` that a model processes in this time.
    """
    times = {name: common.spread(values) for name, values in seconds.items()}
    first, results, rows = next(iter(times)), {}, []
    for name, each in times.items():
        row = [name, "", *common.milliseconds(each), "", f"{each['median'] / times[first]['median']:.2f}"]
        if name in parameters:
            size, speed = parameters[name], tokens[name] / each["median"]
            results[name] = {"seconds": each, "tokens_per_second": speed, "parameters": size}
            row[1], row[4] = f"{size:,}", f"{speed:,.0f}"
        rows.append(row)
    common.print_table(["", "parameters", "ms", "span", "tokens/s", f"time ÷ {first}"], rows)
    return results


if __name__ == "__main__":
    common.run(main, define_flags)
