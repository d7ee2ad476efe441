"""Measures the word loss against PyTorch's losses and against the matrix products that every exact loss needs.

    python -m scripts.benchmarks.loss --backend=torch --results=scripts/results/loss_torch.json
    python -m scripts.benchmarks.loss --backend=jax --dtype=mixed_bfloat16
    python -m scripts.benchmarks.loss --backend=torch --vocabulary_size=50000 --cutoffs=       # the plain softmax
    python -m scripts.benchmarks.loss --backend=torch --rows=512,1024,2048,4096,8192,16384
    python -m scripts.benchmarks.loss --backend=torch --tail_shares=0,0.1,0.3,1

A step computes the loss and its gradients with respect to the hidden states and all weights. The loss, the peers and
the floor are timed in turns in one process, after their values have been compared. The peers are PyTorch in float32.
With --peer_dtype=bfloat16 they cast hidden states and weights as mixed precision does, and Cut Cross-Entropy and Liger
take part, too, if they are installed and there is a GPU. A peer that cannot run is listed with the reason. The floor
consists of three matrix products per band and per projection, on the rows of the band, on --backend and in --dtype.
Memory is the peak of the resident memory of a separate process minus the final gradients. It is the median over the
repeats, because memory is freed at different moments of a step. On a GPU it is the peak of the memory of the GPU.
TensorFlow is measured with TF_ENABLE_ONEDNN_OPTS=0, because its oneDNN kernels never free memory.
"""

import functools

import numpy as np
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS


def define_flags():
    common.define_flags(7, vocabulary_size=267_744, cutoffs=["20000", "60000"], dim=1024)
    flags.DEFINE_string("dtype", "float32", "Keras dtype policy of this package and of the floor.")
    flags.DEFINE_enum("peer_dtype", "float32", ["float32", "bfloat16"], "Dtype of the products of the peers.")
    flags.DEFINE_integer("factor", 4, "Ratio of the dimensions of two successive bands.", lower_bound=1)
    flags.DEFINE_list("rows", ["2048"], "Numbers of hidden states.")
    flags.DEFINE_list("tail_shares", [], "Shares of targets in the tails; by default by Zipf's law.")
    flags.DEFINE_bool("memory", True, "Also measure memory. It needs Linux.")
    flags.DEFINE_string("memory_of", None, "Print the memory of this candidate, in bytes, and nothing else.")


def zipf_targets(rows, edges, tail_share, seed=0):
    """Returns ids by Zipf's law, p ∝ 1/(rank + 2.7), over all bands or with a given share after the first cutoff."""
    random = np.random.default_rng(seed)
    weights = 1.0 / (np.arange(edges[-1]) + 2.7)
    if tail_share is not None:
        parts = (slice(0, edges[1]), 1 - tail_share), (slice(edges[1], None), tail_share)
        for part, share in parts:
            weights[part] *= share / weights[part].sum()
    return random.choice(edges[-1], size=rows, p=weights / weights.sum()).astype("int32")


def ours(hidden, targets, weights):
    """Returns `(step, values)`: our loss with all gradients; and the loss and the gradient of the hidden states."""
    import keras

    from keras_adaptive.layers import AdaptiveSoftmax

    class Problem(keras.layers.Layer):
        """Holds the hidden states as a weight, in addition to the weights of the loss."""

        def __init__(self):
            super().__init__(dtype="float32")
            self.softmax = AdaptiveSoftmax(FLAGS.vocabulary_size, common.cutoffs(), FLAGS.factor, dtype=FLAGS.dtype)
            self.softmax.build(hidden.shape)
            self.hidden = self.add_weight(shape=hidden.shape)

    problem = Problem()
    problem.hidden.assign(hidden)
    softmax = problem.softmax
    variables = [*softmax.tables, *softmax.projections[1:], *([softmax.class_table] if common.cutoffs() else [])]
    for variable, value in zip(variables, weights, strict=True):
        variable.assign(value)

    def function(targets):
        loss = lambda targets: softmax.total_nll(problem.hidden.value, targets, training=True)  # noqa: E731
        return common.differentiated(loss, (targets,), problem)

    step = common.compiled_step(function, problem.variables, keras.ops.convert_to_tensor(targets))
    place = [variable.path for variable in problem.trainable_variables].index(problem.hidden.path)

    def values():
        loss, gradients = step()
        return [np.asarray(keras.ops.convert_to_numpy(value), "float64") for value in (loss, gradients[place])]

    return step, values


def floor(targets):
    """Returns three matrix products for every band and projection, in our dtype."""
    return common.matrix_products(common.loss_products(targets, FLAGS.dim, FLAGS.factor), FLAGS.dtype)


