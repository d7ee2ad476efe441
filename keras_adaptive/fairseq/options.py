"""Translates the options of a checkpoint to a model, and refuses options that are not supported."""

import ast
import re
import reprlib
from functools import partial

from keras_adaptive.fairseq.harmless import HARMLESS
from keras_adaptive.fields import TEXT, Field, number, whole
from keras_adaptive.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    CausalAttention,
    CharCNN,
    LearnedPositions,
    PositionInfusedAttention,
    SinusoidalPositions,
    TransformerBlock,
    TransformerDecoder,
    WordEmbedding,
)
from keras_adaptive.models import assemble
from keras_adaptive.models.constructors import POSITIONS

DEFAULTS = {  # defaults of fairseq, for files that are older than an option
    "decoder_embed_dim": 512,
    "decoder_ffn_embed_dim": 2048,
    "decoder_layers": 6,
    "decoder_attention_heads": 8,
    "decoder_input_dim": None,  # the value of decoder_embed_dim
    "decoder_output_dim": None,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "relu_dropout": 0.0,  # the old name of activation_dropout
    "activation_fn": "relu",
    "decoder_normalize_before": True,
    "no_decoder_final_norm": False,
    "layernorm_embedding": False,
    "no_scale_embedding": False,
    "no_token_positional_embeddings": False,
    "decoder_learned_pos": False,
    "tokens_from_prev": None,  # of Shortformer's program alone, whose attention has a memory
    "max_target_positions": None,  # the value of tokens_per_sample
    "tokens_per_sample": 1024,
    "share_decoder_input_output_embed": False,
    "character_embeddings": False,
    "character_filters": "[(1, 64), (2, 128), (3, 192), (4, 256), (5, 256), (6, 256), (7, 256)]",
    "character_embedding_dim": 4,
    "char_embedder_highway_layers": 2,
    "adaptive_input": False,
    "adaptive_input_cutoff": None,
    "adaptive_input_factor": 4,
    "adaptive_softmax_cutoff": None,
    "adaptive_softmax_factor": 4,
    "adaptive_softmax_dropout": 0.0,
    "tie_adaptive_weights": False,
    "tie_adaptive_proj": False,
}
NUMBERS_OR_TEXT = {"adaptive_input_cutoff", "adaptive_softmax_cutoff", "character_filters"}
FACTORS = {"adaptive_input_factor", "adaptive_softmax_factor"}
LARGEST = 2**31 - 1
MOST_BYTES = 50  # longest word in bytes, and therefore the widest filter
# Options that are not supported, and the values that disable them.
UNSUPPORTED = {
    "decoder_layers_to_keep": None,
    "decoder_xformers_att_config": None,
    "quant_noise_pq": 0,
    "quant_noise_scalar": 0,
    "base_layers": 0,
    "scale_fc": False,
    "scale_attn": False,
    "scale_heads": False,
    "scale_resids": False,
    "self_target": False,
    "past_target": False,
    "output_dictionary_size": -1,
    "right_to_left": False,
    "truncate_sequence": False,
    "quantization_config_path": None,
    "model_parallel_size": 1,
}
# Options of the model that do not affect what it computes once it is trained.
HARMLESS_OF_MODEL = {
    "_name", "arch", "add_bos_token", "tpu", "decoder_layerdrop", "checkpoint_activations", "offload_activations",
    "min_params_to_wrap", "quant_noise_pq_block_size", "base_sublayers", "base_shuffle", "no_tie_adaptive_proj",
    "decoder_final_norm",
}  # fmt: skip
OF_MODEL = {*DEFAULTS, *UNSUPPORTED, *HARMLESS_OF_MODEL}
ALL = OF_MODEL | HARMLESS
SECTIONS = (  # "args" is a namespace of all options
    "_name args common common_eval distributed_training dataset optimization checkpoint bmuf ema generation eval_lm "
    "interactive simul_type task"
).split()
FREE = "criterion optimizer lr_scheduler bpe tokenizer scoring job_logging_cfg".split()  # any option here is harmless
KNOWN = {"model": OF_MODEL, **dict.fromkeys(SECTIONS, ALL), **dict.fromkeys(FREE)}  # None stands for any option
ARCHITECTURE = re.compile(r"transformer_lm(_big|(_baevski)?_(wiki103|gbw)|_gpt([23]_\w+)?)?")
OTHER_POSITIONS = ("decoder_learned_pos", "tokens_from_prev")  # options whose model has neither of POSITIONS
MOST_LISTED = 8
ACTIVATIONS = {
    "relu": "relu",
    "relu_squared": "relu_squared",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "tanh": "tanh",
    "linear": "linear",
}


