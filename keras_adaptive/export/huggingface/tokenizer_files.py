r"""The tokenizer of a run in the format of the package `tokenizers`, which gives the ids of `TextCodec`.

One difference remains: the four special words are special words anywhere in a text, also within a word.
"""

from keras_adaptive.data import TextCodec
from keras_adaptive.data.codecs.words import word_pattern
from keras_adaptive.export.graph_words import explicit
from keras_adaptive.special_words import EOS, SPECIAL_WORDS, UNK

EACH = r"[\s\S]"  # any character


def tokenizer_json(codec: TextCodec) -> dict:
    """Returns the contents of `tokenizer.json`: a fast tokenizer, which begins every text with `</s>`.

    A line break is `</s>`, as in the training text. Words outside the vocabulary are `<unk>`.
    """
    ids = {word: int(id) for word, id in zip(codec.vocabulary.words, codec.vocabulary.encode(codec.vocabulary.words))}
    steps, decoder = _steps(codec)
    if codec.tokenizer == "ptb_characters":  # which writes a space as an underscore
        ids = {"_" if word == " " else word: id for word, id in ids.items()}
    if codec.subwords is None:
        model = {"type": "WordLevel", "vocab": ids, "unk_token": SPECIAL_WORDS[UNK]}
    else:
        model = {"type": "BPE", "vocab": ids, "merges": [list(merge) for merge in codec.subwords.merges]}
    eos = {"SpecialToken": {"id": SPECIAL_WORDS[EOS], "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    names = {"special_tokens": {SPECIAL_WORDS[EOS]: {"id": SPECIAL_WORDS[EOS], "ids": [EOS], "tokens": ["</s>"]}}}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": word, **flags} for id, word in enumerate(SPECIAL_WORDS)],
        "normalizer": _sequence("normalizers", _replace(r"\r+(?=\n|\z)", ""), _replace(r"\n", SPECIAL_WORDS[EOS])),
        "pre_tokenizer": _sequence("pretokenizers", *steps),
        "post_processor": {"type": "TemplateProcessing", "single": [eos, text], "pair": [eos, text, text], **names},
        "decoder": decoder,
        "model": model,
    }


def tokenizer_config(max_length: int | None) -> dict:
    """Returns the contents of `tokenizer_config.json`."""
    bos, pad, eos, unk = SPECIAL_WORDS
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": eos,  # the word that a text follows; `<s>` occurs in no training text
        "eos_token": eos,
        "pad_token": pad,
        "unk_token": unk,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "left",
        **({} if max_length is None else {"model_max_length": max_length}),
    }


def _steps(codec):
    """Returns the pre-tokenizers of a codec and its decoder."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    if codec.tokenizer == "bytes":
        return [byte_level, _split(EACH, "Isolated")], byte_level
    if codec.tokenizer == "characters":
        return [_split(EACH, "Isolated")], {"type": "Fuse"}
    if codec.tokenizer == "words":
        words = _split(explicit(word_pattern()), "Removed", invert=True)
    else:
        words = _split(explicit(r"[\s]+"), "Removed")
    if codec.subwords is None:
        return [words], {"type": "Fuse"} if codec.tokenizer == "ptb_characters" else None
    return [words, {**byte_level, "add_prefix_space": True, "use_regex": True}], byte_level


def _replace(regex, content):
    return {"type": "Replace", "pattern": {"Regex": regex}, "content": content}


def _split(regex, behavior, invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def _sequence(name, *steps):
    return {"type": "Sequence", name: list(steps)}