def torch_adaptive(hidden, targets, weights):
    """Returns `torch.nn.AdaptiveLogSoftmaxWithLoss` with the same weights."""
    import torch

    count = len(common.cutoffs()) + 1
    module = torch.nn.AdaptiveLogSoftmaxWithLoss(FLAGS.dim, FLAGS.vocabulary_size, list(common.cutoffs()), FLAGS.factor)
    tables, projections, (class_table,) = weights[:count], weights[count : 2 * count - 1], weights[2 * count - 1 :]
    with torch.no_grad():
        module.head.weight.copy_(torch.from_numpy(np.concatenate([tables[0], class_table])))
        for tail, table, projection in zip(module.tail, tables[1:], projections, strict=True):
            tail[0].weight.copy_(torch.from_numpy(projection.T))
            tail[1].weight.copy_(torch.from_numpy(table))
    module.to(common.torch_device())
    weights = dict(module.named_parameters())

    def loss(x, targets):
        narrowed = {name: narrow(weight) for name, weight in weights.items()}
        return -torch.func.functional_call(module, narrowed, (x, targets)).output.float().sum()

    return torch_step(list(weights.values()), hidden, targets, loss)


def narrow(tensor):
    """Returns a tensor of PyTorch in --peer_dtype."""
    return tensor.bfloat16() if FLAGS.peer_dtype == "bfloat16" else tensor


def torch_full(hidden, targets, weights, loss):
    """Returns a plain softmax by one of PyTorch's functions of hidden states, table and targets."""
    import torch

    table = torch.nn.Parameter(torch.from_numpy(weights[0].copy()).to(common.torch_device()))
    return torch_step([table], hidden, targets, lambda x, t: loss(x, narrow(table), t))


def torch_step(parameters, hidden, targets, loss):
    """Returns `(step, values)` of a loss of PyTorch."""
    import torch

    device = common.torch_device()
    x = torch.from_numpy(hidden).to(device).requires_grad_()
    targets = torch.from_numpy(targets).to(device).long()

    def step():
        value = loss(narrow(x), targets)
        return value.detach(), torch.autograd.grad(value, [x, *parameters], allow_unused=True)

    def values():
        loss, gradients = step()
        return [np.asarray(tensor.float().cpu(), "float64") for tensor in (loss, gradients[0])]

    return step, values


def peers(hidden, targets, weights):
    """Returns `{name: function that returns (step, values)}` of the losses of PyTorch and of kernels for it."""
    import torch

    if common.cutoffs():
        return {"torch adaptive": lambda: torch_adaptive(hidden, targets, weights)}
    losses = {
        "torch cross_entropy": plain_loss,
        "torch linear_cross_entropy": chunked_loss,
        "torch linear_cross_entropy, tuned": tuned_loss,
    }
    if torch.cuda.is_available() and FLAGS.peer_dtype == "bfloat16":
        losses |= KERNELS
    return {name: lambda loss=loss: torch_full(hidden, targets, weights, loss()) for name, loss in losses.items()}


def plain_loss():
    from torch.nn.functional import cross_entropy

    return lambda x, table, targets: cross_entropy((x @ table.T).float(), targets, reduction="sum")


def chunked_loss(**options):
    from torch.nn import LinearCrossEntropyOptions
    from torch.nn.functional import linear_cross_entropy

    return functools.partial(linear_cross_entropy, reduction="sum", options=LinearCrossEntropyOptions(**options))


def tuned_loss():
    return chunked_loss(batch_chunk_size=512, chunking_method=None, acc_policy="compact")


def cut_loss():
    from cut_cross_entropy import linear_cross_entropy

    return functools.partial(linear_cross_entropy, reduction="sum")


def liger_loss():
    import torch
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    return functools.partial(liger_fused_linear_cross_entropy, reduction="sum", accum_dtype=torch.float32)


KERNELS = {"Cut Cross-Entropy": cut_loss, "Liger": liger_loss}


