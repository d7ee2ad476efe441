"""The losses of rows that begin alike are those of every row alone."""

import numpy as np
import pytest

from keras_adaptive.layers import (
    AdaptiveSoftmax,
    CausalAttention,
    LearnedPositions,
    LSTMDecoder,
    TransformerBlock,
    TransformerDecoder,
    WordEmbedding,
)
from keras_adaptive.models import Ensemble, LanguageModel
from tests.support.tiny import VOCABULARY, language_model
from tests.support.weights import randomize

LISTS = [[], [5], [5, 6, 7], [5, 6, 7], [5, 6, 8], [4] * 9 + [5], [4] * 9 + [6, 7], [4] * 17]


def learned_positions():
    return TransformerDecoder([TransformerBlock(12, CausalAttention(2))], 8, positions=LearnedPositions(18))


def of_body(body):
    return randomize(LanguageModel(WordEmbedding(VOCABULARY, 8), body, AdaptiveSoftmax(VOCABULARY, (5,), factor=2)))


@pytest.mark.parametrize("kind", ["transformer", "learned positions", "LSTM", "ensemble"])
def test_common_beginnings_do_not_change_the_losses(kind):
    model = {
        "transformer": language_model,
        "learned positions": lambda: of_body(learned_positions()),
        "LSTM": lambda: of_body(LSTMDecoder(1, 8, 8)),
        "ensemble": lambda: Ensemble([language_model(), language_model()]),
    }[kind]()
    rows = [(np.array([2, *ids]), np.array([*ids, 2])) for ids in LISTS]
    tokens = np.full((2, len(rows), 18), 1)
    for number, pair in enumerate(rows):
        tokens[:, number, : len(pair[0])] = pair
    expected = model.nll(*tokens)
    for number, nll in enumerate(model.nll_of_rows(rows)):
        assert len(nll) == len(LISTS[number]) + 1
        np.testing.assert_allclose(nll, expected[number, : len(nll)], atol=1e-5)


def test_common_beginnings_are_computed_once(monkeypatch):
    model, sizes = language_model(), []
    monkeypatch.setattr("keras_adaptive.models.shared_prefixes.ROUNDED_ROWS", 1)
    step = model._nll_after
    monkeypatch.setattr(model, "_compiled", lambda *_: lambda *pair: sizes.append(len(pair[0])) or step(*pair))
    model.nll_of_rows([([2, *ids], [*ids, 2]) for ids in LISTS])
    assert sizes == [5, 3, 1]  # two lists are equal, and three begin with nine equal words
    assert model.nll_of_rows([]) == []
