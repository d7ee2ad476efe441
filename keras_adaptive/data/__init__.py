"""Corpora, vocabularies, and batches of token ids that are a function of a seed."""

from keras_adaptive.data.batches.block_batches import BlockBatches as BlockBatches
from keras_adaptive.data.batches.context_windows import ContextWindows as ContextWindows
from keras_adaptive.data.batches.sentence_batches import SentenceBatches as SentenceBatches
from keras_adaptive.data.batches.stream_batches import StreamBatches as StreamBatches
from keras_adaptive.data.codecs.characters import detokenize_characters as detokenize_characters
from keras_adaptive.data.codecs.codec import TextCodec as TextCodec
from keras_adaptive.data.codecs.codec import load_subwords as load_subwords
from keras_adaptive.data.codecs.codec import load_vocabulary as load_vocabulary
from keras_adaptive.data.codecs.subwords import Subwords as Subwords
from keras_adaptive.data.codecs.subwords import begins_word as begins_word
from keras_adaptive.data.codecs.subwords import detokenize_subwords as detokenize_subwords
from keras_adaptive.data.codecs.units import UNITS as UNITS
from keras_adaptive.data.codecs.vocabulary import Vocabulary as Vocabulary
from keras_adaptive.data.codecs.words import TOKENIZERS as TOKENIZERS
from keras_adaptive.data.codecs.words import tokenize as tokenize
from keras_adaptive.data.corpus import Corpus as Corpus
from keras_adaptive.data.corpus import load_corpus as load_corpus
from keras_adaptive.data.cutoffs import best_cutoffs as best_cutoffs
from keras_adaptive.data.cutoffs import cost_of_cutoffs as cost_of_cutoffs
from keras_adaptive.data.metadata import SPLITS as SPLITS
from keras_adaptive.data.metadata import read_metadata as read_metadata
from keras_adaptive.data.passages import draw_passages as draw_passages
from keras_adaptive.data.preparation.prepare import prepare as prepare
from keras_adaptive.data.sharded_tokens import ShardedTokens as ShardedTokens
from keras_adaptive.data.sources.docstrings import write_docstrings as write_docstrings
from keras_adaptive.data.sources.own_text import split_text as split_text
from keras_adaptive.data.sources.public_corpora import PUBLIC_CORPORA as PUBLIC_CORPORA
from keras_adaptive.data.sources.public_corpora import prepare_public as prepare_public
from keras_adaptive.deprecation import old_names as _old_names
from keras_adaptive.special_words import BOS as BOS
from keras_adaptive.special_words import EOS as EOS
from keras_adaptive.special_words import PAD as PAD
from keras_adaptive.special_words import SPECIAL_WORDS as SPECIAL_WORDS
from keras_adaptive.special_words import UNK as UNK

_old_names(__name__)
