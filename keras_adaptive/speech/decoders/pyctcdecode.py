import bisect
from typing import Any

from keras_adaptive.speech.decoders.hypotheses import Hypotheses
from keras_adaptive.text import TextModel

ALL_WORDS = 1 << 30  # "order" of a model that sees all earlier words
EXPECTED_LETTERS = 6  # a longer beginning of an unknown word costs more


def pyctcdecode_lm(
    text: TextModel,
    *,
    alpha: float = 0.5,
    beta: float = 1.5,
    unk_score_offset: float = -10.0,
    score_boundary: bool = True,
    oov: str = "<unk>",
    kept: int = 256,
) -> Any:
    """Returns a language model for `BeamSearchDecoderCTC` of pyctcdecode, an `AbstractLanguageModel`.

    A word adds `alpha` · log p + `beta` to the score of a beam, with log p in nats, as a word of an n-gram does. The
    defaults are pyctcdecode's. Beams are kept apart as long as any earlier word differs.

    Args:
        text: The `TextModel`.
        alpha: Weight of the log-probabilities.
        beta: Score of every word.
        unk_score_offset: Added to log p of a word outside the vocabulary, and to the score of its beginning.
        score_boundary: Whether the last word adds log p of the end of the text.
        oov: Word of the vocabulary that tokens outside of it are read and scored as.
        kept: Number of hypotheses whose state is kept, at least the width of the beam.

    Raises:
        ModuleNotFoundError: If pyctcdecode is not installed.
        ValueError: If `oov` is not in the vocabulary.

    Example:

    ```py
    lm = pyctcdecode_lm(keras_adaptive.load("runs/books"))
    decoder = BeamSearchDecoderCTC(Alphabet.build_alphabet(labels), language_model=lm)
    ```
    """
    from pyctcdecode.language_model import AbstractLanguageModel

    hypotheses = Hypotheses(text, oov=oov, kept=kept)
    sorted_words = sorted(text.vocabulary.words)

    def is_unknown(tokens):
        return bool(text.vocabulary.unknown(tokens))

    class LanguageModel(AbstractLanguageModel):
        def __init__(self):
            self.alpha, self.beta = alpha, beta
            self.unk_score_offset, self.score_boundary = unk_score_offset, score_boundary

        @property
        def order(self):
            return ALL_WORDS

        def reset_params(self, **params):
            for name, value in params.items():
                if name in vars(self) and value is not None:
                    setattr(self, name, value)

        def get_start_state(self):
            return hypotheses.start()

        def score_partial_token(self, partial_token):
            *tokens, last = text.codec.tokenize_part(partial_token) or [""]
            place = bisect.bisect_left(sorted_words, last)
            begins_word = place < len(sorted_words) and sorted_words[place].startswith(last)
            if begins_word and not is_unknown(tokens):
                return 0.0
            return self.unk_score_offset * max(1.0, len(partial_token) / EXPECTED_LETTERS)

        def score(self, prev_state, word, is_last_word=False):
            tokens = text.codec.tokenize_part(word)
            new, log_prob = hypotheses.after(prev_state, hypotheses.encode(tokens))
            if is_unknown(tokens):
                log_prob += self.unk_score_offset
            if is_last_word and self.score_boundary:
                log_prob += hypotheses.end(new)
            return self.alpha * log_prob + self.beta, new

    return LanguageModel()
