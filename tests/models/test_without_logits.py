"""Models of Keras and KerasHub train without their logits as they did with them."""

import pickle
from functools import partial

import keras
import numpy as np
import pytest

from keras_adaptive.losses import CrossEntropy
from keras_adaptive.models import without_logits
from tests.support.backends import BACKEND
from tests.support.closeness import all_close
from tests.support.refusals import refused
from tests.support.without_logits import assert_equal, with_and_without

CLASSES, LENGTH, DIM = 40, 6, 8
RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(1, CLASSES, size=(6, LENGTH + 1))
TOKENS, TARGETS = IDS[:, :-1], IDS[:, 1:]
WEIGHTS = RANDOM.integers(0, 3, size=TARGETS.shape).astype("float32")
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


def functional(**kwargs):
    keras.utils.set_random_seed(1)
    ids = keras.Input((LENGTH,), dtype="int32")
    words = keras.layers.ReversibleEmbedding(CLASSES, DIM, **kwargs)
    hidden = keras.layers.LSTM(DIM, return_sequences=True)(words(ids))
    return keras.Model(ids, words(hidden, reverse=True))


def dense(activation=None):
    keras.utils.set_random_seed(1)
    ids = keras.Input((LENGTH,), dtype="int32")
    words = keras.layers.Embedding(CLASSES, DIM, mask_zero=True)(ids)
    return keras.Model(
        ids, keras.layers.Dense(CLASSES, activation)(keras.layers.LSTM(DIM, return_sequences=True)(words))
    )


def both(make, *args, tokens=TOKENS, targets=TARGETS, **how):
    return with_and_without(make, tokens, targets, WEIGHTS, *args, epochs=2, **how)


