"""Transformer language model, as a PyTorch user writes it without this package, for comparison.

The program uses its own adaptive inputs, `torch.nn.TransformerEncoderLayer`, `torch.nn.AdaptiveLogSoftmaxWithLoss`,
Adam, and a single cosine over a time budget. It reads the corpus of the trainers in the same blocks.

    python -m trainers.prepare --source=FOLDER --min_count=3 --data_dir=data/books
    python -m scripts.benchmarks.peers.torch_lm --data_dir=data/books --minutes=15 --results=runs/torch_lm.json
"""

import itertools
import math
import os
import time

import numpy as np
import torch
from absl import flags
from torch import nn

from scripts.benchmarks import common
from trainers.support import command_line

FLAGS = flags.FLAGS
BODY = ("num_blocks", "dim", "ffn_dim", "num_heads")
SETTINGS = (*BODY, "cutoffs", "dropout", "length", "batch_size", "learning_rate", "minutes", "updates", "seed")


def define_flags():
    command_line.define_path("data_dir", None, "Folder made by trainers.prepare.", required=True)
    command_line.define_path("results", None, "JSON file to write, from a working tree without changes.")
    common.define_model_flags(cutoffs=["4000", "16000"], num_blocks=4, dim=256, ffn_dim=1024, num_heads=8)
    flags.DEFINE_float("minutes", 15.0, "Time for training, evaluation not counted.", lower_bound=0.0)
    flags.DEFINE_integer("updates", None, "Train for this many updates instead of --minutes.", lower_bound=1)
    flags.DEFINE_float("learning_rate", 1e-3, "Rate at the start of the cosine, which ends at zero.")
    flags.DEFINE_float("dropout", 0.0, "Dropout everywhere in the blocks and on the input.")
    flags.DEFINE_integer("length", 128, "Tokens a block of text.")
    flags.DEFINE_integer("batch_size", 32, "Blocks of text an update.")
    flags.DEFINE_integer("seed", 1, "Seed of the weights, the dropout and the order of the batches.")
    flags.DEFINE_integer("threads", None, "Threads of PyTorch; all cores when not given.", lower_bound=1)


