"""The flags that describe an experiment, and the model, batches, optimizer and rates that they stand for."""

import keras
from absl import flags

from keras_adaptive.data import BlockBatches, SentenceBatches
from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, CharCNN, TransformerDecoder, WordEmbedding
from keras_adaptive.layers.inputs.char_cnn import FILTERS
from keras_adaptive.models import LanguageModel
from keras_adaptive.optimizers import NAG, CosineRestarts

FLAGS = flags.FLAGS


def define_flags():
    """The flags of an experiment: together with the corpus they decide every number of a run."""
    flags.DEFINE_string("data_dir", None, "Folder made by trainers.prepare.")

    flags.DEFINE_enum("input", "adaptive", list(INPUTS), "How words enter: in bands, in one table, or by their bytes.")
    flags.DEFINE_enum("output", "adaptive", ["adaptive", "softmax"], "How words leave: in bands, or all alike.")
    flags.DEFINE_integer("input_dim", 0, "Dimension of the (first band's) words that enter; 0 for --dim.", 0)
    flags.DEFINE_integer("output_dim", 0, "Dimension of the vectors given to the output; 0 for --dim.", 0)
    flags.DEFINE_integer("highways", 1, "Highway layers of --input=char_cnn.", lower_bound=0)
    flags.DEFINE_list("filters", [str(filters) for filters in FILTERS], "Of the widths 1, 2, … of --input=char_cnn.")
    flags.DEFINE_integer("dim", 256, "Dimension of the hidden vectors.", lower_bound=4)
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


def build_model(vocabulary):
    """The model of the flags for a `Vocabulary`, with random weights."""
    word_input = INPUTS[FLAGS.input](vocabulary, FLAGS.input_dim or FLAGS.dim)
    body = TransformerDecoder(
        FLAGS.num_blocks,
        FLAGS.dim,
        FLAGS.ffn_dim,
        FLAGS.num_heads,
        FLAGS.dropout,
        FLAGS.attention_dropout,
        FLAGS.relu_dropout,
        output_dim=FLAGS.output_dim or None,
        dtype=FLAGS.dtype,
        name="body",
    )
    word_output = AdaptiveSoftmax(
        len(vocabulary),
        cutoffs() if FLAGS.output == "adaptive" else (),
        FLAGS.factor,
        FLAGS.tail_dropout,
        FLAGS.input_dropout,
        tied_to=tied(word_input),
        tie_projections=FLAGS.tie_projections,
        dtype=FLAGS.dtype,
        name="word_output",
    )
    return LanguageModel(word_input, body, word_output)


def tied(word_input):
    """The layer whose words the output shares, or None.

    Raises:
        ValueError: when input and output have no words of one kind.
    """
    if not FLAGS.tie_words:
        return None
    pairs = {"adaptive": "adaptive", "word": "softmax"}
    if pairs.get(FLAGS.input) != FLAGS.output:
        raise ValueError(
            f"--tie_words needs --input=adaptive --output=adaptive or --input=word --output=softmax: pass "
            f"--notie_words. Received: --input={FLAGS.input} --output={FLAGS.output}."
        )
    return word_input


def cutoffs():
    return tuple(int(cutoff) for cutoff in FLAGS.cutoffs)


def adaptive_input(vocabulary, dim):
    return AdaptiveEmbedding(
        len(vocabulary), dim, cutoffs(), FLAGS.dim, FLAGS.factor, dtype=FLAGS.dtype, name="word_input"
    )


def word_input(vocabulary, dim):
    return WordEmbedding(len(vocabulary), dim, dtype=FLAGS.dtype, name="word_input")


def char_cnn_input(vocabulary, dim):
    filters = [int(filters) for filters in FLAGS.filters]
    return CharCNN(vocabulary.words, dim, FLAGS.highways, filters=filters, dtype=FLAGS.dtype, name="word_input")


INPUTS = {"adaptive": adaptive_input, "word": word_input, "char_cnn": char_cnn_input}


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
    return SentenceBatches(tokens, budget, FLAGS.seed, FLAGS.length, shuffle=shuffle)