def resolve(checkpoint, positions=None):
    """Returns the options of a `Checkpoint` with their defaults. A ValueError names all that are not supported.

    `positions` is "alibi" for a model of the authors' program, "sinusoidal" for another one, and `None` to take what
    the file says.
    """
    checkpoint = _check_positions(checkpoint, positions)
    given = checkpoint.options
    options = DEFAULTS | {name: value for name, value in given.items() if value is not None} | {"positions": positions}
    _check_types(options)
    _refuse(checkpoint, options)
    if "no_tie_adaptive_proj" in given:  # only files older than the final LayerNorm have this option
        options["no_decoder_final_norm"] = True
        options["tie_adaptive_proj"] |= given["no_tie_adaptive_proj"] is False
    if "decoder_final_norm" in given:
        options["no_decoder_final_norm"] = not given["decoder_final_norm"]
    if checkpoint.version < 3 and "decoder.layer_norm.weight" not in checkpoint.weights:
        options["no_decoder_final_norm"] = True
    for name in ("decoder_input_dim", "decoder_output_dim"):
        options[name] = options[name] or options["decoder_embed_dim"]
    options["max_target_positions"] = options["max_target_positions"] or options["tokens_per_sample"]
    return options


def _check_positions(checkpoint, positions):
    """Returns the checkpoint without the mark of ALiBi's program, after checking that `positions` fits the file.

    Nothing in the files of that program says that attention has linear biases. Its section of the model alone has an
    option max_tokens.
    """
    if positions not in (None, *POSITIONS):
        raise ValueError(f"`positions` must be one of {', '.join(POSITIONS)}. Received: positions={positions!r}.")
    own = [f"{name}={_short(value)}" for name in OTHER_POSITIONS if (value := checkpoint.options.get(name))]
    if positions and own:
        raise ValueError(
            f"The checkpoint has other positions, by its option {own[0]}: leave out positions (--positions). "
            f"Received: positions={positions!r}."
        )
    sections = [(name, dict(given)) for name, given in checkpoint.sections or []]
    for marked in (given for name, given in sections if name == "model" and "max_tokens" in given):
        if positions is None:
            raise ValueError(
                "The options of the model have max_tokens, as those of ALiBi's program do, whose files do not say that "
                "they have linear biases: pass positions='alibi' (--positions=alibi), or 'sinusoidal' if the model has "
                f"sinusoids. Received: max_tokens={_short(marked['max_tokens'])}."
            )
        del marked["max_tokens"]
    return checkpoint._replace(sections=sections or None)


def _check_types(options):
    """Raises a ValueError if an option is not of the type that fairseq writes."""
    for name, default in DEFAULTS.items():
        field = _field(name, default)
        if options[name] is not None and not field.holds(options[name]):
            received = _short(options[name])
            raise ValueError(f"The option {name} of the checkpoint must be {field.expected}. Received: {received}.")


def _field(name, default):
    """Returns the `Field` of an option."""
    if name in NUMBERS_OR_TEXT:
        return Field("numbers, or a string of them", lambda value: isinstance(value, (int, str, list, tuple)))
    if isinstance(default, str):
        return TEXT
    if isinstance(default, bool):
        return Field("true or false", lambda value: isinstance(value, (bool, int)))
    if name in FACTORS:
        return number(1, LARGEST)
    if isinstance(default, float):
        return number(0, 1)
    return whole(int(name != "char_embedder_highway_layers"), LARGEST)


def _refuse(checkpoint, options):
    refused = dict(_foreign(checkpoint))
    if not ARCHITECTURE.fullmatch(str(checkpoint.architecture)):
        refused["arch"] = checkpoint.architecture
    if options["tokens_from_prev"]:
        refused |= {name: True for name in ("decoder_learned_pos", "no_token_positional_embeddings") if options[name]}
    if options["activation_fn"] not in ACTIVATIONS:
        refused["activation_fn"] = options["activation_fn"]
    if options["character_embeddings"] and _filters(options) is None:
        refused["character_filters"] = options["character_filters"]
    if refused:
        listed = [f"{name[:80]}={_short(value)}" for name, value in refused.items()]
        more = f" and {len(listed) - MOST_LISTED} more" if listed[MOST_LISTED:] else ""
        raise ValueError(
            f"The model was trained with options that are not supported: {', '.join(listed[:MOST_LISTED])}{more}. Each "
            "may change what the model computes: remove it from the file only if you know that it does not."
        )


def _foreign(checkpoint):
    """Yields the names and values of options that are used and either not supported or not known.

    An option that is not known counts as unused if its value is false, empty or 0.
    """
    for section, given in checkpoint.sections or [("args", checkpoint.options)]:
        known = KNOWN.get(section, set())
        for name, value in given.items() if known is not None else ():
            if value and (name not in known or name in UNSUPPORTED and value != UNSUPPORTED[name]):
                yield name, value


def _short(value):
    """Returns a value as a short text."""
    return (value if isinstance(value, str) else reprlib.repr(value))[:80]


def build_model(options, vocabulary):
    """Builds the `LanguageModel` that resolved options describe, with random weights."""
    make_input, make_output = _word_input(options, vocabulary), _word_output(options, len(vocabulary))
    return assemble(make_input, partial(_body, options), make_output, tied=_tied(options))


