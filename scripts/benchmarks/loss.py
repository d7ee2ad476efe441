"""Measures word losses and their gradients: the exact ones against PyTorch's, the sampled ones against TensorFlow's.

    python -m scripts.benchmarks.loss --backend=torch --results=scripts/results/loss_torch.json
    python -m scripts.benchmarks.loss --backend=jax --dtype=mixed_bfloat16
    python -m scripts.benchmarks.loss --backend=torch --vocabulary_size=50000 --cutoffs=       # the plain softmax
    python -m scripts.benchmarks.loss --backend=torch --rows=512,1024,2048,4096,8192,16384
    python -m scripts.benchmarks.loss --backend=torch --tail_shares=0,0.1,0.3,1
    python -m scripts.benchmarks.loss --case=sampled --backend=jax
    python -m scripts.benchmarks.loss --case=sampled --backend=torch --vocabulary_sizes=100000,800000,3000000 \\
        --nopeer --nomemory --dim=256
    python -m scripts.benchmarks.loss --case=task --backend=jax --dim=1024

All candidates are timed in turns in one process, after their values have been compared. Memory is the peak of the
resident memory of a separate process, as the median over the repeats, because memory is freed at different moments of a
step. On a GPU it is the peak of the memory of the GPU. TensorFlow is measured with TF_ENABLE_ONEDNN_OPTS=0, because its
oneDNN kernels never free memory.

- `exact`: a step computes the loss and its gradients with respect to the hidden states and all weights. The peers are
  PyTorch in float32. With --peer_dtype=bfloat16 they cast hidden states and weights as mixed precision does, and Cut
  Cross-Entropy and Liger take part, too, if they are installed and there is a GPU. A peer that cannot run is listed
  with the reason. The floor consists of the three matrix products per band and per projection that every exact loss
  needs, on the rows of the band, on --backend and in --dtype. The memory excludes the final gradients.
- `sampled`: an update draws the noise, computes the loss and its gradients, including those of the hidden states, and
  changes the rows of the table and the biases by Adagrad. This package takes a step of `WordModel.fit`. The peer is
  `tf.nn.sampled_softmax_loss` with TensorFlow's sparse Adagrad, for all backends. All sizes are timed in turns. The
  memory excludes what is held between updates: table, accumulators and batch.
- `task`: an update of a Gemma 3 of KerasHub with one layer and --vocabulary_size words by `train_on_batch`, as KerasHub
  compiles it, on rows of 128 tokens: as it is, after `without_logits`, and with a frozen table, as in LoRA. The memory
  excludes weights, slots and gradients. MALLOC_PERTURB_=0 leaves the memory to glibc, as a user's program does; by
  default freed memory is kept, as in the programs of this package.
"""

import functools

import numpy as np
from absl import flags

from scripts.benchmarks import common, memory, products

FLAGS = flags.FLAGS
EXACT = ("backend", "dtype", "peer_dtype", "vocabulary_size", "cutoffs", "factor", "dim")
SAMPLED = ("backend", "dim", "rows", "num_samples")
TASK = ("backend", "dtype", "vocabulary_size", "dim")
TASKS = ("plain", "without logits", "frozen table")
TASK_LENGTH = 128
RATE, SEED = 0.2, 1  # of the sampled loss


def define_flags():
    common.define_flags(7, vocabulary_size=267_744, cutoffs=["20000", "60000"], dim=1024)
    common.define_case(CASES)
    memory.define_flags()
    flags.DEFINE_string("dtype", "float32", "Keras dtype policy of this package and of the floor.")
    flags.DEFINE_enum("peer_dtype", "float32", ["float32", "bfloat16"], "Dtype of the products of the peers.")
    flags.DEFINE_integer("factor", 4, "Ratio of the dimensions of two successive bands.", lower_bound=1)
    flags.DEFINE_list("rows", ["2048"], "Numbers of hidden states; of the sampled loss the number, 2560 by default.")
    flags.DEFINE_list("tail_shares", [], "Shares of targets in the tails; by default by Zipf's law.")
    flags.DEFINE_list("vocabulary_sizes", ["793471"], "Numbers of words of the sampled loss.")
    flags.DEFINE_integer("num_samples", 8_192, "Number of noise words per update of the sampled loss.", lower_bound=1)
    flags.DEFINE_bool("peer", True, "Also time TensorFlow's sampled loss, which doubles the memory.")


