"""Times the evaluation of a split in blocks of 512 tokens against the PyTorch program in peers/.

    python -m scripts.benchmarks.evaluation --backend=torch \
        --results=scripts/results/benchmarks/evaluation_torch.json

The model is the model of the README: tied words, 49,456 words, 4 blocks of 256/1,024 with 8 heads. The weights are
random and the same in both programs, and the tokens are drawn by Zipf's law. Both programs return the loss of every
token, in batches of 16 blocks: this package by `evaluation.word_losses`, which trainers.evaluate calls, and the peer in
a plain loop under `no_grad`, in a process of its own. The peer runs as any program, without PyTorch's fast path of
`nn.TransformerEncoderLayer`, which is the slower one on a CPU, and also with the memory options of this package's
programs. The losses are compared first.
"""

from types import SimpleNamespace

import numpy as np
from absl import flags

from scripts.benchmarks import common
from scripts.benchmarks.own_process import in_own_process
from scripts.benchmarks.step import measure, timed

FLAGS = flags.FLAGS
SETTINGS = ("backend", *common.MODEL_FLAGS, "block", "batch_size", "tokens")
TOLERANCE = 1e-4  # in nats
PEERS = {  # whether the peer takes PyTorch's fast path, and keeps freed memory
    "torch_lm": (True, False),
    "torch_lm, no fast path": (False, False),
    "torch_lm, no fast path, freed memory kept": (False, True),
}


def define_flags():
    common.define_flags(9, **common.BOOKS)
    flags.DEFINE_integer("block", 512, "Number of tokens in a block.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 16, "Number of blocks at a time.", lower_bound=1)
    flags.DEFINE_integer("tokens", 32_768, "Number of tokens in the split.", lower_bound=2)


def ours(model, tokens):
    """Returns a function that computes the losses of the tokens by `word_losses`."""
    from keras_adaptive.evaluation import word_losses

    corpus = SimpleNamespace(
        verify=lambda split: None,
        tokens=lambda split: tokens,
        words=lambda split: tokens,
        word_starts=lambda split: np.arange(len(tokens)),
    )
    return lambda: word_losses(model, corpus, "test", FLAGS.block, 0, FLAGS.batch_size)[0]


def peer(sizes, weights, tokens, batch_size, fast_path):
    """Returns a function that computes the losses of the tokens by the peer with these weights, and its parameters."""
    import torch

    from keras_adaptive.data import ContextWindows
    from scripts.benchmarks.peers import torch_lm

    torch.backends.mha.set_fastpath_enabled(fast_path)
    model = torch_lm.TransformerLM(*sizes)
    model.norm = torch.nn.Identity()  # the paper's decoder ends without a LayerNorm
    model.load_state_dict({**model.state_dict(), **{name: torch.tensor(array) for name, array in weights.items()}})
    windows = ContextWindows(tokens, sizes[-1], 0, batch_size=batch_size, by_lines=False)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return lambda: torch_lm.evaluate(model, windows, "cpu"), parameters


def weights_for_peer(model):
    """Returns the weights of a tied model under the names of the peer, whose words are not tied, as arrays."""
    import keras

    array = keras.ops.convert_to_numpy
    kernel = lambda layer: array(layer.kernel).T  # noqa: E731
    embedding, softmax = model.word_input, model.word_output
    weights = {"positions": array(model.body.positions(np.zeros((1, FLAGS.block, FLAGS.dim), "float32")))[0]}
    for band, (table, projection) in enumerate(zip(embedding.tables, embedding.projections, strict=True)):
        weights[f"input.tables.{band}.weight"] = array(table)
        weights[f"input.projections.{band}.weight"] = array(projection).T
        if band:
            weights[f"output.tail.{band - 1}.0.weight"] = array(projection)
            weights[f"output.tail.{band - 1}.1.weight"] = array(table)
    weights["output.head.weight"] = np.concatenate([array(softmax.tables[0]), array(softmax.class_table)])
    for number, block in enumerate(model.body.blocks):
        attention = block.attention
        layers = (attention.query, attention.key, attention.value)
        of_block = {
            "self_attn.in_proj_weight": np.concatenate([kernel(layer) for layer in layers]),
            "self_attn.in_proj_bias": np.concatenate([array(layer.bias) for layer in layers]),
        }
        linear = {"self_attn.out_proj": attention.out, "linear1": block.ffn_in, "linear2": block.ffn_out}
        for name, layer in linear.items():
            of_block |= {f"{name}.weight": kernel(layer), f"{name}.bias": array(layer.bias)}
        for name, norm in (("norm1", block.attention_norm), ("norm2", block.ffn_norm)):
            of_block |= {f"{name}.weight": array(norm.gamma), f"{name}.bias": array(norm.beta)}
        weights |= {f"blocks.{number}.{name}": value for name, value in of_block.items()}
    return weights


def main():
    model, tokens = common.build(), common.zipf(FLAGS.tokens)
    body = FLAGS.num_blocks, FLAGS.dim, FLAGS.ffn_dim, FLAGS.num_heads
    sizes = FLAGS.vocabulary_size, list(common.cutoffs()), *body, 0.0, FLAGS.block
    models = {"ours": (ours(model, tokens), model.count_params())}
    given = sizes, weights_for_peer(model), tokens, FLAGS.batch_size
    for name, (fast_path, keep) in PEERS.items():
        models[name] = in_own_process(peer, *given, fast_path, keep_freed_memory=keep)
    losses = {name: evaluate() for name, (evaluate, _) in models.items()}
    difference = max(np.abs(losses["ours"] - losses[name]).max() for name in PEERS)
    if not difference <= TOLERANCE:
        raise ArithmeticError(f"The losses of a token differ by up to {difference:.1e}; nothing was timed.")
    turns = {name: (timed(evaluate), parameters) for name, (evaluate, parameters) in models.items()}
    results, _ = measure(turns, dict.fromkeys(turns, FLAGS.tokens))
    common.save(SETTINGS, largest_difference=float(difference), candidates=results)


if __name__ == "__main__":
    common.run(main, define_flags)
