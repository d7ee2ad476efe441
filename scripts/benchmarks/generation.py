"""Times the generation of words from a large vocabulary.

    python -m scripts.benchmarks.generation --backend=torch --results=scripts/results/generation_torch.json
    python -m scripts.benchmarks.generation --case=word --backend=torch
    python -m scripts.benchmarks.generation --case=cache --backend=torch
    python -m scripts.benchmarks.generation --case=bodies --backend=torch
    python -m scripts.benchmarks.generation --case=peer --backend=torch --batch_size=64

All weights are random. Where the text says so, the tails have about the probability of their words in English text,
11.5 and 14.5 %. All candidates of a case are timed in turns in one process.

- `next_word`: `top_k` and `sample` of an AdaptiveSoftmax, against `log_probs`, which computes the probability of every
  word. Their results are compared first. Every exact method needs at least the head, which is also timed alone. The
  distribution of the head has a perplexity of about 40, and the tails have their probability. Each call receives new
  hidden states.
- `word`: a word of `stream` at temperature 1, against the least that it needs: a step of the decoder with a cache of
  the same capacity, and the logits of the head, each alone. The model is the paper's WikiText-103 model, scaled as in
  the benchmark of the step. The tails have their probability, so that a quarter of the words are drawn from a tail.
- `cache`: a word after each of --lengths others, with the cache of keys and values, and without it by a pass over the
  whole text. The cache has the same capacity for all lengths. Words are sampled at temperature 1.
- `bodies`: a step of bodies with a short state after each of --lengths others: an NPLM, the first layer of
  Transformer-C, which attends to five tokens, and for comparison a layer that attends to all tokens. The sizes are
  those of the WikiText-103 models of Sun and Iyyer 2021. The state first reads a random vector for every preceding
  word. The output layer is omitted, because it does not depend on the preceding words.
"""

import importlib
import itertools

import numpy as np
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS
LOGIT_SPREAD, MARK = 3.5, 10.0  # standard deviation of the head's logits; component that sets the tails' logits
SEGMENT = 256  # words that a state reads at a time
WARMUP = 2  # number of turns that are not timed
COMPILED = 20  # number of words of a stream after which its functions are compiled
BODIES = {"num_blocks": 16, "dim": 410, "ffn_dim": 2100, "num_heads": 10}
CONTEXT = ("num_local", "num_global", "global_window")


def define_flags():
    common.define_flags(15, **common.WIKITEXT103)
    common.define_case(CASES)
    flags.DEFINE_list("tail_shares", ["0.115", "0.145"], "Probability of each tail.")
    flags.DEFINE_list("batch_sizes", ["1", "32"], "Numbers of hidden states for the next word.")
    flags.DEFINE_list("k", ["1", "10"], "Values of k for top_k.")
    flags.DEFINE_integer("batch_size", 1, "Number of texts at a time.", lower_bound=1)
    flags.DEFINE_integer("words", 20, "Number of words in a turn.", lower_bound=1)
    flags.DEFINE_list("lengths", ["64", "2048"], "Numbers of words before the timed ones, in ascending order.")
    flags.DEFINE_bool("uncached", True, "Also time words without the cache.")
    flags.DEFINE_integer("num_local", 15, "Number of tokens that the NPLM concatenates.", lower_bound=1)
    flags.DEFINE_integer("num_global", 5, "Number of averages that the NPLM concatenates.", lower_bound=1)
    flags.DEFINE_integer("global_window", 496, "Number of tokens in an average.", lower_bound=1)
    flags.DEFINE_integer("attention_window", 5, "Attention window of the layer of Transformer-C.", lower_bound=1)


def next_word():
    softmax, cases = make_softmax(np.random.default_rng(0)), []
    calls, edges = functions(softmax), [*common.cutoffs(), FLAGS.vocabulary_size]
    for batch_size in map(int, FLAGS.batch_sizes):
        batches = hidden_states(np.random.default_rng(batch_size), batch_size)
        log_probs = np.concatenate([check(calls, batch) for batch in itertools.islice(batches, 3)])
        mass = [float(np.exp(log_probs[:, low:high]).sum(-1).mean()) for low, high in itertools.pairwise(edges)]
        candidates = common.times_of({name: call(function, batches) for name, function in calls.items()})
        shares = " / ".join(f"{100 * share:.1f}" for share in mass)
        print(f"\nbatch {batch_size}; {shares} % of the probability in the tails")
        common.print_times(candidates, 2)
        cases.append({"batch_size": batch_size, "probability_of_tails": mass, "candidates": candidates})
    common.save(("backend", "vocabulary_size", "cutoffs", "tail_shares", "dim"), cases=cases)


