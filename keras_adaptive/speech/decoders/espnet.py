from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_adaptive.speech.decoders.hypotheses import Hypotheses
from keras_adaptive.speech.decoders.words import check_some_known
from keras_adaptive.text import TextModel


def espnet_scorer(text: TextModel, token_list: Sequence[str], *, oov: str = "<unk>", kept: int = 256) -> Any:
    """Returns a scorer for the beam searches of ESPnet, a `BatchScorerInterface`.

    Args:
        text: The `TextModel`.
        token_list: Tokens of the recognizer in the order of their ids. `<sos/eos>` is the `</s>` of the model.
        oov: Word of the vocabulary that tokens outside of it are read and scored as.
        kept: Number of hypotheses whose state is kept, at least the width of the beam.

    Raises:
        ModuleNotFoundError: If ESPnet is not installed.
        ValueError: If the model knows no token of the list, or `oov` is not in the vocabulary.

    Example:

    ```py
    scorers["lm"] = espnet_scorer(keras_adaptive.load("runs/books"), asr_train_args.token_list)
    search = BatchBeamSearch(10, {"decoder": 1.0, "lm": 0.5}, scorers, sos, eos, len(token_list))
    ```
    """
    import torch
    from espnet.nets.scorer_interface import BatchScorerInterface

    hypotheses = Hypotheses(text, oov=oov, kept=kept)
    check_some_known(text, token_list, "token_list")
    words = ["</s>" if token == "<sos/eos>" else token for token in token_list]
    ids = hypotheses.encode(words)

    class Scorer(BatchScorerInterface):
        def score(self, y, state, x):
            scores, (state,) = self.batch_score(y[None], [state], x)
            return scores[0], state

        def batch_score(self, ys, states, xs):
            new = [self._read(y, state) for y, state in zip(ys.tolist(), states)]
            scores = np.stack([log_probs[ids] for log_probs in hypotheses.log_probs(new)])
            return torch.from_numpy(scores).to(ys.device), new

        def _read(self, y, state):
            """Returns the hypothesis of tokens, the first of which is `<sos/eos>`."""
            if state is not None:
                return state.child(ids[y[-1]])
            state = hypotheses.start()
            for token in y[1:]:
                state = state.child(ids[token])
            return state

    return Scorer()
