import os
from pathlib import Path
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_adaptive.data import Subwords, TextCodec
from keras_adaptive.data.codecs.words import recorded
from keras_adaptive.export.graph_text import GraphText
from keras_adaptive.files import write_json
from keras_adaptive.hub.backbone import AdaptiveBackbone
from keras_adaptive.hub.presets import from_safe_preset
from keras_adaptive.special_words import EOS, PAD, UNK

FILES = ("vocabulary.txt", "corpus.json", "merges.txt")


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AdaptiveTokenizer(keras_hub.tokenizers.Tokenizer):
    """KerasHub tokenizer that returns the ids on which a model of this package was trained.

    Python strings are tokenized in Python, and string tensors of a `tf.data` pipeline by TensorFlow's operations. Both
    return the ids of `TextCodec`. A line break becomes `</s>`, and a word outside the vocabulary `<unk>`.

    A preset holds the files of a run: `vocabulary.txt`, `corpus.json` and `merges.txt`, which is empty unless the
    tokens are sub-words.

    Args:
        codec: A `TextCodec`. Optional, because KerasHub creates the layer without it and then calls `load_assets`.
        **kwargs: As in `keras_hub.tokenizers.Tokenizer`.

    Call arguments:
        inputs: A string, or strings as a list, a NumPy array or a tensor (batch,).

    Returns:
        The ids of a string, int32 (tokens,), or a list for several strings. In a `tf.data` pipeline, a
        `tf.RaggedTensor`.

    Example:

    >>> tokenizer = AdaptiveTokenizer(TextCodec(Vocabulary.from_counts({"the": 9, "cat": 2})))
    >>> tokenizer(["the cat", "the dog"])
    [[4, 5], [4, 3]]
    >>> tokenizer.detokenize([[4, 5], [4, 3]])
    ['the cat', 'the <unk>']
    """

    backbone_cls = AdaptiveBackbone
    from_preset = from_safe_preset(keras_hub.tokenizers.Tokenizer, "tokenizer.json")

    def __init__(self, codec: TextCodec | None = None, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "int32", **kwargs})
        if os.path.basename(self.config_file) != self.config_file:
            raise ValueError(f"`config_file` must be the name of a file. Received: config_file={self.config_file!r}.")
        self.file_assets = list(FILES)
        self.codec = codec
        self._graph = None
        for name, token in (("start_token", "</s>"), ("end_token", "</s>"), ("pad_token", "<pad>")):
            self._add_special_token(token, name)
        self.start_token_id, self.end_token_id, self.pad_token_id = EOS, EOS, PAD  # the same in every vocabulary

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.tokenize(inputs)

    def tokenize(self, inputs: Any) -> Any:
        """Returns the ids of a string or of several, as a call of the layer does."""
        if self._use_tf_workflow():
            return self._graph_ids(inputs)
        lines = listed(inputs)
        if isinstance(lines, list):
            return [self._ids(line).tolist() for line in lines]
        return self._ids(lines)

    def detokenize(self, inputs: Any) -> Any:
        """Returns the text of a list of ids, or a list of texts for several lists."""
        if self._use_tf_workflow():
            return self._graph_lines(inputs)
        ids = listed(inputs)
        batched = len(ids) > 0 and isinstance(ids[0], list)
        texts = ["".join(self._codec.detokenize(self._codec.decode(row))) for row in (ids if batched else [ids])]
        texts = [text.removeprefix(self._before) for text in texts]
        return texts if batched else texts[0]

    def get_vocabulary(self) -> list[str]:
        """Returns the tokens in the order of their ids."""
        return list(self._codec.vocabulary.words)

    def vocabulary_size(self) -> int:
        """Returns the number of ids."""
        return len(self._codec.vocabulary)

    def id_to_token(self, id: int) -> str:
        """Returns the token of an id.

        Raises:
            ValueError: If the id is outside the vocabulary.
        """
        return self._codec.decode(np.array([id]))[0]

    def token_to_id(self, token: str) -> int:
        """Returns the id of a token.

        Raises:
            ValueError: If the token is not in the vocabulary.
        """
        if token not in self._codec.vocabulary:
            raise ValueError(f"`token` must be in the vocabulary. Received: token={token!r}.")
        return int(self._codec.encode([token])[0])

    def save_assets(self, folder: str | os.PathLike) -> None:
        """Writes the files of the tokenizer into a folder."""
        codec, folder = self._codec, Path(folder)
        subwords = codec.subwords or Subwords([])
        codec.vocabulary.save(folder / FILES[0])
        subwords.save(folder / FILES[2])
        facts = {
            **recorded(codec.tokenizer),
            "unit": codec.unit,
            "vocabulary": {"size": len(codec.vocabulary), "sha256": codec.vocabulary.sha256},
            "merges": {"number": len(subwords.merges), "sha256": subwords.sha256},
        }
        write_json(folder / FILES[1], facts)

    def load_assets(self, folder: str | os.PathLike) -> None:
        """Reads the files that `save_assets` wrote."""
        self.codec, self._graph = TextCodec.load(folder), None

    @property
    def _codec(self) -> TextCodec:
        if self.codec is None:
            raise ValueError("The tokenizer has no vocabulary yet: pass a `TextCodec`, or call `load_assets`.")
        return self.codec

    @property
    def _before(self) -> str:
        """The space before every word, including the first one of a text."""
        return "" if self._codec.unit.is_character else " "

    def _ids(self, line: str | bytes) -> np.ndarray:
        line = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        return self._codec.encode(self._codec.tokenize(line))

    @property
    def _graph_text(self) -> GraphText:
        """The tokenizer of `tf.data` pipelines, created once and outside of their graphs."""
        if self._graph is None:
            import tensorflow as tf

            codec = self._codec
            with tf.init_scope(), tf.device("cpu"):
                self._graph = GraphText(codec.vocabulary, codec.tokenizer, codec.subwords)
        return self._graph

    def _graph_ids(self, lines: Any) -> Any:
        import tensorflow as tf

        lines = tf.convert_to_tensor(lines)
        _, ids = self._graph_text.encode(tf.reshape(lines, [-1]))
        ids = ids.with_values(tf.where(ids.values < 0, UNK, ids.values))
        return ids if lines.shape.rank else ids[0]

    def _graph_lines(self, ids: Any) -> Any:
        import tensorflow as tf

        return tf.strings.regex_replace(self._graph_text.detokenize(ids), f"^{self._before}", "")


def listed(values: Any) -> Any:
    """Converts arrays, tensors and nested sequences to Python values."""
    if isinstance(values, (str, bytes)):
        return values
    if isinstance(values, (list, tuple)):
        return list(map(listed, values))
    if hasattr(values, "to_list"):  # a `tf.RaggedTensor`
        return values.to_list()
    return np.asarray(ops.convert_to_numpy(values) if ops.is_tensor(values) else values).tolist()
