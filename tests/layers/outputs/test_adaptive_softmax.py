import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, WordEmbedding
from keras_adaptive.ops.chunks import chunk_sizes
from tests.support import oracle
from tests.support.backends import MODES, largest_array, numpy, runner, weight_gradients
from tests.support.closeness import all_close, close
from tests.support.weights import built, exact_log_probs, value

VOCABULARY, DIM = 20, 8
KINDS = {  # cutoffs, arguments of the softmax, arguments of the embedding that it is tied to
    "untied": ((5, 12), {"factor": 2}, None),
    "tied": ((5, 12), {}, {}),
    "tied words": ((5, 12), {"tie_projections": False}, {"embedding_dim": 16}),
    "other dimensions": ((5, 12), {}, {"embedding_dim": 16, "output_dim": DIM}),
    "one band": ((), {}, None),
    "one word in the last band": ((5, 12, 19), {"factor": 2}, None),
    "tied, plain": ((), {}, {}),
    "no reduction": ((5, 12, 19), {"factor": None, "use_bias": True}, None),
    "tied, no reduction": ((5, 12), {}, "words"),
    "tied, no reduction, biases": ((5, 9, 15), {"use_bias": True}, "words"),
    "tied, plain, biases": ((), {"use_bias": True}, "words"),
    "projected head": ((5, 12), {"tie_projections": (False, True, True), "use_bias": True}, {}),
    "projected head, projections untied": ((5, 12), {"tie_projections": (False,) * 3}, {"embedding_dim": 16}),
    "projected head, tied": (
        (5, 12),
        {"tie_projections": (True, False, True)},
        {"embedding_dim": 16, "output_dim": DIM},
    ),
    "projected head, untied": ((5, 12), {"tie_projections": [False, False, False], "factor": 2}, None),
}
TARGETS = {
    "all bands": np.array([[0, 4, 5, 11, 12], [19, 6, 18, 2, 5]]),
    "empty band": np.array([[0, 4, 12, 13, 12], [19, 3, 18, 2, 3]]),
    "head only": np.array([[0, 4, 1, 2, 3], [0, 1, 2, 3, 4]]),
    "outside": np.array([[0, -1, 5, 20, 12], [99, 6, -100, 2, 5]]),
}


def make(kind, **kwargs):
    cutoffs, arguments, tied = KINDS[kind]
    if tied == "words":
        tied = WordEmbedding(VOCABULARY, DIM)
    elif tied is not None:
        tied = AdaptiveEmbedding(VOCABULARY, **{"embedding_dim": DIM, "factor": 2, **tied}, cutoffs=cutoffs)
    return built(AdaptiveSoftmax(VOCABULARY, cutoffs, tied_to=tied, **arguments, **kwargs), DIM)


@pytest.fixture
def hidden():
    return np.random.default_rng(1).normal(size=(2, 5, DIM)).astype("float32")