def make_softmax(random):
    """Returns an `AdaptiveSoftmax` whose head and tails have the probabilities of a trained one."""
    from keras_adaptive.layers import AdaptiveSoftmax

    softmax = AdaptiveSoftmax(FLAGS.vocabulary_size, common.cutoffs())
    softmax.build((None, FLAGS.dim))
    for table in softmax.tables:
        values = random.standard_normal(table.shape).astype("float32") * table.shape[1] ** -0.5
        values[:, 0] = 0 if table is softmax.tables[0] else values[:, 0]
        table.assign(values)
    for projection in softmax.projections[1:]:
        projection.assign(random.standard_normal(projection.shape) * FLAGS.dim**-0.5)
    total = np.log(softmax.tables[0].shape[0]) + LOGIT_SPREAD**2 / 2  # the head's log-sum-exp, about
    classes = random.standard_normal(softmax.class_table.shape) / LOGIT_SPREAD * FLAGS.dim**-0.5
    shares = np.array([float(share) for share in FLAGS.tail_shares])
    classes[:, 0] = (total + np.log(shares / (1 - shares.sum())) - 0.5) / MARK
    softmax.class_table.assign(classes)
    return softmax


def hidden_states(random, batch_size):
    """Yields batches of hidden states and of uniform numbers without end, as tensors."""
    from keras import ops

    while True:
        hidden = LOGIT_SPREAD * random.standard_normal((batch_size, FLAGS.dim))
        hidden[:, 0] = MARK
        uniform = random.random((2, batch_size))
        yield tuple(ops.convert_to_tensor(array.astype("float32")) for array in (hidden, uniform))


def functions(softmax):
    """Returns `{name: function of (hidden, uniform)}`, compiled as in `LanguageModel.generate`."""
    from keras_adaptive.backend.compiled import compiled

    bodies = {
        "log_probs": lambda hidden, uniform: softmax.log_probs(hidden),
        "head alone": lambda hidden, uniform: softmax.softmax().head(hidden),
        **{f"top_k {k}": lambda hidden, uniform, k=int(k): softmax.top_k(hidden, k) for k in FLAGS.k},
        "sample": lambda hidden, uniform: softmax.sample_from_uniform(hidden, uniform),
    }
    return {name: compiled(body, softmax.variables) for name, body in bodies.items()}


def call(function, batches):
    """Returns a function that calls another with the next batch, and waits for its results."""
    import keras

    return lambda: keras.tree.map_structure(keras.ops.convert_to_numpy, function(*next(batches)))


def check(calls, batch):
    """Checks that top_k returns the most probable words, and returns all log-probabilities."""
    from keras import ops

    numpy = lambda tree: [np.asarray(ops.convert_to_numpy(part)) for part in tree]  # noqa: E731
    (log_probs,) = numpy([calls["log_probs"](*batch)])
    for k in map(int, FLAGS.k):
        best, ids = numpy(calls[f"top_k {k}"](*batch))
        if not np.allclose(best, -np.sort(-log_probs, axis=-1)[:, :k], atol=1e-4):
            raise ArithmeticError("top_k differs from the largest values of log_probs; nothing was timed.")
        if not np.allclose(np.take_along_axis(log_probs, ids, axis=-1), best, atol=1e-4):
            raise ArithmeticError("The ids of top_k do not match its log-probabilities; nothing was timed.")
    return log_probs


def word():
    from keras import ops

    from keras_adaptive.backend.compiled import compiled, compiled_part

    model = common.build()
    common.give_tails_their_share(model, np.random.default_rng(0))
    total = FLAGS.words * (WARMUP + FLAGS.repeats)
    state = model.body.initial_state(1, total + 1)
    read = compiled_part(lambda tokens, state: model(tokens, state=state), model.variables, [1])
    step = compiled(read, model.variables, [1])
    head = compiled(lambda x: model.word_output.softmax().head_logits(x), model.variables)
    hidden = ops.convert_to_tensor(np.random.default_rng(0).normal(size=(1, FLAGS.dim)).astype("float32"))

    def decoder_alone():
        nonlocal state
        for number in range(FLAGS.words):
            y, state = step(ops.convert_to_tensor(np.full((1, 1), number, "int32")), state)
            ops.convert_to_numpy(y)

    def head_alone():
        for _ in range(FLAGS.words):
            ops.convert_to_numpy(head(hidden))

    turns = {"word": streamed(model, [[4]], total), "decoder": decoder_alone, "head": head_alone}
    candidates = common.times_of(turns, WARMUP, of=FLAGS.words)
    ratio = candidates["word"]["median"] / (candidates["decoder"]["median"] + candidates["head"]["median"])
    common.print_times(candidates, 2)
    print(f"word ÷ (decoder + head): {ratio:.2f}")
    common.save(("backend", *common.MODEL_FLAGS, "tail_shares", "words"), ratio=ratio, candidates=candidates)


def streamed(model, prompt, total):
    """Returns a function that generates --words words of one stream, which has `total` of them."""
    stream = model.stream(prompt, total, seed=1)
    return lambda: list(itertools.islice(stream, FLAGS.words))


