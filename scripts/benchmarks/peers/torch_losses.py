"""Losses of PyTorch and of kernels for it, on the hidden states and weights of `scripts.benchmarks.loss`."""

import functools

import numpy as np
import torch
from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS
CHUNK_ROWS = 512


def candidates(hidden, targets, weights):
    """Returns `{name: function that returns (step, values)}`, as `scripts.benchmarks.loss.ours` returns them."""
    if common.cutoffs():
        return {"torch adaptive": lambda: adaptive(hidden, targets, weights)}
    losses = {
        "torch cross_entropy": plain_loss,
        "torch linear_cross_entropy": chunked_loss,
        "torch linear_cross_entropy, tuned": tuned_loss,
        "torch loop over chunks": looped_loss,
    }
    if not torch.cuda.is_available() or FLAGS.peer_dtype == "bfloat16":
        losses |= KERNELS
    return {name: lambda loss=loss: full(hidden, targets, weights, loss()) for name, loss in losses.items()}


def adaptive(hidden, targets, weights):
    """Returns `torch.nn.AdaptiveLogSoftmaxWithLoss` with the same weights."""
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

    return step_of(list(weights.values()), hidden, targets, loss)


def narrow(tensor):
    """Returns a tensor of PyTorch in --peer_dtype."""
    return tensor.bfloat16() if FLAGS.peer_dtype == "bfloat16" else tensor


def full(hidden, targets, weights, loss):
    """Returns a plain softmax by one of PyTorch's functions of hidden states, table and targets."""
    table = torch.nn.Parameter(torch.from_numpy(weights[0].copy()).to(common.torch_device()))
    return step_of([table], hidden, targets, lambda x, t: loss(x, narrow(table), t))


def step_of(parameters, hidden, targets, loss):
    """Returns `(step, values)` of a loss of PyTorch."""
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


def plain_loss():
    from torch.nn.functional import cross_entropy

    return lambda x, table, targets: cross_entropy((x @ table.T).float(), targets, reduction="sum")


def chunked_loss(**options):
    from torch.nn import LinearCrossEntropyOptions
    from torch.nn.functional import linear_cross_entropy

    return functools.partial(linear_cross_entropy, reduction="sum", options=LinearCrossEntropyOptions(**options))


def tuned_loss():
    return chunked_loss(batch_chunk_size=CHUNK_ROWS, chunking_method=None, acc_policy="compact")


def looped_loss():
    """The loop that training programs write themselves: a chunk of rows at a time, whose logits are computed twice."""
    from torch.nn.functional import cross_entropy
    from torch.utils.checkpoint import checkpoint

    def of_chunk(x, table, targets):
        return cross_entropy((x @ table.T).float(), targets, reduction="sum")

    def loss(x, table, targets):
        chunks = zip(x.split(CHUNK_ROWS), targets.split(CHUNK_ROWS))
        return sum(checkpoint(of_chunk, rows, table, ids, use_reentrant=False) for rows, ids in chunks)

    return loss


def cut_loss():
    from cut_cross_entropy import linear_cross_entropy

    kernel = {} if torch.cuda.is_available() else {"impl": "torch_compile"}  # its other form for a CPU
    return functools.partial(linear_cross_entropy, reduction="sum", **kernel)


def liger_loss():
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    return functools.partial(liger_fused_linear_cross_entropy, reduction="sum", accum_dtype=torch.float32)


KERNELS = {"Cut Cross-Entropy": cut_loss, "Liger": liger_loss}