def exact():
    shares = [float(share) for share in FLAGS.tail_shares] or [None]
    if FLAGS.memory_of:
        case = make_case(int(FLAGS.rows[0]), shares[0])
        step, _ = exact_candidates(*case)[FLAGS.memory_of]()
        memory.print_peak(step, bytes_of_gradients(case))
        return
    cases = []
    for rows in map(int, FLAGS.rows):
        for share in shares:
            cases.append(measure(rows, share))
            in_bands = " / ".join(f"{100 * share:.1f}" for share in cases[-1]["shares"])
            print(f"\n{rows} rows, {in_bands} % of the targets in each band")
            print_candidates(cases[-1]["candidates"], digits=1)
            for name, reason in cases[-1]["missing"].items():
                print(f"{name} is missing: {reason}")
    common.save(EXACT, cases=cases)


def exact_candidates(hidden, targets, weights):
    """Returns `{name: function that returns (step, values)}`: a step, and loss and gradient of the hidden states."""
    from scripts.benchmarks.peers import torch_losses

    case, own = (hidden, targets, weights), {}
    if FLAGS.backend == "jax" and not common.cutoffs():
        from scripts.benchmarks.peers import jax_losses

        own = jax_losses.candidates(*case)
    return {"ours": lambda: ours(*case), **own, **torch_losses.candidates(*case)}


def zipf_targets(rows, edges, tail_share):
    """Returns ids by Zipf's law, p ∝ 1/(rank + 2.7), over all bands or with a given share after the first cutoff."""
    random = np.random.default_rng(0)
    weights = 1.0 / (np.arange(edges[-1]) + 2.7)
    if tail_share is not None:
        parts = (slice(0, edges[1]), 1 - tail_share), (slice(edges[1], None), tail_share)
        for part, share in parts:
            weights[part] *= share / weights[part].sum()
    return random.choice(edges[-1], size=rows, p=weights / weights.sum()).astype("int32")


def make_case(rows, tail_share):
    """Returns the arguments of a candidate: hidden states, targets and weights."""
    random = np.random.default_rng(1)
    weights = make_weights(random)
    hidden = random.standard_normal((rows, FLAGS.dim)).astype("float32")
    return hidden, zipf_targets(rows, (0, *common.cutoffs(), FLAGS.vocabulary_size), tail_share), weights