def make_weights(random):
    """Returns tables, projections of the tails and class table, of the scale that trained models have."""
    edges = (0, *common.cutoffs(), FLAGS.vocabulary_size)
    dims = [FLAGS.dim // FLAGS.factor**band for band in range(len(edges) - 1)]
    normal = lambda *shape, scale: (scale * random.standard_normal(shape)).astype("float32")  # noqa: E731
    tables = [normal(high - low, dim, scale=dim**-0.5) for low, high, dim in zip(edges, edges[1:], dims)]
    projections = [normal(FLAGS.dim, dim, scale=FLAGS.dim**-0.5) for dim in dims[1:]]
    return [*tables, *projections, *([normal(len(dims) - 1, FLAGS.dim, scale=0.02)] if common.cutoffs() else [])]


def compare(name, actual, expected):
    """Raises if a loss or its gradient differs from another's by more than the dtypes explain."""
    tolerance = 1e-4 if FLAGS.dtype == FLAGS.peer_dtype == "float32" else 3e-2
    for what, values, references in zip(("loss", "gradient"), actual, expected, strict=True):
        error = np.abs(values - references).max() / np.abs(references).max()
        if not error <= tolerance:
            raise ArithmeticError(f"{name}: the {what} is off by {error:.1e} of its size; nothing was timed.")


def make_case(rows, tail_share):
    """Returns the arguments of a candidate: hidden states, targets and weights."""
    random = np.random.default_rng(1)
    weights = make_weights(random)
    hidden = random.standard_normal((rows, FLAGS.dim)).astype("float32")
    return hidden, zipf_targets(rows, (0, *common.cutoffs(), FLAGS.vocabulary_size), tail_share), weights


def measure(rows, tail_share):
    """Measures one case: compares values, times in turns, and memory."""
    case = make_case(rows, tail_share)
    candidates, memory_of, missing, expected = {}, {}, {}, None
    for name, make in {"ours": lambda: ours(*case), **peers(*case)}.items():
        try:
            step, values = make()
            memory_of[name] = memory(name, step, case, tail_share) if FLAGS.memory else None
            actual = values()
            expected = actual if expected is None else expected
            compare(name, expected, actual)
            candidates[name] = step
        except Exception as error:  # of any kind: a package is missing, or a kernel does not support the device
            if name == "ours" or isinstance(error, ArithmeticError) and name not in KERNELS:
                raise
            missing[name] = common.last_line(error)
    seconds = common.time_interleaved({**candidates, "floor": floor(case[1])}, FLAGS.repeats)
    edges, targets = (0, *common.cutoffs(), FLAGS.vocabulary_size), case[1]
    shares = [float(np.mean((targets >= low) & (targets < high))) for low, high in zip(edges, edges[1:])]
    figures = {name: {"seconds": common.spread(times)} for name, times in seconds.items()}
    for name in filter(memory_of.get, candidates):
        figures[name]["mebibytes"] = memory_of[name] / 2**20
    return {"rows": rows, "tail_share": tail_share, "shares": shares, "candidates": figures, "missing": missing}


def memory(name, step, case, tail_share):
    """Returns the bytes of a candidate on the GPU, or of a separate process, beyond gradients; `None` if unknown."""
    from keras_adaptive.backend.accelerator import on_accelerator

    if not on_accelerator():
        return memory_of_process(name, len(case[0]), tail_share)
    peak = common.device_peak_bytes(step, FLAGS.backend if name == "ours" else "torch")
    return peak and peak - bytes_of_gradients(case)


def bytes_of_gradients(case):
    hidden, _, weights = case
    return hidden.nbytes + sum(weight.nbytes for weight in weights)


def memory_of_process(name, rows, tail_share):
    """Returns the bytes of a candidate in a separate process."""
    flags = [
        f"--{flag}={FLAGS[flag].value}" for flag in ("backend", "dtype", "vocabulary_size", "factor", "dim", "repeats")
    ]
    flags += [f"--cutoffs={','.join(FLAGS.cutoffs)}", f"--rows={rows}", f"--memory_of={name}"]
    flags += [] if tail_share is None else [f"--tail_shares={tail_share}"]
    plain = {"TF_ENABLE_ONEDNN_OPTS": "0"} if name == "ours" and FLAGS.backend == "tensorflow" else {}
    return common.number_of_process("loss", flags, **plain)


def print_memory(name, case):
    """Prints the peak memory of a step, without the gradients of the hidden states and the weights."""
    step, _ = ours(*case) if name == "ours" else peers(*case)[name]()
    step()
    peaks = [common.peak_bytes(step) for _ in range(FLAGS.repeats)]
    print(int(np.median(peaks)) - bytes_of_gradients(case))


def report(case):
    """Prints a case as a table."""
    shares = " / ".join(f"{100 * share:.1f}" for share in case["shares"])
    print(f"\n{case['rows']} rows, {shares} % of the targets in each band")
    print_candidates(case["candidates"], digits=1)
    for name, reason in case["missing"].items():
        print(f"{name} is missing: {reason}")


def print_candidates(candidates, digits):
    """Prints a table of the times and the memory of candidates, relative to ours."""
    reference, rows = candidates["ours"]["seconds"]["median"], []
    for name, figures in candidates.items():
        seconds, memory = figures["seconds"], figures.get("mebibytes")
        memory = "" if memory is None else f"{memory:.0f}"
        rows.append([name, *common.milliseconds(seconds, digits), f"{reference / seconds['median']:.3f}", memory])
    common.print_table(["", "ms", "span", "ours / it", "MiB"], rows)


def main():
    shares = [float(share) for share in FLAGS.tail_shares] or [None]
    if FLAGS.memory_of:
        print_memory(FLAGS.memory_of, make_case(int(FLAGS.rows[0]), shares[0]))
        return
    cases = []
    for rows in map(int, FLAGS.rows):
        for share in shares:
            cases.append(measure(rows, share))
            report(cases[-1])
    common.save(("backend", "dtype", "peer_dtype", "vocabulary_size", "cutoffs", "factor", "dim"), cases=cases)


if __name__ == "__main__":
    common.run(main, define_flags)
