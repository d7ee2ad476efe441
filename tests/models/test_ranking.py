"""Metrics of ranks that `evaluate` and `fit` of a `WordModel` report, and the items that they leave out."""

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveSoftmax, CharCNNSoftmax, WordEmbedding
from keras_adaptive.metrics import MRR, NDCG, HitRate
from keras_adaptive.models import LanguageModel, WordModel, transformer
from tests.support.backends import numpy
from tests.support.refusals import refused
from tests.support.tiny import LENGTH, VOCABULARY, WORDS, batch, compiled, language_model, last, saved_and_loaded
from tests.support.weights import randomize

TOKENS, TARGETS, WEIGHTS = batch(5)
METRICS = {"hit_rate_at_3": lambda r: r <= 3, "ndcg_at_5": lambda r: (r <= 5) / np.log2(1 + r), "mrr": lambda r: 1 / r}


def recommender(last_only=False):
    ids, other = keras.Input((LENGTH,), dtype="int32", name="history"), keras.Input((LENGTH, 1), name="other")
    hidden = keras.layers.Add()([WordEmbedding(VOCABULARY, 8)(ids), keras.layers.Dense(8)(other)])
    hidden = keras.layers.GRU(8, return_sequences=not last_only)(hidden)
    model = WordModel([ids, other], hidden, word_output=AdaptiveSoftmax(VOCABULARY, (5, 12), factor=2))
    return randomize(model)


def inputs(tokens):
    return {"history": tokens, "other": np.ones((*tokens.shape, 1), "float32")}


def ranks_of(model, tokens, targets, seen):
    """Returns the rank of each target by all log-probabilities; `seen(row, position)` returns the ids to leave out."""
    log_probs = numpy(model.word_output.log_probs(model(inputs(tokens))))
    ranks = np.zeros(targets.shape, "int64")
    for place in np.ndindex(*targets.shape):
        target, values = targets[place], log_probs[place].copy()
        values[[word for word in seen(*place) if word != target]] = -np.inf
        ranks[place] = 1 + np.sum(values > values[target])
    return ranks


@pytest.mark.parametrize("excludes, last_only", [(False, False), (True, False), (True, True)])
def test_evaluations_report_the_metrics_of_ranks_over_all_targets(excludes, last_only):
    """Batches of 4 rows and 1 row with other weights; validation by `fit`, whose training reports no ranks."""
    model = recommender(last_only)
    targets, weights = (TARGETS[:, 2], WEIGHTS[:, 1] + 0.5) if last_only else (TARGETS, WEIGHTS)
    targets = np.where(np.arange(5).reshape(-1, *[1] * (targets.ndim - 1)) == 0, TOKENS[0, 0], targets)  # seen before
    seen = (lambda row, position=LENGTH: TOKENS[row, : position + 1]) if excludes else lambda *place: []
    ranks = ranks_of(model, TOKENS, targets, seen)
    model.compile(
        keras.optimizers.SGD(0.0),
        metrics=[HitRate(3), NDCG(5), MRR()] + ["accuracy"] * (not excludes),
        exclude_input="history" if excludes else None,
    )
    data = {"x": inputs(TOKENS), "y": targets, "sample_weight": weights}
    logs = model.evaluate(**data, batch_size=4, verbose=0, return_dict=True)
    expected = {name: np.average(value(ranks), weights=weights) for name, value in METRICS.items()}
    expected |= {} if excludes else {"accuracy": np.average(ranks == 1, weights=weights)}
    assert set(logs) == {"loss", "perplexity", *expected}
    assert {name: logs[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    nll = numpy(model.word_output.nll(model(data["x"]), targets))
    assert logs["loss"] == pytest.approx(np.average(nll, weights=weights), rel=1e-5)  # among all words
    if last_only:
        history = last(model.fit(**data, validation_data=tuple(data.values()), verbose=0))
        assert {name: history[f"val_{name}"] for name in expected} == pytest.approx(expected, rel=1e-5)
        assert not set(METRICS) & set(history)


def spelled():
    """Returns a language model whose output has a layer of its own for evaluations, which `evaluate` compiles."""
    softmax = CharCNNSoftmax(WORDS, 4, char_dim=4, filters=(4,), max_bytes=4)
    body = transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2)
    return randomize(LanguageModel(WordEmbedding(VOCABULARY, 4), body, softmax))


@pytest.mark.parametrize("make", [language_model, spelled])
def test_a_language_model_leaves_out_the_words_of_its_row(make, tmp_path):
    model = compiled(make(), metrics=HitRate(3), exclude_input="tokens")
    data = {"sample_weight": WEIGHTS, "verbose": 0}
    history = last(model.fit(TOKENS, TARGETS, validation_data=(TOKENS, TARGETS, WEIGHTS), **data))
    logs = model.evaluate(TOKENS, TARGETS, batch_size=2, return_dict=True, **data)
    seen = np.where(np.tri(LENGTH, dtype=bool), TOKENS[:, None], -1)
    ranks = numpy(model.word_output.for_inference().rank(model(TOKENS), TARGETS, exclude=seen))
    assert logs["hit_rate_at_3"] == pytest.approx(np.average(ranks <= 3, weights=WEIGHTS))
    assert history["val_hit_rate_at_3"] == pytest.approx(logs["hit_rate_at_3"]) and "hit_rate_at_3" not in history
    loaded = saved_and_loaded(model, tmp_path / "model.keras")
    assert loaded.evaluate(TOKENS, TARGETS, return_dict=True, **data) == pytest.approx(logs, rel=1e-5)
    compiled(model, metrics=[HitRate(1)])
    accuracy = np.average(numpy(model.word_output.for_inference().rank(model(TOKENS), TARGETS)) == 1, weights=WEIGHTS)
    assert model.evaluate(TOKENS, TARGETS, **data)[-1] == pytest.approx(accuracy)


def test_a_file_keeps_them(tmp_path):
    model = compiled(recommender(), metrics=[HitRate(3), MRR(name="mine")], exclude_input="history")
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    compiled(recommender(), metrics=NDCG(4)).load_weights(tmp_path / "model.weights.h5")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    logs = [one.evaluate(inputs(TOKENS), TARGETS, verbose=0, return_dict=True) for one in (model, loaded)]
    assert logs[1] == pytest.approx(logs[0]) and {"hit_rate_at_3", "mine"} < set(logs[0])


@pytest.mark.once
def test_wrong_metrics_are_refused():
    model = recommender()
    refused(model.compile, metrics=[HitRate(3), HitRate(3)], match="must have different names")
    refused(model.compile, metrics=[MRR(name="loss")], match="must have different names")
    refused(model.compile, metrics=["mse"], match="`metrics` must be metrics of ranks")
    refused(model.compile, metrics=[MRR()], exclude_input="tokens", match="one of the inputs of the model")
    refused(model.compile, exclude_input="history", match="needs a metric of ranks")
    refused(model.compile, metrics=["accuracy", MRR()], exclude_input="history", match=r"pass `HitRate\(1\)`")
    compiled(model, metrics=[MRR()], exclude_input="other")
    message = "`exclude_input` must have the shape .* of the targets, and an axis of items"
    refused(model.evaluate, inputs(TOKENS), TARGETS[:, :1], verbose=0, match=message)