def cache():
    model, lengths, cases = common.build(), [int(length) for length in FLAGS.lengths], []
    capacity = lengths[-1] + FLAGS.words * (WARMUP + FLAGS.repeats)
    list(itertools.islice(model.stream(np.full((FLAGS.batch_size, 1), 4), capacity - 1), COMPILED))
    for length in lengths:
        prompt = np.random.default_rng(length).integers(0, FLAGS.vocabulary_size, (FLAGS.batch_size, length))
        turns = {"cached": streamed(model, prompt, capacity - length)}
        if FLAGS.uncached:
            turns["uncached"] = lambda prompt=prompt: [model.generate(prompt, 1, seed=1) for _ in range(FLAGS.words)]
        cases.append({"length": length, "candidates": common.times_of(turns, WARMUP, of=FLAGS.words)})
        print(f"\n{length} words before")
        common.print_times(cases[-1]["candidates"], 2)
    common.save(("backend", *common.MODEL_FLAGS, "batch_size"), cases=cases)


def peer():
    """Times texts of --words words, --batch_size of them at a time."""
    sizes = {name: FLAGS[name].value for name in ("vocabulary_size", "dim", "num_blocks", "ffn_dim", "num_heads")}
    program = importlib.import_module(f"scripts.benchmarks.peers.{FLAGS.backend}_generation")
    words = program.writer(**sizes, batch_size=FLAGS.batch_size, capacity=FLAGS.words)
    prompt = np.full((FLAGS.batch_size, 1), 4)
    adaptive, plain = common.build(), common.build(cutoffs=())
    common.give_tails_their_share(adaptive, np.random.default_rng(0))
    turns = {"plain program": lambda: words(FLAGS.words)}
    for name, model in (("adaptive", adaptive), ("plain softmax", plain)):
        turns[name] = lambda model=model: list(model.stream(prompt, FLAGS.words, seed=1))
    candidates = common.times_of(turns, WARMUP, of=FLAGS.words)
    common.print_times(candidates, 2)
    common.save(("backend", *common.MODEL_FLAGS, "batch_size", "words"), candidates=candidates)


def bodies():
    bodies, lengths = make_bodies(), [int(length) for length in FLAGS.lengths]
    turns = {(name, length): words_after(body, length) for name, body in bodies.items() for length in lengths}
    times, cases = common.times_of(turns, WARMUP, of=FLAGS.words), []
    for name in bodies:
        candidates = {str(length): times[name, length] for length in lengths}
        medians = [time["median"] for time in candidates.values()]
        cases.append({"body": name, "candidates": candidates, "ratios": [median / medians[0] for median in medians]})
        print(f"\n{name}, by the number of words before")
        common.print_times(candidates, 2)
    common.save(("backend", *BODIES, "batch_size", "words", *CONTEXT, "attention_window"), cases=cases)


def make_bodies():
    """Returns `{name: body}`, each with its own random weights."""
    import keras

    from keras_adaptive.layers import NPLMDecoder
    from keras_adaptive.models import hybrid_transformer

    keras.utils.set_random_seed(1)
    context = {name: FLAGS[name].value for name in CONTEXT}
    layer = {**{name: FLAGS[name].value for name in BODIES}, "num_blocks": 1}
    made = {
        "NPLM": NPLMDecoder(FLAGS.num_blocks, FLAGS.ffn_dim, **context),
        "layer of Transformer-C": hybrid_transformer(attention_window=FLAGS.attention_window, **layer),
        "layer of a Transformer": hybrid_transformer(**layer),
    }
    for body in made.values():
        body.build((None, None, FLAGS.dim))
    return made


def words_after(body, length):
    """Returns a function that computes --words steps after `length` words, and waits for their results."""
    import keras

    from keras_adaptive.backend.compiled import compiled

    x = np.random.default_rng(length).normal(size=(FLAGS.batch_size, length, FLAGS.dim)).astype("float32")
    step = compiled(body.step, body.variables)
    state = body.initial_state(FLAGS.batch_size, length + FLAGS.words)
    for start in range(0, length, SEGMENT):
        _, state = step(keras.ops.convert_to_tensor(x[:, start : start + SEGMENT]), state)
    word = keras.ops.convert_to_tensor(x[:, :1])

    def run():
        y, after = word, state
        for _ in range(FLAGS.words):
            y, after = step(y, after)
        keras.ops.convert_to_numpy(y)

    return run


SMALL_VOCABULARY = {"vocabulary_size": 50_000, "cutoffs": ["4000", "16000"]}
CASES = {
    "next_word": common.Case(next_word, {"dim": 1024, "repeats": 25}),
    "word": common.Case(word),
    "cache": common.Case(cache, {**SMALL_VOCABULARY, "words": 1, "lengths": ["64", "512", "1024", "2048"]}),
    "bodies": common.Case(bodies, BODIES),
    "peer": common.Case(peer, {**SMALL_VOCABULARY, "words": 100, "repeats": 5}, backends=("torch", "jax")),
}


def main():
    common.run_case(CASES)


if __name__ == "__main__":
    common.run(main, define_flags)
