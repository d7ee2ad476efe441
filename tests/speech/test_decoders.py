"""Hypotheses of a search, and the language models of other packages, of which there are stand-ins."""

import sys
import types

import numpy as np
import pytest

from keras_adaptive.data import Subwords, TextCodec, Vocabulary
from keras_adaptive.speech import Hypotheses, espnet_scorer, pyctcdecode_lm, torchaudio_lm
from keras_adaptive.text import TextModel
from tests.support.exported_models import MODELS
from tests.support.tiny import VOCABULARY, WORDS, language_model

CODEC = TextCodec(Vocabulary(WORDS, [0] * VOCABULARY))
LINE = " ".join(np.random.default_rng(0).choice(WORDS[4:], 13))
MODULES = {
    "espnet.nets.scorer_interface": "BatchScorerInterface",
    "pyctcdecode.language_model": "AbstractLanguageModel",
}


@pytest.fixture
def text():
    return TextModel(language_model(), CODEC, window=6, context=2)


@pytest.fixture
def packages(monkeypatch):
    """Stand-ins of the packages, with what the language models use of them."""

    class State:
        def __init__(self):
            self.children = {}

        def child(self, index):
            return self.children.setdefault(index, State())

    base = type("CTCDecoderLM", (), {})
    modules = {name: {cls: type(cls, (), {})} for name, cls in MODULES.items()}
    modules["torchaudio.models.decoder"] = {"CTCDecoderLM": base, "CTCDecoderLMState": State}
    for name, contents in modules.items():
        parts = name.split(".")
        for number in range(1, len(parts) + 1):
            module = types.ModuleType(".".join(parts[:number]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(module).update(contents)


def walk(hypotheses, line):
    """Returns the log-probabilities of the words of a line and of its end."""
    hypothesis, log_probs = hypotheses.start(), []
    for word in line.split():
        hypothesis, log_prob = hypotheses.after(hypothesis, hypotheses.ids_of(word))
        log_probs.append(log_prob)
    return [*log_probs, hypotheses.end(hypothesis)]


@pytest.mark.parametrize("kept", [1, 256])
@pytest.mark.parametrize("name", ["body transformer", "body lstm"])
def test_hypotheses_have_the_log_probabilities_of_their_texts(name, kept, monkeypatch):
    monkeypatch.setattr("keras_adaptive.speech.decoders.hypotheses.SMALLEST_CAPACITY", 2)
    text = TextModel(MODELS[name](), CODEC, **({} if name == "body lstm" else {"window": 6, "context": 2}))
    hypotheses = Hypotheses(text, kept=kept)
    for line in (LINE, "", f"{WORDS[5]} unknown {WORDS[4]}"):
        np.testing.assert_allclose(walk(hypotheses, line), text.score(line)["log_probs"], atol=1e-5)
    assert len(hypotheses._kept) <= kept


@pytest.mark.once
def test_hypotheses_are_read_together(text):
    hypotheses, lines = Hypotheses(text), [LINE.split()[:4], LINE.split()[:3], LINE.split()[2:6], LINE.split()[:4]]
    nodes = [hypotheses.start()] * len(lines)
    for number, line in enumerate(lines):
        for id in hypotheses.encode(line):
            nodes[number] = nodes[number].child(id)
    assert nodes[0] is nodes[3]
    calls, step = [], text.model.compiled_next()
    text.model.compiled_next = lambda: lambda tokens, state: calls.append(tuple(tokens.shape)) or step(tokens, state)
    together = hypotheses.log_probs(nodes)
    assert sorted(calls) == [(1, 4), (2, 1), (2, 2)]  # three words; four words, whose window has three tokens: 2 + 1
    for line, log_probs in zip(lines, together):
        best = text.next_words(" ".join(line), VOCABULARY)
        expected = [dict(best)[word] for word in WORDS]
        np.testing.assert_allclose(np.exp(log_probs), expected, atol=1e-6)


@pytest.mark.once
def test_pieces_of_a_word_are_added_up():
    counts = {word: 2 for word in ("naïve", "cat", "cats")}
    subwords = Subwords.learn(counts, 4)
    vocabulary = subwords.vocabulary(counts)
    text = TextModel(language_model(len(vocabulary)), TextCodec(vocabulary, "whitespace", subwords))
    total = sum(text.score("cats new naïve")["log_probs"])
    assert sum(walk(Hypotheses(text), "cats new naïve")) == pytest.approx(total, abs=1e-4)


@pytest.mark.once
def test_a_scorer_of_espnet(text, packages):
    import torch

    tokens = ["<blank>", *WORDS[9:4:-1], "unknown", "<sos/eos>"]
    scorer = espnet_scorer(text, tokens)
    assert type(scorer).__mro__[1].__name__ == "BatchScorerInterface"
    ys, states = torch.tensor([[7], [7]]), [None, None]
    for new in ([1, 2], [2, 6]):
        scores, states = scorer.batch_score(ys, states, None)
        ys = torch.cat([ys, torch.tensor(new)[:, None]], 1)
    scores, states = scorer.batch_score(ys, states, None)
    alone, _ = scorer.score(ys[1], None, None)
    np.testing.assert_allclose(scores[1], alone, atol=1e-5)
    for y, row in zip(ys.tolist(), scores):
        known = dict(text.next_words(" ".join(tokens[id] for id in y[1:]), VOCABULARY))
        words = ["<unk>", *WORDS[9:4:-1], "<unk>", "</s>"]
        np.testing.assert_allclose(row.exp(), [known[word] for word in words], atol=1e-6)


@pytest.mark.once
def test_a_language_model_of_torchaudio(text, packages):
    words = [*WORDS[9:4:-1], "unknown"]
    lm = torchaudio_lm(text, words)
    for line in ([1, 5, 0, 2], [1, 5, 3]):
        state, total = lm.start(False), 0.0
        first = state
        for index in line:
            state, log_prob = lm.score(state, index)
            total += log_prob
        assert lm.score(first, line[0])[0] is first.child(line[0])  # by which the decoder merges its hypotheses
        total += lm.finish(state)[1]
        assert total == pytest.approx(sum(text.score(" ".join(words[i] for i in line))["log_probs"]), abs=1e-4)
    with pytest.raises(ValueError, match="a word for each index .* Received: the index 6, and 6 words"):
        lm.score(first, 6)


@pytest.mark.once
def test_a_language_model_of_pyctcdecode(text, packages):
    lm = pyctcdecode_lm(text, alpha=0.7, beta=2.0)
    line, state, total = [WORDS[5], "unknown", WORDS[4]], lm.get_start_state(), 0.0
    for number, word in enumerate(line):
        score, state = lm.score(state, word, is_last_word=number == 2)
        total += score
    exact = sum(text.score(" ".join(line))["log_probs"])
    assert total == pytest.approx(0.7 * (exact - 10) + 3 * 2, abs=1e-4)
    lm.reset_params(alpha=0.0, beta=None, unk_score_offset=-3.0)
    assert lm.score(lm.get_start_state(), WORDS[4])[0] == 2
    assert [lm.score_partial_token(part) for part in ("w", WORDS[4], "", "qq", "q" * 12)] == [0, 0, 0, -3, -6]
    assert lm.order > 1000


@pytest.mark.once
def test_wrong_arguments_are_refused(text, packages):
    for make in (Hypotheses, pyctcdecode_lm):
        with pytest.raises(ValueError, match="`kept` must be at least 1. Received: kept=0"):
            make(text, kept=0)
        with pytest.raises(ValueError, match="`oov` must be a word of the vocabulary"):
            make(text, oov="unknown")
    for make, name in ((espnet_scorer, "token_list"), (torchaudio_lm, "words")):
        with pytest.raises(ValueError, match=f"`{name}` must have words of the model, .* Received: a list of 2 words"):
            make(text, ["WORD1", "WORD2"])