def _body(options, **kwargs):
    normalize_first = options["decoder_normalize_before"]
    blocks = [
        TransformerBlock(
            options["decoder_ffn_embed_dim"],
            _attention(options),
            dropout=options["dropout"],
            activation_dropout=options["activation_dropout"] or options["relu_dropout"],
            activation=ACTIVATIONS[options["activation_fn"]],
            normalize_first=normalize_first,
            name=f"block_{number}",
        )
        for number in range(options["decoder_layers"])
    ]
    return TransformerDecoder(
        blocks,
        options["decoder_embed_dim"],
        positions=_positions(options),
        dropout=options["dropout"],
        output_dim=options["decoder_output_dim"],
        scale_input=not options["no_scale_embedding"],
        input_norm=options["layernorm_embedding"],
        final_norm=normalize_first and not options["no_decoder_final_norm"],
        **kwargs,
    )


def _attention(options):
    heads, shared = options["decoder_attention_heads"], {"dropout": options["attention_dropout"], "name": "attention"}
    if memory := options["tokens_from_prev"]:
        return PositionInfusedAttention(heads, memory, options["tokens_per_sample"], **shared)
    return CausalAttention(heads, alibi=options["positions"] == "alibi", **shared)


def _positions(options):
    in_attention = options["positions"] == "alibi" or options["tokens_from_prev"]
    if options["no_token_positional_embeddings"] or in_attention:
        return None
    if options["decoder_learned_pos"]:
        return LearnedPositions(options["max_target_positions"], name="positions")
    return SinusoidalPositions(name="positions")


def _word_input(options, vocabulary):
    size, dim, input_dim = len(vocabulary), options["decoder_embed_dim"], options["decoder_input_dim"]
    if options["character_embeddings"]:
        return partial(
            CharCNN,
            vocabulary.words,
            dim,
            highways=options["char_embedder_highway_layers"],
            char_dim=options["character_embedding_dim"],
            filters=_filters(options),
            zero_padding=False,
        )
    if options["adaptive_input"]:
        return partial(
            AdaptiveEmbedding,
            size,
            embedding_dim=input_dim,
            cutoffs=cutoffs(options["adaptive_input_cutoff"], size),
            output_dim=dim,
            factor=options["adaptive_input_factor"],
        )
    return partial(WordEmbedding, size, input_dim)


def _word_output(options, size):
    if options["adaptive_softmax_cutoff"] is None:
        return partial(AdaptiveSoftmax, size, cutoffs=())
    bands = cutoffs(options["adaptive_softmax_cutoff"], size)
    if not bands:
        cutoff = options["adaptive_softmax_cutoff"]
        raise ValueError(f"An adaptive softmax without tails is not supported: adaptive_softmax_cutoff={cutoff}.")
    return partial(
        AdaptiveSoftmax,
        size,
        cutoffs=bands,
        factor=options["adaptive_softmax_factor"],
        tail_dropout=options["adaptive_softmax_dropout"],
        input_dropout=options["adaptive_softmax_dropout"],
        tie_projections=options["tie_adaptive_proj"],
    )


def _tied(options):
    """Returns whether input and output share the word vectors. Without bands, only a plain word table can be shared."""
    if options["adaptive_softmax_cutoff"] is not None:
        return options["tie_adaptive_weights"]
    one_table = not options["character_embeddings"] and not options["adaptive_input"]
    return options["share_decoder_input_output_embed"] and one_table


def cutoffs(text, size=None):
    """Returns the first id of each band except the first: (100, 300) for "100,300". A cutoff of `size` is dropped."""
    value = _literal(text)
    values = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    if not all(type(cutoff) is int and 0 <= cutoff <= LARGEST for cutoff in values):
        raise _not_numbers(text)
    return tuple(cutoff for cutoff in values if cutoff != size)


def _filters(options):
    """Returns the number of filters of each width 1, 2, … (0 for none), or None if the widths do not increase."""
    text = options["character_filters"]
    try:
        pairs = [(width, number) for width, number in _literal(text)]
    except (TypeError, ValueError):
        raise _not_numbers(text) from None
    if not all(type(number) is int and 0 <= number <= LARGEST for pair in pairs for number in pair):
        raise _not_numbers(text)
    widths = [width for width, _ in pairs]
    if not widths or widths[-1] > MOST_BYTES or any(low >= high for low, high in zip([0, *widths], widths)):
        return None
    numbers = dict(pairs)
    return tuple(numbers.get(width, 0) for width in range(1, widths[-1] + 1))


def _literal(value):
    """Returns the value of a Python literal without running code. Values of other types are returned unchanged."""
    try:
        return ast.literal_eval(value) if isinstance(value, str) else value
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _not_numbers(value) from None


def _not_numbers(value):
    return ValueError(f"The options contain {reprlib.repr(value)} in place of numbers, such as 20000,60000.")
