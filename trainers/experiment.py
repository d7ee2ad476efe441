"""The flags that describe an experiment, and the model, batches, optimizer and rates that they stand for."""

import keras
from absl import flags

from keras_adaptive.data import BlockBatches, SentenceBatches
from keras_adaptive.models import transformer_lm
from keras_adaptive.optimizers import NAG, CosineRestarts

FLAGS = flags.FLAGS


def define_flags():
    """The flags of an experiment: together with the corpus they decide every number of a run."""
    flags.DEFINE_string("data_dir", None, "Folder made by scripts/prepare_corpus.py.")

    flags.DEFINE_integer("dim", 256, "Dimension of the hidden vectors and of the first band's words.", lower_bound=4)
    flags.DEFINE_integer("num_blocks", 4, "Transformer blocks.", lower_bound=1)
    flags.DEFINE_integer("num_heads", 8, "Attention heads.", lower_bound=1)
    flags.DEFINE_integer("ffn_dim", 1024, "Width of the feed-forward layers.", lower_bound=1)
    flags.DEFINE_list("cutoffs", ["4000", "16000"], "First id of every band but the first; empty for one band.")
    flags.DEFINE_integer("factor", 4, "How many times smaller each band's dimension is.", lower_bound=1)
    flags.DEFINE_bool("tie_words", True, "Input and output share the word vectors.")
    flags.DEFINE_bool("tie_projections", True, "Input and output share the tails' projections, with tied words.")
    flags.DEFINE_float("dropout", 0.1, "Rate on the input and on both branches of every block.", 0, 1)
    flags.DEFINE_float("attention_dropout", 0.0, "Rate on the attention probabilities.", 0, 1)
    flags.DEFINE_float("relu_dropout", 0.0, "Rate behind the ReLU.", 0, 1)
    flags.DEFINE_float("tail_dropout", 0.0, "Rate on the projected hidden vectors of the tails.", 0, 1)
    flags.DEFINE_float("input_dropout", 0.0, "Rate on the hidden vectors before the output layer.", 0, 1)
    flags.DEFINE_string("dtype", "float32", "Keras dtype policy: float32, mixed_bfloat16 or mixed_float16.")

    flags.DEFINE_enum("batching", "blocks", ["blocks", "sentences"], "Cut the stream, or keep single lines.")
    flags.DEFINE_integer("length", 128, "Tokens of a block, or at most of a sentence.", lower_bound=1)
    flags.DEFINE_integer("batch_size", 32, "Blocks of an update; for sentences, its tokens divided by --length.", 1)
    flags.DEFINE_integer("micro_batches", 1, "Parts that an update is worked off in, to save memory.", lower_bound=1)

    flags.DEFINE_enum("optimizer", "nag", ["nag", "adam"], "Nesterov's accelerated gradient, or Adam.")
    flags.DEFINE_float("momentum", 0.99, "Momentum of nag.", 0, 1)
    flags.DEFINE_float("clip_norm", 0.1, "Bound on the global norm of an update's gradient; 0 for none.", 0)
    flags.DEFINE_float("max_rate", 1.0, "Learning rate behind the warm-up.")
    flags.DEFINE_float("min_rate", 1e-5, "Learning rate at the end of the first cycle.")
    flags.DEFINE_integer("warmup", 0, "Updates of linear warm-up.", lower_bound=0)
    flags.DEFINE_float("warmup_rate", 1e-7, "Learning rate of the first update of the warm-up.")
    flags.DEFINE_integer("period", 0, "Updates of the first cosine cycle; 0 for all that follow the warm-up.", 0)
    flags.DEFINE_float("period_mult", 1.0, "How many times longer each cycle is than the one before.")
    flags.DEFINE_float("shrink", 1.0, "Factor on the rates from one cycle to the next.")
    flags.DEFINE_integer("updates", 1000, "Updates to train.", lower_bound=1)
    flags.DEFINE_integer("evaluate_every", 100, "Updates between two validations, which also save the model.", 1)
    flags.DEFINE_integer("seed", 1, "Of the starting weights, the order of the data and dropout.", lower_bound=0)


def build_model(vocabulary_size):
    """The model of the flags, with random weights."""
    return transformer_lm(
        vocabulary_size,
        dim=FLAGS.dim,
        num_blocks=FLAGS.num_blocks,
        num_heads=FLAGS.num_heads,
        ffn_dim=FLAGS.ffn_dim,
        cutoffs=tuple(int(cutoff) for cutoff in FLAGS.cutoffs),
        factor=FLAGS.factor,
        tie_words=FLAGS.tie_words,
        tie_projections=FLAGS.tie_projections,
        dropout=FLAGS.dropout,
        attention_dropout=FLAGS.attention_dropout,
        relu_dropout=FLAGS.relu_dropout,
        tail_dropout=FLAGS.tail_dropout,
        input_dropout=FLAGS.input_dropout,
        dtype=FLAGS.dtype,
    )


def build_schedule():
    """The learning rate as a function of the updates done."""
    period = FLAGS.period or max(FLAGS.updates - FLAGS.warmup, 1)
    return CosineRestarts(
        FLAGS.max_rate,
        period,
        FLAGS.min_rate,
        FLAGS.warmup,
        FLAGS.warmup_rate,
        FLAGS.period_mult,
        FLAGS.shrink,
    )


def build_optimizer():
    """The optimizer; its rate is set before every update."""
    clip = {"global_clipnorm": FLAGS.clip_norm or None}
    if FLAGS.optimizer == "adam":
        return keras.optimizers.Adam(FLAGS.max_rate, **clip)
    return NAG(FLAGS.max_rate, momentum=FLAGS.momentum, **clip)


def build_batches(tokens, shuffle=True):
    """Batches of a split as the flags describe them, for training or, unshuffled, for validation."""
    if FLAGS.batching == "blocks":
        return BlockBatches(tokens, FLAGS.length, FLAGS.batch_size, FLAGS.seed, shuffle)
    budget = FLAGS.batch_size * FLAGS.length
    return SentenceBatches(tokens, budget, FLAGS.seed, FLAGS.length, FLAGS.micro_batches, shuffle)
