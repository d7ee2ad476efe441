"""Ranks, the best words and draws agree for every output where words are equally probable or not numbers."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.backend.compiled import compiled
from keras_adaptive.layers import AdaptiveSoftmax, WordEmbedding
from keras_adaptive.models import Ensemble, WordModel, transformer_lm
from tests.support.backends import BACKEND, numpy
from tests.support.word_parts import outputs

pytestmark = pytest.mark.usefixtures("one_number_of_slots")

WORDS = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijkl", "ab", "ba", "é", "ca"]
SIZE, DIM, CUTOFFS = len(WORDS), 8, (5, 12)
EVERY = np.arange(SIZE, dtype="int32")
OUTPUTS = outputs(WORDS, DIM, CUTOFFS)


CASES = [*((name, "float32") for name in OUTPUTS if name != "adaptive, tied"), ("adaptive", "mixed_bfloat16")]


@pytest.mark.parametrize("name, policy", CASES)
def test_ranks_are_the_places_among_the_best_words(name, policy):
    """The models are constant, have many equal logits, or have diverged."""
    layer, random = OUTPUTS[name](dtype=policy), np.random.default_rng(0)
    layer.build((None, DIM))
    rows = np.repeat(random.integers(-1, 2, size=(1, DIM)), SIZE, axis=0).astype("float32")
    uniform = np.full((2, SIZE), 0.5, "float32")

    def methods(rows, every, uniform):
        best, few = layer.top_k(rows[:1], SIZE), layer.top_k(rows[:1], 7)
        _, ranks, _, *alternatives = layer.alternatives(rows, every, SIZE)
        drawn = [layer.sample_from_uniform(rows, uniform, heat, k) for heat, k in ((1.0, None), (0.7, 3), (0.0, None))]
        return [*best, *few, layer.rank(rows, every), ranks, alternatives[1], *drawn]

    graphs = BACKEND != "tensorflow" or (name, policy) == CASES[0]  # where eager mode is the quickest
    run = compiled(methods, layer.variables) if graphs else methods
    for kind in ("constant", "coarse", "diverged"):
        for variable in layer.trainable_variables:
            values = random.integers(-1, 2, size=variable.shape)
            variable.assign({"constant": 0.0 * values, "coarse": values, "diverged": values * np.nan}[kind])
        log_probs, ids, few, few_ids, ranks, of_alternatives, alternatives, *drawn = numpy(
            run(*map(ops.convert_to_tensor, (rows, EVERY, uniform)))
        )
        np.testing.assert_array_equal(np.sort(ids[0]), EVERY)
        np.testing.assert_array_equal(few_ids, ids[:, :7])
        np.testing.assert_array_equal(few, log_probs[:, :7])
        if kind == "diverged":
            assert np.isnan(log_probs).all() and (ranks == SIZE).all() and (of_alternatives == SIZE).all()
            assert all((words == -1).all() for words in drawn)
        else:
            np.testing.assert_array_equal(ids[0], np.lexsort([EVERY, -log_probs[0, np.argsort(ids[0])]]))
            np.testing.assert_array_equal(ranks[ids[0]], EVERY + 1)
            np.testing.assert_array_equal(of_alternatives[alternatives[0]], EVERY + 1)
            assert (drawn[-1] == ids[0, 0]).all()


@pytest.mark.usefixtures("eager_predictions")
def test_models_rank_and_accuracy():
    model = transformer_lm(SIZE, dim=8, num_blocks=1, num_heads=2, ffn_dim=8, cutoffs=CUTOFFS, factor=2)
    tokens, targets = EVERY[None], EVERY[None]
    ensemble = Ensemble([model, model])
    for variable in model.word_output.trainable_variables:
        variable.assign(np.zeros(variable.shape))
    for one in (model, ensemble):
        _, ids = one.next_words(tokens, SIZE)
        _, ranks = one.score(tokens, targets)
        np.testing.assert_array_equal(ids[0, :5], EVERY[:5])
        np.testing.assert_array_equal(ranks[0, ids[0]], EVERY + 1)
    model.body.trainable_variables[0].assign(np.full(model.body.trainable_variables[0].shape, np.nan))
    methods = {
        "nll": lambda one: one.nll(tokens, targets),
        "score": lambda one: one.score(tokens, targets),
        "next_words": lambda one: one.next_words(tokens, 1),
        "generate": lambda one: one.generate(tokens, 2),
        "generate greedily": lambda one: one.generate(tokens, 2, temperature=0),
        "predict": lambda one: one.predict(tokens, verbose=0),
    }
    for name, method in methods.items():
        for one in (model, ensemble)[: 2 if name in ("nll", "generate") else 1]:
            with pytest.raises(ValueError, match="log-probabilities or the perplexity are not finite.*: take another"):
                method(one)
                pytest.fail(name)


def test_the_accuracy_of_a_model_that_knows_nothing():
    ids = keras.Input((None,), dtype="int32")
    word_output = AdaptiveSoftmax(SIZE, CUTOFFS, factor=2)
    model = WordModel(ids, WordEmbedding(SIZE, DIM)(ids), word_output=word_output)
    model.compile(keras.optimizers.SGD(0.0), metrics=["accuracy"], run_eagerly=BACKEND == "tensorflow")
    tokens, targets = np.stack([EVERY, EVERY]), np.stack([EVERY, np.zeros_like(EVERY)])
    for value in (0.0, np.nan):
        for weight in word_output.trainable_variables:
            weight.assign(np.full(weight.shape, value))
        evaluated = model.evaluate(tokens, targets, verbose=0, return_dict=True)["accuracy"]
        (trained,) = model.fit(tokens, targets, verbose=0).history["accuracy"]
        if np.isnan(value):
            assert evaluated == 0 and not trained > 0
        else:
            assert evaluated == trained == pytest.approx(21 / 40)