def picked(log_probs, targets):
    """−log p of the targets, 0 where there is none."""
    inside = (targets >= 0) & (targets < VOCABULARY)
    nll = -np.take_along_axis(log_probs, np.where(inside, targets, 0)[..., None], axis=-1)[..., 0]
    return np.where(inside, nll, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_oracle(kind, hidden):
    softmax, targets = make(kind), TARGETS["all bands"]
    weights = np.linspace(0, 2, 10).reshape(2, 5).astype("float32")
    log_probs, nll, total = runner(
        lambda h: (softmax.log_probs(h), softmax.nll(h, targets), softmax.total_nll(h, targets, weights))
    )(hidden)
    expected = exact_log_probs(softmax, hidden)
    np.testing.assert_allclose(log_probs, expected, atol=5e-6)
    np.testing.assert_allclose(nll, picked(expected, targets), atol=5e-6)
    np.testing.assert_allclose(total, np.sum(weights * picked(expected, targets)), atol=5e-5)
    np.testing.assert_allclose(np.exp(log_probs.astype("float64")).sum(axis=-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(nll, picked(log_probs, targets), atol=5e-6)


CASES = [*((kind, "all bands", MODES[0]) for kind in KINDS), *(("tied", case, MODES[0]) for case in TARGETS)]
CASES += [("tied", case, mode) for case in TARGETS for mode in MODES[1:2]]


@pytest.mark.parametrize("kind, case, mode", dict.fromkeys(CASES))
def test_every_gradient_is_that_of_the_oracle(kind, case, mode, hidden):
    """Compares the gradients of every weight, shared or not, and of the hidden states, which suffice in other modes."""
    softmax, targets = make(kind), TARGETS[case]
    weights = np.random.default_rng(0).integers(0, 3, targets.shape).astype("float32")
    variables = softmax.trainable_variables if mode == MODES[0] else []
    total = lambda hidden: softmax.total_nll(hidden, targets, weights)  # noqa: E731
    total_nll, gradients = weight_gradients(total, variables, [hidden], mode)

    def truth(*arrays):
        known = dict(zip(map(id, variables), arrays))
        log_probs = exact_log_probs(softmax, arrays[-1], lambda variable: known.get(id(variable), value(variable)))
        return np.sum(weights * picked(log_probs, targets))

    arrays = [*map(value, variables), hidden]
    np.testing.assert_allclose(total_nll, truth(*arrays), atol=5e-5)
    close(gradients, oracle.gradients(truth, arrays), 2e-6)


def test_a_band_without_targets_gets_no_gradient(hidden):
    softmax = make("untied")
    total = lambda hidden: softmax.total_nll(hidden, TARGETS["empty band"])  # noqa: E731
    _, gradients = weight_gradients(total, [*softmax.tables, *softmax.projections[1:]], [hidden])
    assert [bool(gradient.any()) for gradient in gradients] == [True, False, True, False, True, True]


def test_a_batch_of_one_token():
    softmax, hidden = make("tied"), np.ones((1, 1, DIM), "float32")
    expected = exact_log_probs(softmax, hidden)
    nll = runner(lambda h, t: (softmax.nll(h, t), softmax.total_nll(h, t)))
    for target in (3, 5, 19):
        one, total = nll(hidden, np.array([[target]], "int32"))
        np.testing.assert_allclose([one[0, 0], total], -expected[0, 0, target], atol=5e-6)


def test_weight_zero_is_as_good_as_absent(hidden):
    softmax, targets = make("tied"), TARGETS["all bands"]
    weights = np.array([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], "float32")
    keep = weights.astype(bool)
    variables = softmax.trainable_variables
    padded = weight_gradients(lambda h: softmax.total_nll(h, targets, weights), variables, [hidden])
    absent = weight_gradients(lambda h: softmax.total_nll(h, targets[keep]), variables, [hidden[keep]])
    np.testing.assert_allclose(padded[0], absent[0], rtol=1e-6)
    all_close([*padded[1][:-1], padded[1][-1][keep]], absent[1], atol=1e-6)
    assert not padded[1][-1][~keep].any()


def test_no_array_holds_the_logits_of_a_batch():
    rows, vocabulary = 4 * chunk_sizes().max_rows, 64
    softmax = built(AdaptiveSoftmax(vocabulary, (40,), factor=2), DIM)
    random = np.random.default_rng(0)
    targets = random.integers(0, vocabulary, rows).astype("int32")
    hidden = random.normal(size=(rows, DIM)).astype("float32")
    limit = chunk_sizes().max_rows * 48
    assert largest_array(lambda h: softmax.total_nll(h, targets), hidden) <= limit
    assert largest_array(lambda h: ops.sum(softmax.nll(h, targets)), hidden) <= limit
    assert largest_array(lambda h: ops.sum(softmax.log_probs(h)), hidden) >= rows * vocabulary


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_as_good_as_the_plain_form(policy, hidden):
    softmax, targets = make("tied", dtype=policy), TARGETS["all bands"]
    dtype = policy.removeprefix("mixed_")
    hidden = numpy(ops.cast(hidden, dtype))

    def plain(hidden):
        picks = ops.take_along_axis(softmax.log_probs(hidden), ops.convert_to_tensor(targets)[..., None], axis=-1)
        return -ops.sum(picks)

    fused = weight_gradients(lambda h: softmax.total_nll(h, targets), softmax.trainable_variables, [hidden])
    unfused = weight_gradients(plain, softmax.trainable_variables, [hidden])
    exact = make("tied", dtype="float32")
    exact = weight_gradients(
        lambda h: exact.total_nll(h, targets), exact.trainable_variables, [hidden.astype("float32")]
    )
    epsilon = {"bfloat16": 2**-8, "float16": 2**-11}[dtype]
    results = ([value, *gradients] for value, gradients in (fused, unfused, exact))
    for actual, other, expected in zip(*results, strict=True):
        error, allowed = (np.abs(one.astype("float32") - expected).max() for one in (actual, other))
        assert error <= allowed + epsilon * np.abs(expected).max()


@pytest.mark.parametrize("kind", ["input_dropout", "tail_dropout"])
def test_dropout_only_in_training(kind, hidden):
    softmax, targets = make("tied", **{kind: 0.5}), TARGETS["all bands"]
    plain, trained, head = runner(
        lambda h: (
            softmax.total_nll(h, targets),
            softmax.total_nll(h, targets, training=True),
            softmax.total_nll(h, TARGETS["head only"], training=True) - softmax.total_nll(h, TARGETS["head only"]),
        )
    )(hidden)
    np.testing.assert_allclose(plain, picked(exact_log_probs(softmax, hidden), targets).sum(), atol=5e-5)
    assert abs(trained - plain) > 1e-3
    assert (abs(head) > 1e-3) == (kind == "input_dropout")


@pytest.mark.once
def test_attributes_of_the_public_contract():
    softmax = make("untied")
    assert [tuple(table.shape) for table in softmax.tables] == [(5, 8), (7, 4), (8, 2)]
    assert softmax.projections[0] is None
    assert [tuple(projection.shape) for projection in softmax.projections[1:]] == [(8, 4), (8, 2)]
    assert tuple(softmax.class_table.shape) == (2, 8)


@pytest.mark.once
def test_attributes_without_reduction():
    softmax = make("no reduction")
    assert [tuple(table.shape) for table in softmax.tables] == [(20, 8)]
    assert softmax.projections == [None, None, None, None]
    shapes = [tuple(variable.shape) for variable in (softmax.class_table, softmax.bias, softmax.class_bias)]
    assert shapes == [(3, 8), (20,), (3,)]
    assert len(softmax.trainable_variables) == 4
    tied = make("tied, no reduction")
    assert tied.tables[0] is tied.tied_to.tables[0] and tied.projections == [None, None, None]
    assert len(tied.trainable_variables) == 2 and tied.bias is tied.class_bias is None
    assert make("tied, plain, biases").class_bias is None
    plain = make("one band")
    assert len(plain.trainable_variables) == 1 and plain.class_table is None


@pytest.mark.once
def test_tied_weights_are_the_same_variables():
    softmax = make("tied")
    assert all(own is tied for own, tied in zip(softmax.tables, softmax.tied_to.tables, strict=True))
    assert softmax.projections == [None, None, None]
    own = {id(v) for v in softmax.trainable_variables} - {id(v) for v in softmax.tied_to.trainable_variables}
    assert own == {id(softmax.class_table)}
    assert tuple(make("other dimensions").projections[0].shape) == (DIM, 16)
    projected = make("projected head, tied")
    assert [own is None for own in projected.projections] == [True, False, True]
    assert tuple(projected.class_table.shape) == (2, 16)
