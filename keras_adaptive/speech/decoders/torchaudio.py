from collections.abc import Sequence
from typing import Any

from keras_adaptive.speech.decoders.hypotheses import Hypotheses, Hypothesis
from keras_adaptive.speech.decoders.words import check_some_known
from keras_adaptive.text import TextModel


def torchaudio_lm(text: TextModel, words: Sequence[str], *, oov: str = "<unk>", kept: int = 256) -> Any:
    """Returns a language model for `ctc_decoder` of torchaudio, a `CTCDecoderLM`.

    Args:
        text: The `TextModel`.
        words: Words of the decoder in the order of their indices: the lines of its `lm_dict`.
        oov: Word of the vocabulary that tokens outside of it are read and scored as.
        kept: Number of hypotheses whose state is kept, at least the width of the beam.

    Raises:
        ModuleNotFoundError: If torchaudio or flashlight-text is not installed.
        ValueError: If the model knows no word of the list, or `oov` is not in the vocabulary.

    Example:

    ```py
    words = Path("words.txt").read_text(encoding="utf-8").split()
    lm = torchaudio_lm(keras_adaptive.load("runs/books"), words)
    decoder = ctc_decoder("lexicon.txt", "tokens.txt", lm=lm, lm_dict="words.txt", lm_weight=0.5)
    ```
    """
    from torchaudio.models.decoder import CTCDecoderLM, CTCDecoderLMState

    hypotheses = Hypotheses(text, oov=oov, kept=kept)
    check_some_known(text, words, "words")
    ids = [hypotheses.ids_of(word) for word in words]

    class LanguageModel(CTCDecoderLM):
        def __init__(self):
            CTCDecoderLM.__init__(self)
            self.hypotheses: dict[Any, Hypothesis] = {}  # of the decoder's states, which have no place for them

        def start(self, start_with_nothing):
            state = CTCDecoderLMState()
            self.hypotheses = {state: hypotheses.start()}
            return state

        def score(self, state, usr_token_idx):
            if not 0 <= usr_token_idx < len(ids):
                raise ValueError(
                    f"`words` must have a word for each index of the decoder: pass the lines of its `lm_dict`. "
                    f"Received: the index {usr_token_idx}, and {len(ids):,} words."
                )
            new, log_prob = hypotheses.after(self.hypotheses[state], ids[usr_token_idx])
            child = state.child(usr_token_idx)
            self.hypotheses[child] = new
            return child, log_prob

        def finish(self, state):
            return state.child(-1), hypotheses.end(self.hypotheses[state])

    return LanguageModel()