LOSSES = {
    "the mean of Keras": CROSS_ENTROPY(from_logits=True),
    "the weighted mean": CROSS_ENTROPY(from_logits=True, reduction="mean_with_sample_weight"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_functional_models_take_the_same_updates(name):
    metric = keras.metrics.SparseCategoricalAccuracy(name="hits")
    plain, ours = both(functional, LOSSES[name], weighted_metrics=[metric])
    assert_equal(plain, ours)
    assert set(ours[0]) == {"loss", "hits", "perplexity", "gradient_norm", "skipped"}


def test_a_model_of_probabilities_takes_the_same_updates():
    plain, ours = both(lambda: dense("softmax"), "sparse_categorical_crossentropy")
    assert_equal(plain, ours)
    refused(without_logits(dense("softmax")).compile, "sgd", LOSSES["the mean of Keras"], match="from_logits=False")


def test_an_ignored_class_counts_nowhere():
    ignored = int(TARGETS[0, 0])
    loss = CROSS_ENTROPY(from_logits=True, ignore_class=ignored)
    plain, ours = (functional() for _ in range(2))
    for model in (plain, without_logits(ours)):
        model.compile(keras.optimizers.SGD(0.5), loss, metrics=["accuracy"], run_eagerly=BACKEND == "tensorflow")
    kept = WEIGHTS * (TARGETS != ignored)
    best = np.argmax(ours.predict(TOKENS, verbose=0), axis=-1)
    logs = ours.evaluate(TOKENS, TARGETS, sample_weight=WEIGHTS, batch_size=4, verbose=0, return_dict=True)
    assert logs["accuracy"] == pytest.approx(np.sum(kept * (best == TARGETS)) / kept.sum(), rel=1e-6)
    for model in (plain, ours):  # Keras changes the weights of the last batch in place under torch
        model.train_on_batch(TOKENS, TARGETS, sample_weight=WEIGHTS.copy())
    all_close(ours.get_weights(), plain.get_weights(), atol=1e-6)


def test_masks_of_keras_leave_out_the_same_targets():
    tokens = TOKENS * (np.arange(LENGTH) < [[6], [3], [1], [4], [5], [2]])
    plain, ours = both(dense, CROSS_ENTROPY(from_logits=True), tokens=tokens, weighted_metrics=["accuracy"])
    plain[0].pop("accuracy")  # in training, Keras forgets the mask of metrics under JAX
    assert_equal(plain, ours)


def test_perplexity_does_not_depend_on_the_reduction():
    results = [both(functional, loss)[1] for loss in LOSSES.values()][:2]
    model = functional()
    model.set_weights(results[0][2])
    nll = keras.losses.sparse_categorical_crossentropy(TARGETS, model(TOKENS), from_logits=True)
    expected = np.exp(np.sum(WEIGHTS * keras.ops.convert_to_numpy(nll)) / WEIGHTS.sum())
    assert results[0][1]["perplexity"] == pytest.approx(expected, rel=1e-5)


def test_no_logits_exist_in_training_and_evaluation(monkeypatch):
    model = functional()
    model.compile("sgd", CROSS_ENTROPY(from_logits=True))
    without_logits(model)
    call = keras.layers.ReversibleEmbedding.call

    def refuse(layer, inputs, reverse=False):
        assert not reverse, "the logits of a batch"
        return call(layer, inputs)

    monkeypatch.setattr(keras.layers.ReversibleEmbedding, "call", refuse)
    model.fit(TOKENS, TARGETS, validation_data=(TOKENS, TARGETS), verbose=0)
    model.train_on_batch(TOKENS, TARGETS)
    model.test_on_batch(TOKENS, TARGETS)


def test_the_optimizer_goes_on_and_frozen_tables_stay():
    plain, ours = functional(), functional()
    for model in (plain, ours):
        model.compile(keras.optimizers.Adam(0.01), CROSS_ENTROPY(from_logits=True))
        model.fit(TOKENS, TARGETS, verbose=0, shuffle=False)
    without_logits(ours)
    for model in (plain, ours):
        model.fit(TOKENS, TARGETS, verbose=0, shuffle=False)
    all_close(ours.get_weights(), plain.get_weights(), atol=1e-5)
    ours.layers[1].trainable = False
    ours.compile(keras.optimizers.Adam(0.01), CROSS_ENTROPY(from_logits=True), micro_batches=2)
    before = ours.get_weights()
    ours.fit(TOKENS, TARGETS, verbose=0, batch_size=6)
    after = ours.get_weights()
    np.testing.assert_array_equal(after[0], before[0])
    assert np.any(after[1] != before[1])


def test_files_hold_the_plain_model(tmp_path):
    model = without_logits(functional())
    model.compile("adam", CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    model.fit(TOKENS, TARGETS, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is keras.Model or type(loaded).__mro__[0].__name__ == "Functional"
    assert not hasattr(loaded, "trainer")
    all_close(loaded.predict(TOKENS, verbose=0), model.predict(TOKENS, verbose=0), atol=1e-6)
    model.save_weights(tmp_path / "model.weights.h5")
    functional().load_weights(tmp_path / "model.weights.h5")


def sequential():
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [keras.Input((LENGTH,), dtype="int32"), keras.layers.Embedding(CLASSES, DIM), keras.layers.Dense(CLASSES)]
    )


def test_a_sequential_model_takes_the_same_updates():
    assert_equal(*both(sequential, CROSS_ENTROPY(from_logits=True)))


COPIES = {
    "clone_model": keras.models.clone_model,
    "from_config": lambda model: type(model).from_config(model.get_config()),
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.once
@pytest.mark.parametrize("make", [functional, sequential])
@pytest.mark.parametrize("name", COPIES)
def test_copies_are_plain(name, make):
    model = without_logits(make())
    assert type(COPIES[name](model)) is type(make())
    refused(without_logits, model, match="already trains without logits")


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a SavedModel")
def test_it_is_exported(tmp_path):
    model = without_logits(functional())
    model.compile("sgd")
    model.fit(TOKENS, TARGETS, verbose=0)
    model.export(tmp_path / "saved", verbose=False)
    import tensorflow as tf

    loaded = tf.saved_model.load(tmp_path / "saved")
    all_close(np.asarray(loaded.serve(TOKENS.astype("int32"))), model.predict(TOKENS, verbose=0), atol=1e-6)


def test_a_loss_of_ones_own():
    model = without_logits(functional(), loss=CrossEntropy(label_smoothing=0.1, z_loss=0.01))
    model.compile("sgd", CROSS_ENTROPY(from_logits=True))
    logs = model.fit(TOKENS, TARGETS, verbose=0).history
    assert logs["loss"][0] > np.log(logs["perplexity"][0]) and logs["z_loss"][0] > 0


def several():
    ids = keras.Input((LENGTH,), dtype="int32")
    hidden = keras.layers.Embedding(CLASSES, DIM)(ids)
    return keras.Model(ids, [keras.layers.Dense(3)(hidden), keras.layers.Dense(4)(hidden)])


def softmax():
    ids = keras.Input((LENGTH,), dtype="int32")
    return keras.Model(ids, keras.layers.Softmax()(keras.layers.Dense(3)(keras.layers.Embedding(CLASSES, DIM)(ids))))


def lookup(layer):
    ids = keras.Input((LENGTH,), dtype="int32")
    return keras.Model(ids, layer(CLASSES, DIM)(ids))


REFUSED = [
    (
        partial(lookup, keras.layers.Embedding),
        {},
        "called with reverse=True.* Received: the lookup of Embedding",
    ),
    (partial(lookup, keras.layers.ReversibleEmbedding), {}, "Received: the lookup of ReversibleEmbedding"),
    (several, {}, "must be functional and have one output. Received: 2 outputs"),
    (softmax, {}, "must be a Dense or a ReversibleEmbedding.* Received: the output of Softmax"),
    (
        functional,
        {"loss": "sparse_categorical_crossentropy"},
        r"must be keras.losses.SparseCategoricalCrossentropy\(from_logits=True",
    ),
    (functional, {"loss": CROSS_ENTROPY()}, "must be .* 'from_logits': False"),
    (
        functional,
        {"loss": CROSS_ENTROPY(from_logits=True, reduction="sum")},
        "a mean over targets .* 'reduction': 'sum'",
    ),
    (functional, {"metrics": ["top_k_categorical_accuracy"]}, "measures accuracy and perplexity only"),
]


@pytest.mark.once
@pytest.mark.parametrize("make, compiled, message", REFUSED)
def test_what_is_refused(make, compiled, message):
    refused(lambda: without_logits(make()).compile("sgd", **compiled), match=message)


def test_bad_targets_are_refused():
    model = without_logits(functional())
    model.compile("sgd", CROSS_ENTROPY(from_logits=True))
    before = model.get_weights()
    refused(model.train_on_batch, TOKENS, TARGETS + CLASSES, match="must hold ids from 0 to 39")
    refused(model.fit, TOKENS, np.eye(CLASSES)[TARGETS], verbose=0, match="must be ids, one for .*: take the argmax")
    all_close(model.get_weights(), before, atol=0)


def test_targets_may_have_a_last_axis_of_one():
    assert_equal(*both(functional, CROSS_ENTROPY(from_logits=True), targets=TARGETS[..., None]))