class AdaptiveInput(nn.Module):
    """Embeds frequent words wide and rare ones narrow, each band projected to `dim`."""

    def __init__(self, vocabulary_size, cutoffs, dim, factor=4):
        super().__init__()
        self.edges = [0, *cutoffs, vocabulary_size]
        sizes = [high - low for low, high in itertools.pairwise(self.edges)]
        dims = [dim // factor**band for band in range(len(sizes))]
        self.dim = dim
        self.tables = nn.ModuleList(nn.Embedding(*shape) for shape in zip(sizes, dims, strict=True))
        self.projections = nn.ModuleList(nn.Linear(width, dim, bias=False) for width in dims)
        for table, projection in zip(self.tables, self.projections, strict=True):
            nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
            nn.init.xavier_uniform_(projection.weight)

    def forward(self, ids):  # (batch, length) -> (batch, length, dim)
        flat = ids.flatten()
        embedded = self.tables[0].weight.new_empty(flat.shape[0], self.dim)
        bands = zip(itertools.pairwise(self.edges), self.tables, self.projections, strict=True)
        for (low, high), table, projection in bands:
            rows = ((flat >= low) & (flat < high)).nonzero().squeeze(1)
            embedded = embedded.index_copy(0, rows, projection(table(flat[rows] - low)))
        return embedded.view(*ids.shape, self.dim)


def sinusoids(length, dim):
    """Returns sines and cosines of geometrically decreasing frequencies, (length, dim)."""
    half = dim // 2
    frequencies = torch.exp(-torch.arange(half) * math.log(10_000) / (half - 1))
    angles = torch.arange(length).unsqueeze(1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class TransformerLM(nn.Module):
    """Pre-norm causal Transformer between adaptive inputs and an adaptive softmax, which can be tied as in ADP-T."""

    def __init__(self, vocabulary_size, cutoffs, blocks, dim, ffn, heads, dropout, length):
        super().__init__()
        self.classes, self.output_dtype = None, torch.float32
        self.input = AdaptiveInput(vocabulary_size, cutoffs, dim)
        self.dropout = nn.Dropout(dropout)
        options = dict(dropout=dropout, batch_first=True, norm_first=True)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(dim, heads, ffn, **options) for _ in range(blocks))
        self.norm = nn.LayerNorm(dim)
        self.output = nn.AdaptiveLogSoftmaxWithLoss(dim, vocabulary_size, cutoffs)
        self.register_buffer("positions", sinusoids(length, dim))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def tie(self):
        """Replaces the tables and the projections of the output by those of the input, as in ADP-T."""
        self.classes = nn.Parameter(self.output.head.weight[self.input.edges[1] :].detach().clone())
        for tail, table in zip(self.output.tail, self.input.tables[1:], strict=True):
            tail[0].weight.requires_grad_(False)
            tail[1].weight = table.weight
        self.output.head.weight.requires_grad_(False)
        return self

    def forward(self, ids, targets, weights):
        """Returns the sum of the negative log-probabilities of the targets of weight 1."""
        return self.nll(ids, targets, weights).sum()

    def nll(self, ids, targets, weights):
        """Returns the negative log-probabilities of the targets of weight 1, (targets,)."""
        x = self.dropout(self.input(ids) * math.sqrt(self.input.dim) + self.positions)
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        counts = weights > 0
        with torch.autocast(x.device.type, enabled=False):  # which `nn.AdaptiveLogSoftmaxWithLoss` does not support
            data = self.norm(x.float())[counts].to(self.output_dtype), targets[counts]
            return -torch.func.functional_call(self.output, self.output_weights(), data).output.float()

    def output_weights(self):
        """Returns the weights of the output by name, in its dtype and, if the words are tied, from the input."""
        weights = dict(self.output.named_parameters())
        if self.classes is not None:
            for number, projection in enumerate(self.input.projections[1:]):
                weights[f"tail.{number}.0.weight"] = projection.weight.T
            weights["head.weight"] = torch.cat([self.input.tables[0].weight, self.classes])
        return {name: weight.to(self.output_dtype) for name, weight in weights.items()}


class Trainer:
    """Trains a new `TransformerLM`, an update at a time, with an optimizer and the clipping of PyTorch.

    The optimizer is "nag", Nesterov's method; or "muon", Muon for the matrices of the blocks and Adam for the rest.
    """

    def __init__(self, sizes, optimizer="nag", tied=False, compiled=False, bfloat16=False):
        model = TransformerLM(*sizes)
        self.model = (model.tie() if tied else model).to(common.torch_device())
        self.model.output_dtype = torch.bfloat16 if bfloat16 else torch.float32
        self.forward = torch.compile(self.model) if compiled else self.model
        self.weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizers = self.nag() if optimizer == "nag" else self.muon()
        self.bfloat16 = bfloat16

    def nag(self):
        return [torch.optim.SGD(self.weights, lr=1e-3, momentum=0.99, nesterov=True, fused=True)]

    def muon(self):
        body = [weight for weight in self.model.blocks.parameters() if weight.ndim == 2]
        rest = [weight for weight in self.weights if all(weight is not matrix for matrix in body)]
        muon = torch.optim.Muon(body, lr=1e-3, weight_decay=0, ns_steps=3)
        return [muon, torch.optim.Adam(rest, lr=1e-3, fused=True)]

    def count_params(self):
        return sum(weight.numel() for weight in self.weights)

    def update(self, tokens, targets):
        """Takes one step on ids (batch, length), and returns the mean loss before it."""
        weights = torch.ones(targets.shape, device=targets.device)
        with torch.autocast(targets.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss = self.forward(tokens, targets, weights) / targets.numel()
        self.model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()


def to_device(batch, device):
    inputs, targets, weights = (torch.from_numpy(np.ascontiguousarray(array)) for array in batch)
    return inputs.long().to(device), targets.long().to(device), weights.to(device)


def train(model, batches, device):
    """Trains for the budget of time or updates, and returns the cost and the loss of its last tenth."""
    optimizer = torch.optim.Adam(model.parameters(), lr=FLAGS.learning_rate, fused=True)
    model.train()
    losses, tokens, start, seconds = [], [], time.perf_counter(), 0.0
    while (done := len(losses) / FLAGS.updates if FLAGS.updates else seconds / (60 * FLAGS.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = FLAGS.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        batch = batches.batch(len(losses))
        count = float(batch[2].sum())
        total = model(*to_device(batch, device))
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
        losses.append(total.item())
        tokens.append(count)
        seconds = time.perf_counter() - start
        if len(losses) % 20 == 0:
            report(losses, tokens, seconds, optimizer.param_groups[0]["lr"])
    last = max(1, len(losses) // 10)
    return {
        "updates": len(losses),
        "tokens": int(sum(tokens)),
        "seconds": seconds,
        "tokens_per_second": sum(tokens) / seconds,
        "train_loss": sum(losses[-last:]) / sum(tokens[-last:]),
    }


def report(losses, tokens, seconds, rate):
    loss = sum(losses[-20:]) / sum(tokens[-20:])
    print(
        f"update {len(losses):6d}  loss {loss:.4f}  perplexity {math.exp(loss):9.2f}  rate {rate:.2e}"
        f"  {sum(tokens) / seconds:,.0f} tokens/s  {seconds:.0f} s",
        flush=True,
    )


@torch.no_grad()
def evaluate(model, batches, device):
    """Returns the loss of every token of a split in nats, (tokens,)."""
    model.eval()
    return torch.cat([model.nll(*to_device(batch, device)) for batch in batches]).cpu().numpy()


def main():
    from keras_adaptive.data import BlockBatches, load_corpus

    if FLAGS.threads:
        torch.set_num_threads(FLAGS.threads)
    torch.manual_seed(FLAGS.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    corpus = load_corpus(FLAGS.data_dir)
    shape = {"length": FLAGS.length, "batch_size": FLAGS.batch_size, "seed": FLAGS.seed}
    sizes = *(FLAGS[name].value for name in BODY), FLAGS.dropout, FLAGS.length
    model = TransformerLM(len(corpus.vocabulary), list(common.cutoffs()), *sizes).to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters:,} parameters, {len(corpus.vocabulary):,} words, {torch.get_num_threads()} threads")

    results = {"parameters": parameters, **train(model, BlockBatches(corpus.tokens("train"), **shape), device)}
    valid = BlockBatches(corpus.tokens("valid"), **shape, shuffle=False)
    nll = evaluate(model, map(valid.batch, range(len(valid))), device)
    results["valid_loss"], results["valid_tokens"] = float(nll.mean(dtype="float64")), len(nll)
    results["valid_perplexity"] = math.exp(results["valid_loss"])
    print(f"valid perplexity {results['valid_perplexity']:.2f} over {results['valid_tokens']:,} tokens")
    common.save(SETTINGS, {"threads": torch.get_num_threads()}, **results)


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "torch"  # of the corpus, before Keras is imported
    common.run(main, define_flags)
