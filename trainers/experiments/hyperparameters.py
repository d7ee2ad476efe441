"""Hyper-parameters of the parts of an experiment, and general settings of experiments.

`HYPERPARAMETERS` gives each name a single type, default and meaning for all parts that use it.
"""

from typing import NamedTuple

from keras_adaptive.layers.inputs.char_cnn import FILTERS
from keras_adaptive.models.constructors import POSITIONS


class Flag(NamedTuple):
    """Description of a flag that has the same meaning for all parts that use it.

    Args:
        type: `bool`, `int`, `float`, `str`, or `list` for comma-separated integers.
        default: Value if the flag is not given; None for the default of the argument that it sets.
        help: Meaning, which `--help` prints.
        bounds: Smallest and largest value, where None means no bound; for a `str`, the allowed values, if limited; for
            a `list`, words that are allowed instead of integers.
    """

    type: type
    default: object
    help: str
    bounds: tuple = (None, None)


DIM, NUMBER = 2**16, 2**31 - 1  # upper bounds, so that a typing error is reported before memory is allocated
RATE = (0.0, 1.0)
LEARNING_RATE = (0.0, 100.0)
DROPOUT = (0.0, 0.99)  # a rate of 1 would drop everything
PENALTY = (0.0, 1000.0)  # published models use 1 or 2
HYPERPARAMETERS = {
    "embedding_dim": Flag(int, 0, "Dimension of the input word vectors (in the first band); 0 for --dim.", (0, DIM)),
    "dim": Flag(int, 256, "Dimension of the hidden states.", (4, DIM)),
    "cutoffs": Flag(
        list,
        [4000, 16000],
        "First id of every band (cluster of words) except the first; empty for a single band; auto, also where they do "
        "not fit into the vocabulary, for the fewest products with a first band of at least 85 % of the text.",
        ("auto",),
    ),
    "factor": Flag(
        int, 4, "Factor by which dimensions shrink from band to band; 0 for none (not --input=adaptive).", (0, DIM)
    ),
    "highways": Flag(int, 1, "Number of highway layers.", (0, 100)),
    "filters": Flag(list, list(FILTERS), "Number of convolution filters of each width 1, 2, …"),
    "char_dim": Flag(int, 128, "Dimension of the byte embeddings.", (1, DIM)),
    "word_markers": Flag(bool, False, "Whether convolutions see a marker before and after each word."),
    "correction_dim": Flag(int, 0, "Dimension of learned word corrections; 0 for none.", (0, DIM)),
    "max_bytes": Flag(int, 50, "Largest number of bytes in a word.", (1, DIM)),
    "output_units": Flag(int, 1024, "Number of units of the LSTM that spells words.", (1, DIM)),
    "num_blocks": Flag(int, 4, "Number of Transformer blocks, or of layers of an NPLM.", (1, 1000)),
    "num_heads": Flag(int, 8, "Number of attention heads.", (1, DIM)),
    "positions": Flag(
        str,
        "sinusoidal",
        "Positions: sinusoids that are added to the input, or linear biases of attention (ALiBi), with which a model "
        "reads texts longer than --length.",
        POSITIONS,
    ),
    "ffn_dim": Flag(int, 1024, "Width of the feed-forward layers.", (1, 2**20)),
    "attention_window": Flag(int, 0, "Number of tokens that the first block attends to; 0 for no limit.", (0, 2**20)),
    "num_local": Flag(
        int, 0, "Number of last tokens that the first layer concatenates; 0 for none. An NPLM needs one.", (0, 1000)
    ),
    "num_global": Flag(int, 0, "Number of averages of earlier tokens that it also concatenates.", (0, 1000)),
    "global_window": Flag(int, 0, "Number of tokens in each average; 0 without averages.", (0, 2**20)),
    "aggregate": Flag(
        str, "kernel", "Averages: learned kernels over one window, or means of several windows.", ("kernel", "average")
    ),
    "concatenation_dim": Flag(int, 0, "Width of a hidden layer after the concatenation; 0 for none.", (0, DIM)),
    "keep_attention": Flag(bool, True, "Whether the first block keeps its attention next to a concatenation."),
    "memory_length": Flag(int, 70, "Number of tokens before a segment that its tokens see.", (1, 2**20)),
    "same_length": Flag(
        bool, True, "Whether a token of a Transformer-XL sees --memory_length tokens, with itself, and not its segment."
    ),
    "share_biases": Flag(bool, True, "Whether the blocks of a Transformer-XL share the biases of their scores."),
    "num_layers": Flag(int, 3, "Number of recurrent layers.", (1, 1000)),
    "units": Flag(
        int, 512, "Number of units of each recurrent layer; without a projection, the last has --dim units.", (1, DIM)
    ),
    "projection_dim": Flag(
        int, 0, "Dimension to which LSTM layers project their output, the last one to --dim; 0 for none.", (0, DIM)
    ),
    "window": Flag(int, 1, "Number of tokens that the first QRNN layer sees at a time, 1 or 2.", (1, 2)),
    "output_dim": Flag(int, 0, "Dimension of the hidden states that the output gets; 0 for --dim.", (0, DIM)),
    "dropout": Flag(float, 0.1, "Dropout rate of the input of the body and of both branches of a block.", DROPOUT),
    "attention_dropout": Flag(float, 0.0, "Dropout rate of the attention probabilities.", DROPOUT),
    "activation_dropout": Flag(float, 0.0, "Dropout rate after the ReLU.", DROPOUT),
    "embedding_dropout": Flag(float, 0.0, "Probability that a word is dropped from the input of an update.", DROPOUT),
    "vector_dropout": Flag(float, 0.0, "Dropout rate of the word vectors before the first recurrent layer.", DROPOUT),
    "hidden_dropout": Flag(float, 0.0, "Dropout rate between recurrent layers.", DROPOUT),
    "output_dropout": Flag(float, 0.0, "Dropout rate of the hidden states after the last recurrent layer.", DROPOUT),
    "variational_dropout": Flag(bool, True, "Whether recurrent bodies drop the same units for all tokens of a row."),
    "weight_dropout": Flag(float, 0.0, "Dropout rate of recurrent weights (LSTM) or input weights (QRNN).", DROPOUT),
    "zoneout": Flag(float, 0.0, "Probability that a unit of a QRNN keeps its old value in a time step.", DROPOUT),
    "activation_penalty": Flag(float, 0.0, "Factor of the mean square of the hidden states (AR).", PENALTY),
    "temporal_penalty": Flag(float, 0.0, "Factor of the mean squared change of the hidden states (TAR).", PENALTY),
    "tail_dropout": Flag(float, 0.0, "Dropout rate of the projected hidden states of tails.", DROPOUT),
    "input_dropout": Flag(float, 0.0, "Dropout rate of the hidden states before the output.", DROPOUT),
    "tie_projections": Flag(bool, True, "Whether projections are shared; needs --tie_words and --input=adaptive."),
    "project_head": Flag(
        bool, False, "Whether the head of a tied adaptive softmax has a projection too, of its own (Transformer-XL)."
    ),
    "use_bias": Flag(bool, None, "Whether words and tails of the output have biases; by default if it is sampled."),
    "num_samples": Flag(int, 8192, "Number of noise words per update.", (1, 2**24)),
    "sampled_loss": Flag(
        str,
        "importance_sampling",
        "Sampled loss: a softmax over the target and the noise words, or noise-contrastive estimation.",
        ("importance_sampling", "nce"),
    ),
    "noise": Flag(
        str, "log_uniform", "Noise words: log-uniform over ranks, or by counts in the text.", ("log_uniform", "unigram")
    ),
    "length": Flag(int, 128, "Number of tokens in a block, or in the longest sentence.", (1, 2**20)),
    "lengths": Flag(
        str,
        "",
        "Stages (staged training), such as 64:10000,256: blocks of 64 tokens for 10,000 updates, then of 256, which is "
        "--length. Updates of shorter blocks have more of them, for at most the same number of tokens.",
    ),
    "bptt": Flag(
        int, 70, "Mean number of tokens in an update of a stream, which truncates gradients; of a segment.", (5, 2**20)
    ),
    "vary_bptt": Flag(bool, True, "Whether the number of tokens varies around --bptt between updates, as in AWD-LSTM."),
    "reset_rate": Flag(float, 0.0, "Probability that a stream continues from the initial state in an update.", DROPOUT),
    "batch_size": Flag(
        int, 32, "Number of blocks or streams in an update; with sentences, --length times as many tokens.", (1, 2**20)
    ),
    "max_rate": Flag(float, 1.0, "Learning rate after the warm-up.", LEARNING_RATE),
    "momentum": Flag(float, 0.99, "Momentum.", RATE),
    "clip_norm": Flag(float, 0.1, "Largest global norm of the gradients of --clip_parts; 0 for any.", (0.0, 1e30)),
    "weight_decay": Flag(float, 0.0, "Factor of the L2 penalty, which is added to the gradients after clipping.", RATE),
    "initial_accumulator": Flag(float, 0.1, "Initial value of Adagrad's sums of squared gradients.", (0.0, 1e6)),
    "average_after": Flag(int, 5, "Number of validations without improvement before averaging starts.", (1, NUMBER)),
    "decay_at": Flag(list, [], "Numbers of updates after which the learning rate is divided; empty for never."),
    "decay_factor": Flag(float, 10.0, "Divisor of the learning rate at each number in --decay_at.", (1.0, 1e6)),
    "min_rate": Flag(float, 1e-5, "Learning rate at the end of the first cycle.", LEARNING_RATE),
    "warmup": Flag(int, 0, "Number of updates in the linear warm-up.", (0, NUMBER)),
    "warmup_rate": Flag(float, 1e-7, "Learning rate of the first update of the warm-up.", LEARNING_RATE),
    "period": Flag(int, 0, "Number of updates in the first cosine cycle; 0 for all after the warm-up.", (0, NUMBER)),
    "period_mult": Flag(float, 1.0, "Factor on the length of a cycle, relative to the previous one.", (1.0, 1e6)),
    "shrink": Flag(float, 1.0, "Factor on the learning rates of a cycle, relative to the previous one.", RATE),
}
RENAMED = {"input_dim": "embedding_dim", "relu_dropout": "activation_dropout"}  # former names, which are still read
GENERAL = {  # settings of the experiment itself
    "data_dir": Flag(str, None, "Folder of the corpus, which trainers.prepare makes."),
    "vocabulary_size": Flag(
        int, 0, "Required number of ids of the corpus; 0 for any. With it, --summary needs no corpus.", (0, 10**7)
    ),
    "tie_words": Flag(bool, True, "Whether input and output share word vectors. Parts that cannot: --notie_words."),
    "dtype": Flag(str, "float32", "Keras dtype policy: float32, mixed_bfloat16 or mixed_float16."),
    "micro_batches": Flag(
        int, 1, "Number of parts in which an update is computed to save memory (gradient accumulation).", (1, 2**20)
    ),
    "clip_parts": Flag(
        str, "", "Parts whose gradients --clip_norm limits: input, body, output, separated by commas; empty for all."
    ),
    "updates": Flag(
        int, 1000, "Number of updates. A larger one continues a finished run with the same rates so far.", (1, NUMBER)
    ),
    "evaluate_every": Flag(int, 100, "Number of updates between validations, which save the model.", (1, NUMBER)),
    "seed": Flag(int, 1, "Seed of the initial weights, the order of the data, and dropout.", (0, 2**32 - 1)),
    "init_from": Flag(
        str,
        None,
        "Folder of a trained run with layers of the same sizes. Training starts from its best weights. Its vocabulary "
        "may differ; another --output starts from random weights.",
    ),
    "freeze": Flag(
        str, "", "Parts of --init_from that are not trained: input, body, output, or several separated by commas."
    ),
}
