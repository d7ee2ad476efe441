"""Recommenders on sequences of clicks: decoders and recurrent models train, resume and are evaluated on one form."""

import keras
import numpy as np
import pytest

from keras_adaptive.data import PAD, item_sequences
from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.models import WordModel, with_vocabulary
from tests.support.backends import numpy
from tests.support.pages import examples, run
from tests.support.refusals import refused
from tests.support.tiny import compiled, language_model
from tests.support.weights import randomize

PAGE = "docs/recommenders.md"
LENGTH, ITEMS = 6, 60


def log(users=24, clicks=8):
    """Returns a table in which every user goes from an item to the next one."""
    first = np.random.default_rng(0).integers(0, ITEMS, (users, 1))
    items = (first + np.arange(clicks)) % ITEMS
    return {"user": np.repeat(np.arange(users), clicks), "item": items.ravel(), "time": np.arange(items.size)}


SEQUENCES = item_sequences(log())
SIZE = len(SEQUENCES.vocabulary)


def recurrent():
    ids = keras.Input((None,), dtype="int32")
    embedding = AdaptiveEmbedding(SIZE, 8, (20,), factor=2)
    hidden = keras.layers.GRU(8, return_sequences=True)(embedding(ids))
    return randomize(WordModel(ids, hidden, word_output=AdaptiveSoftmax(SIZE, (20,), tied_to=embedding)))


def decoder():
    return language_model(SIZE, cutoffs=(20,))


@pytest.mark.parametrize("make", [recurrent, decoder])
def test_models_train_resume_and_are_evaluated(make):
    model, parts = compiled(make()), compiled(make())
    model.fit(SEQUENCES.batches(LENGTH, 8, seed=1), epochs=2, shuffle=False, verbose=0)
    for start in (0, 3):
        parts.fit(SEQUENCES.batches(LENGTH, 8, seed=1, start=start), shuffle=False, verbose=0)
    for whole, resumed in zip(model.weights, parts.weights, strict=True):
        np.testing.assert_array_equal(numpy(whole.value), numpy(resumed.value))
    tokens, targets, weights = SEQUENCES.histories("test", LENGTH)
    loss, perplexity = model.evaluate(tokens, targets, sample_weight=weights, verbose=0)
    assert perplexity == pytest.approx(np.exp(loss), rel=1e-5)
    hidden = numpy(model(tokens))[weights > 0]
    alone = [numpy(model(row[None, : int(mask.argmax()) + 1]))[0, -1] for row, mask in zip(tokens, weights)]
    np.testing.assert_allclose(hidden, alone, atol=1e-5)  # padding on the right changes nothing before it
    nll = numpy(model.word_output.nll(hidden, targets[weights > 0]))
    assert loss == pytest.approx(nll.mean(), rel=1e-4)


@pytest.mark.once
def test_an_evaluation_computes_targets_with_a_weight_only(monkeypatch):
    model, seen = compiled(recurrent(), metrics=["accuracy"], run_eagerly=True), []
    score = model.word_output.score
    monkeypatch.setattr(model.word_output, "score", lambda x, y, *rest: seen.append(numpy(y)) or score(x, y, *rest))
    tokens, targets, weights = SEQUENCES.histories("test", LENGTH)
    model.evaluate(tokens, targets, sample_weight=weights, batch_size=len(tokens), verbose=0)
    np.testing.assert_array_equal(seen[-1], np.where(weights > 0, targets, -1))


def test_the_page_of_recommenders(tmp_path, monkeypatch):
    names = {}
    for number in range(len(examples(PAGE))):
        run(PAGE, number, tmp_path, monkeypatch, names)
        if "results" in names and "hits" not in names:  # later examples change the model
            targets, seen = (
                names["targets"][names["weights"] > 0],
                np.where(names["tokens"] == PAD, -1, names["tokens"]),
            )
            ranks = numpy(names["model"].word_output.rank(names["hidden"], targets, exclude=seen))
            names["hits"] = np.mean(ranks <= 10)
            assert (numpy(names["ranks"]) <= ranks).all()  # of the example, which leaves out `<pad>` too
    results = names["results"]
    assert results["loss"] == pytest.approx(np.log(results["perplexity"]), rel=1e-4)
    assert results["hit_rate_at_10"] == pytest.approx(names["hits"]) and len(names["recommended"]) == 10
    diverse, clicked = names["diverse"], names["sequences"].vocabulary.decode(names["clicked"])
    assert len(set(diverse)) == 10 and diverse[0] == names["recommended"][0] and not set(diverse) & set(clicked)
    best = numpy(names["best"])[0]
    assert best.min() > 3 and not np.isin(names["clicked"], best).any() and names["served"].shape == (1, 10)
    np.testing.assert_array_equal(names["found"], best)
    assert names["larger"].word_output.vocabulary_size == names["items"] + 1 == len(names["vocabulary"])
    assert names["model"].word_output.vocabulary_size == len(names["renewed"].vocabulary)
    categories, others = names["with_categories"], np.zeros((1, 5), "int32")
    categories.save("categories.keras")
    loaded = keras.saving.load_model("categories.keras")
    np.testing.assert_allclose(numpy(loaded(others)), numpy(categories(others)), atol=1e-6)
    vocabularies = names["sequences"].vocabulary, names["vocabulary"]
    refused(with_vocabulary, categories, *vocabularies, match="an array with a row for each word")


def test_unsorted_items_are_noticed():
    """Ids that are numbered by hand in the order of the table."""
    clicks = np.random.default_rng(0).zipf(1.3, 4_000) % 200
    table = {"user": np.repeat(np.arange(400), 10), "item": 199 - clicks, "time": np.arange(4_000)}
    ids = keras.Input((None,), dtype="int32")
    embedding = AdaptiveEmbedding(300, 8, (20,), factor=2)
    softmax = AdaptiveSoftmax(300, (20,), tied_to=embedding)
    model = compiled(WordModel(ids, embedding(ids), word_output=softmax))
    rows = np.asarray(table["item"], "int32").reshape(400, 10)
    with pytest.warns(UserWarning, match="descending order of their counts.*data.item_sequences"):
        model.fit(rows[:, :-1], rows[:, 1:], batch_size=400, verbose=0)
    del model.order_is_checked
    model.fit(item_sequences(table).batches(9, 400, seed=1), shuffle=False, verbose=0)  # a warning would be an error