def make_weights(random):
    """Returns tables, projections of the tails and class table, of the scale that trained models have."""
    edges = (0, *common.cutoffs(), FLAGS.vocabulary_size)
    dims = [FLAGS.dim // FLAGS.factor**band for band in range(len(edges) - 1)]
    normal = lambda *shape, scale: (scale * random.standard_normal(shape)).astype("float32")  # noqa: E731
    tables = [normal(high - low, dim, scale=dim**-0.5) for low, high, dim in zip(edges, edges[1:], dims)]
    projections = [normal(FLAGS.dim, dim, scale=FLAGS.dim**-0.5) for dim in dims[1:]]
    return [*tables, *projections, *([normal(len(dims) - 1, FLAGS.dim, scale=0.02)] if common.cutoffs() else [])]


def ours(hidden, targets, weights):
    """Returns `(step, values)`: our loss with all gradients; and the loss and the gradient of the hidden states."""
    import keras

    from keras_adaptive.layers import AdaptiveSoftmax

    softmax = AdaptiveSoftmax(FLAGS.vocabulary_size, common.cutoffs(), factor=FLAGS.factor, dtype=FLAGS.dtype)
    softmax.build(hidden.shape)
    variables = [*softmax.tables, *softmax.projections[1:], *([softmax.class_table] if common.cutoffs() else [])]
    for variable, value in zip(variables, weights, strict=True):
        variable.assign(value)

    x = keras.Variable(hidden)
    trainable, others = [x, *softmax.trainable_variables], softmax.non_trainable_variables

    def function(targets):
        loss = lambda targets: softmax.total_nll(x.value, targets, training=True)  # noqa: E731
        return common.differentiated(loss, (targets,), trainable, others)

    step = common.compiled_step(function, [*trainable, *others], keras.ops.convert_to_tensor(targets))

    def values():
        loss, (gradient, *_) = step()
        return [np.asarray(keras.ops.convert_to_numpy(value), "float64") for value in (loss, gradient)]

    return step, values


def floor(targets):
    """Returns three matrix products for every band and projection, in our dtype."""
    return products.gradients(products.of_loss(targets, FLAGS.dim, FLAGS.factor), FLAGS.dtype)


def compare(name, actual, expected):
    """Raises if a loss or its gradient differs from another's by more than the dtypes explain."""
    tolerance = 1e-4 if FLAGS.dtype == FLAGS.peer_dtype == "float32" else 3e-2
    for what, values, references in zip(("loss", "gradient"), actual, expected, strict=True):
        error = np.abs(values - references).max() / np.abs(references).max()
        if not error <= tolerance:
            raise ArithmeticError(f"{name}: the {what} is off by {error:.1e} of its size; nothing was timed.")


def measure(rows, tail_share):
    """Measures one case: compares values, times in turns, and memory."""
    from scripts.benchmarks.peers.torch_losses import KERNELS

    case = make_case(rows, tail_share)
    candidates, memory_of, missing, expected = {}, {}, {}, None
    for name, make in exact_candidates(*case).items():
        try:
            step, values = make()
            memory_of[name] = exact_memory(name, step, case, tail_share) if FLAGS.memory else None
            actual = values()
            expected = actual if expected is None else expected
            compare(name, expected, actual)
            candidates[name] = step
        except Exception as error:  # of any kind: a package is missing, or a kernel does not support the device
            if name == "ours" or isinstance(error, ArithmeticError) and name not in KERNELS:
                raise
            missing[name] = common.last_line(error)
    times = common.times_of({**candidates, "floor": floor(case[1])})
    edges, targets = (0, *common.cutoffs(), FLAGS.vocabulary_size), case[1]
    shares = [float(np.mean((targets >= low) & (targets < high))) for low, high in zip(edges, edges[1:])]
    figures = {name: {"seconds": seconds} for name, seconds in times.items()}
    for name in filter(memory_of.get, candidates):
        figures[name]["mebibytes"] = memory_of[name] / 2**20
    return {"rows": rows, "tail_share": tail_share, "shares": shares, "candidates": figures, "missing": missing}


def exact_memory(name, step, case, tail_share):
    """Returns the bytes of a candidate on the GPU, or of a separate process, beyond gradients; `None` if unknown."""
    from keras_adaptive.backend.accelerator import on_accelerator

    if on_accelerator():
        peak = memory.device_peak_bytes(step, FLAGS.backend if name == "ours" else "torch")
        return peak and peak - bytes_of_gradients(case)
    shares = "" if tail_share is None else tail_share
    plain = {"TF_ENABLE_ONEDNN_OPTS": "0"} if name == "ours" else {}
    return memory.of_process("loss", name, plain, rows=len(case[0]), tail_shares=shares)


def bytes_of_gradients(case):
    hidden, _, weights = case
    return hidden.nbytes + sum(weight.nbytes for weight in weights)


def sampled():
    sizes = list(map(int, FLAGS.vocabulary_sizes))
    if FLAGS.memory_of:
        memory.print_peak(sampled_updates(sizes[0])[FLAGS.memory_of])
        return
    turns = {(size, name): update for size in sizes for name, update in sampled_updates(size).items()}
    times = common.times_of(turns)
    del turns  # with the memory of all models
    cases = {size: {"vocabulary_size": size, "candidates": {}} for size in sizes}
    for (size, name), seconds in times.items():
        cases[size]["candidates"][name] = figures = {"seconds": seconds}
        if FLAGS.memory:
            given = {"vocabulary_sizes": size, "peer": name != "ours"}
            figures["mebibytes"] = memory.of_process("loss", name, {"TF_ENABLE_ONEDNN_OPTS": "0"}, **given) / 2**20
    for size, case in cases.items():
        print(f"\n{size:,} words × {FLAGS.dim}, {FLAGS.rows[0]} targets, {FLAGS.num_samples} noise words")
        print_candidates(case["candidates"], digits=0)
    common.save(SAMPLED, cases=list(cases.values()))


def sampled_updates(vocabulary_size):
    """Returns `{name: update}` of this package and of TensorFlow, after their losses have been compared."""
    batch, model = make_batch(vocabulary_size), make_model(vocabulary_size)
    updates = {"ours": functools.partial(model.train_on_batch, *batch)}
    if FLAGS.peer:
        peer = make_peer(model)
        compare_losses(model, peer, batch)
        updates["tensorflow"] = functools.partial(peer.update, *batch)
    return updates


def make_batch(vocabulary_size):
    """Returns hidden states and ids that are log-uniform, as words by Zipf's law are."""
    random, rows = np.random.default_rng(1), int(FLAGS.rows[0])
    hidden = random.standard_normal((rows, FLAGS.dim)).astype("float32")
    ids = np.exp(random.random(rows) * np.log(vocabulary_size)).astype("int32")
    return hidden, np.minimum(ids, vocabulary_size - 1)


def make_model(vocabulary_size):
    """Returns a `WordModel` of hidden states, to which it adds a vector, so that their gradient is needed."""
    import keras

    from keras_adaptive.layers import SampledSoftmax
    from keras_adaptive.models import WordModel

    class Shifted(keras.layers.Layer):
        def build(self, shape):
            self.shift = self.add_weight(shape=shape[-1:], initializer="zeros")

        def call(self, hidden):
            return hidden + self.shift

    hidden = keras.Input((FLAGS.dim,))
    softmax = SampledSoftmax(vocabulary_size, FLAGS.num_samples, seed=SEED)
    model = WordModel(hidden, Shifted()(hidden), word_output=softmax)
    model.compile(keras.optimizers.Adagrad(RATE, initial_accumulator_value=1.0, epsilon=0.0))
    return model


def make_peer(model):
    """Returns TensorFlow's updates from the same weights."""
    import keras

    from scripts.benchmarks.peers.tensorflow_sampled_softmax import Trainer

    return Trainer(keras.ops.convert_to_numpy(model.word_output.tables[0].value), FLAGS.num_samples, RATE)


def compare_losses(model, peer, batch):
    """Raises if the first loss of the model differs from TensorFlow's of the same noise. Takes a step of the model."""
    import keras

    expected = float(peer.loss(*batch, noise_of(model.word_output, batch[1])))
    actual = float(keras.ops.convert_to_numpy(model.train_on_batch(*batch, return_dict=True)["loss"]))
    if not abs(actual - expected) <= 1e-4 * abs(expected):
        raise ArithmeticError(f"The losses of the same noise are {actual} and {expected}; nothing was timed.")


def noise_of(softmax, targets):
    """Returns the noise of the next update in the form of TensorFlow's `sampled_values`."""
    import keras

    seed = keras.random.SeedGenerator(SEED)  # as the layer's, which it leaves as it is
    sampled = softmax.noise.draw(keras.ops.convert_to_tensor(targets), None, seed)
    ids, of_targets, of_noise = map(keras.ops.convert_to_numpy, sampled)
    return ids.astype("int64"), of_targets[:, None], of_noise


def print_candidates(candidates, digits):
    """Prints a table of the times and the memory of candidates."""
    memory = {name: f"{figures['mebibytes']:.0f}" for name, figures in candidates.items() if "mebibytes" in figures}
    common.print_times(candidates, digits, MiB=memory)


def task():
    if FLAGS.memory_of:
        model, update = make_task(FLAGS.memory_of, int(FLAGS.rows[0]))
        memory.print_peak(update, sum(4 * np.prod(variable.shape, dtype=int) for variable in model.trainable_variables))
        return
    cases = []
    for rows in map(int, FLAGS.rows):
        candidates = {name: {} for name in TASKS}
        for name, figures in candidates.items() if FLAGS.memory else ():  # before this process has models
            figures["mebibytes"] = memory.of_process("loss", name, {"TF_ENABLE_ONEDNN_OPTS": "0"}, rows=rows) / 2**20
        updates = {name: make_task(name, rows)[1] for name in TASKS}
        losses = {name: float(update()[0]) for name, update in updates.items()}
        if max(losses.values()) - min(losses.values()) > 1e-4 * losses["plain"]:
            raise ArithmeticError(f"The losses of the same weights are {losses}; nothing was timed.")
        for name, seconds in common.times_of(updates).items():
            candidates[name]["seconds"] = seconds
        del updates  # with the memory of all models
        print(f"\n{rows} tokens")
        print_candidates(candidates, digits=0)
        cases.append({"rows": rows, "candidates": candidates})
    common.save(TASK, cases=cases)


def make_task(name, rows):
    """Returns a task of KerasHub and its update of one batch."""
    import keras
    import keras_hub

    from keras_adaptive.models import without_logits

    keras.config.set_dtype_policy(FLAGS.dtype)
    keras.utils.set_random_seed(1)
    heads = {"num_query_heads": 4, "num_key_value_heads": 1, "head_dim": FLAGS.dim // 4}
    sizes = {"num_layers": 1, "hidden_dim": FLAGS.dim, "intermediate_dim": 4 * FLAGS.dim, "image_size": None}
    backbone = keras_hub.models.Gemma3Backbone(FLAGS.vocabulary_size, **sizes, **heads)
    model = keras_hub.models.Gemma3CausalLM(preprocessor=None, backbone=backbone)
    text = common.zipf((rows // TASK_LENGTH, TASK_LENGTH + 1))
    inputs = {"token_ids": text[:, :-1], "padding_mask": np.ones_like(text[:, 1:])}
    backbone.token_embedding.trainable = name != "frozen table"
    if name != "plain":
        without_logits(model)
    model.compile()
    return model, functools.partial(model.train_on_batch, inputs, text[:, 1:])


CASES = {
    "exact": common.Case(exact),
    "sampled": common.Case(sampled, {"dim": 512, "rows": ["2560"]}),
    "task": common.Case(task, {"vocabulary_size": 262_144, "dim": 256, "rows": ["512", "2048"]}),
}


def main():
    common.run_case(CASES)


if __name__ == "__main__":
    common.run(main, define_flags)
