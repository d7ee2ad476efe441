"""What every body must do, whatever it is made of. A new body is one more line of BODIES."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import keras
import numpy as np
import pytest

from keras_adaptive import layers
from keras_adaptive.backend import torch_graph
from keras_adaptive.backend.compiled import compiled_part
from keras_adaptive.layers import (
    AdaptiveSoftmax,
    Body,
    CausalAttention,
    LearnedPositions,
    LSTMDecoder,
    NPLMDecoder,
    QRNNDecoder,
    SinusoidalPositions,
    TransformerBlock,
    TransformerDecoder,
    WordEmbedding,
)
from keras_adaptive.models import LanguageModel, hybrid_transformer, shortformer, transformer, transformer_xl
from tests.support import layer_checks
from tests.support.backends import BACKEND, differentiated, numpy, of_weights, runner, weight_gradients
from tests.support.closeness import all_close
from tests.support.refusals import refused
from tests.support.steps import changed_at_each_token, in_steps
from tests.support.toy_body import ToyBody
from tests.support.weights import built

LENGTH, INPUT_DIM = 7, 8


def other_transformer(dropout=0.0, **kwargs):
    """Returns a Transformer with all options that the paper's model does not use."""
    attention = CausalAttention(3, dropout=dropout, **kwargs)
    block = TransformerBlock(12, attention, dropout=dropout, activation="gelu", normalize_first=False, **kwargs)
    positions = LearnedPositions(LENGTH + 3, **kwargs)
    options = {"output_dim": 6, "scale_input": False, "input_norm": True, "final_norm": True}
    return TransformerDecoder([block], 12, positions=positions, dropout=dropout, **options, **kwargs)


SIZES = {"num_blocks": 2, "dim": 8, "ffn_dim": 12, "num_heads": 2}
BODIES = {
    "transformer": partial(transformer, num_blocks=1, dim=8, ffn_dim=12, num_heads=2),
    "transformer, projected": partial(transformer, num_blocks=1, dim=12, ffn_dim=12, num_heads=3, first_position=0),
    "transformer, otherwise": other_transformer,
    "transformer, alibi": partial(transformer, num_blocks=1, dim=8, ffn_dim=12, num_heads=2, positions="alibi"),
    "shortformer": partial(shortformer, **SIZES, memory_length=4, segment_length=3),
    "transformer_xl": partial(transformer_xl, **SIZES, memory_length=4, segment_length=3),
    "transformer_xl, window": partial(transformer_xl, **SIZES, memory_length=4, share_biases=False),
    "lstm": partial(LSTMDecoder, 2, 5, 6),
    "lstm, projected": partial(LSTMDecoder, 2, 7, 6, projection_dim=4),
    "qrnn": partial(QRNNDecoder, 2, 5, 6, window=2),
    "nplm": partial(NPLMDecoder, 2, 6, num_local=2, num_global=2, global_window=5),
    "hybrid": partial(
        hybrid_transformer,
        **{"num_blocks": 1, "dim": 8, "ffn_dim": 12, "num_heads": 2, "attention_window": 3},
        **{"num_local": 2, "num_global": 1, "global_window": 5},
    ),
    "hybrid, alibi": partial(
        hybrid_transformer,
        **{"num_blocks": 2, "dim": 8, "ffn_dim": 12, "num_heads": 2, "attention_window": 3, "positions": "alibi"},
    ),
    "toy": partial(ToyBody, 6),
}
VALUES_IN_PYTHON = {"shortformer", "transformer_xl"}  # where a segment begins
every_body = pytest.mark.parametrize("make", BODIES.values(), ids=BODIES)


class Case(NamedTuple):
    make: Callable
    layer: keras.layers.Layer
    call: Callable
    step: Callable
    squares: Callable  # ([*values of the weights, x], weight) -> the weighted sum of squares, and its gradients


@pytest.fixture(scope="module", params=BODIES)
def body(request):
    layer = built(BODIES[request.param](dtype="float32"), INPUT_DIM)
    squares = of_weights(lambda x, weight: keras.ops.sum(weight * layer(x) ** 2), layer.trainable_variables)
    return Case(BODIES[request.param], layer, runner(layer), runner(layer.step), differentiated(squares))


def values(body):
    return [numpy(variable.value) for variable in body.layer.trainable_variables]


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(2, LENGTH, INPUT_DIM)).astype("float32")


def test_it_is_a_body(body, x):
    assert isinstance(body.layer, Body)
    assert body.layer.max_length is None or body.layer.max_length >= LENGTH
    assert (body.layer.activations_per_token(LENGTH) > 0) == (type(body.layer) is not ToyBody)  # the base class has 0
    symbolic = body.layer(keras.Input((None, INPUT_DIM)))
    y = body.call(x)
    assert symbolic.shape == (None, None, y.shape[-1]) and y.shape[:2] == x.shape[:2]
    assert symbolic.dtype == y.dtype == "float32"


@pytest.mark.skipif(BACKEND != "torch", reason="TensorFlow and JAX compile the whole")
@pytest.mark.parametrize("name", BODIES)
def test_a_graph_of_a_step_is_the_step(name, monkeypatch):
    import torch

    monkeypatch.setattr(torch_graph, "EAGER_CALLS", 1)
    layer = built(BODIES[name](dtype="float32"), INPUT_DIM)
    step = compiled_part(layer.step, layer.variables, [1])
    tokens = np.random.default_rng(1).normal(size=(8, 2, 1, INPUT_DIM)).astype("float32")
    state, expected_state = (layer.initial_state(2, 8) for _ in range(2))
    for token in map(keras.ops.convert_to_tensor, tokens):
        y, state = step(token, state)
        with torch.no_grad():
            expected, expected_state = layer.step(token, expected_state)
        for one, other in zip(keras.tree.flatten((y, state)), keras.tree.flatten((expected, expected_state))):
            assert torch.equal(one, other)
    ((graph, _),) = step._graphs.values()
    assert (graph is None) == (name in VALUES_IN_PYTHON)


@every_body
def test_keeps_the_contract_of_keras(make, tmp_path):
    inputs = np.random.default_rng(0).normal(size=(2, 4, INPUT_DIM)).astype("float32")
    layer_checks.check_layer(make, inputs, tmp_path)


def test_a_token_changes_nothing_before_it(body, x):
    before = body.call(x)
    for token, after in changed_at_each_token(body.call, x):
        difference = np.abs(after - before).max(axis=(0, 2))
        np.testing.assert_array_less(difference[:token], 1e-6)
        assert difference[token] > 1e-3


def test_gradients_do_not_flow_back_from_later_tokens(body, x):
    for token in (0, 3, LENGTH - 1):
        weight = np.eye(LENGTH, dtype="float32")[token, :, None]
        *_, gradient = body.squares([*values(body), x], weight)[1]
        assert np.abs(gradient[:, : token + 1]).max(axis=(0, 2)).min() > 0
        assert not gradient[:, token + 1 :].any()


def test_sequences_do_not_mix(body, x):
    changed = x.copy()
    changed[1] += 1.0
    np.testing.assert_allclose(body.call(changed)[0], body.call(x)[0], atol=1e-6)


@pytest.mark.parametrize("chunks", [[1] * LENGTH, [4, 1, 2], [LENGTH]], ids=str)
def test_steps_equal_the_full_pass(body, x, chunks):
    y, _ = in_steps(body.step, x, body.layer.initial_state(2, LENGTH), chunks)
    np.testing.assert_allclose(y, body.call(x), atol=5e-6)


def test_room_to_spare_changes_nothing(body, x):
    y, _ = body.step(x, body.layer.initial_state(2, LENGTH + 3))
    np.testing.assert_allclose(y, body.call(x), atol=5e-6)


def test_a_state_can_be_used_twice(body, x):
    _, state = body.step(x[:, :1], body.layer.initial_state(2, LENGTH))
    first, _ = body.step(x[:, 1:2], state)
    body.step(x[:, 5:6], state)
    again, _ = body.step(x[:, 1:2], state)
    np.testing.assert_array_equal(first, again)


def test_the_batch_is_the_first_axis_of_the_state(body, x):
    """The rows of a state are those of the text: taken in another order they continue the texts in that order."""
    _, state = body.step(x[:, :4], body.layer.initial_state(2, LENGTH))
    leaves = keras.tree.flatten(state)
    assert leaves and all(leaf.shape[0] == 2 for leaf in leaves)
    initial = keras.tree.flatten(numpy(body.layer.initial_state(2, LENGTH)))
    assert [(leaf.shape, leaf.dtype) for leaf in leaves] == [(leaf.shape, leaf.dtype) for leaf in initial]
    y, _ = body.step(x[:, 4:], state)
    swapped, _ = body.step(x[::-1, 4:], keras.tree.map_structure(lambda leaf: leaf[::-1].copy(), state))
    np.testing.assert_allclose(swapped[::-1], y, atol=1e-6)


def test_gradients_flow_through_the_steps(body, x):
    """Gradients of the weights equal the full pass's, which truncated back-propagation needs."""

    def in_steps(x):
        state, total = body.layer.initial_state(2, LENGTH), 0.0
        for start, end in ((0, 3), (3, LENGTH)):
            y, state = body.layer.step(x[:, start:end], state)
            total = total + keras.ops.sum(y**2)
        return total

    expected = body.squares([*values(body), x], np.ones((LENGTH, 1), "float32"))
    actual = weight_gradients(in_steps, body.layer.trainable_variables, [x])
    scale = max(np.abs(gradient).max() for gradient in expected[1])  # a key's bias has none but rounding
    all_close(actual[1], expected[1], rtol=0, atol=2e-6 * scale)


def test_a_step_against_the_gradient_lowers_the_loss(body, x):
    before, weight = values(body), np.full((LENGTH, 1), 1 / body.call(x).size, "float32")
    value, (*gradients, _) = body.squares([*before, x], weight)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    norm = np.sqrt(sum((gradient.astype("float64") ** 2).sum() for gradient in gradients))
    moved = [old - 1e-3 / norm * gradient for old, gradient in zip(before, gradients, strict=True)]
    after, _ = body.squares([*moved, x], weight)
    assert value - 2e-3 * norm < after < value - 5e-4 * norm  # as much as the slope says


DROPOUTS = [(name, "dropout") for name in BODIES]
DROPOUTS += [("transformer", kind) for kind in ("attention_dropout", "activation_dropout")]
DROPOUTS += [("lstm", "weight_dropout"), ("qrnn", "weight_dropout"), ("qrnn", "zoneout")]


@pytest.mark.parametrize("name, kind", DROPOUTS)
def test_dropout_in_training_only(name, kind, x):
    layer = built(BODIES[name](**{kind: 0.5}), INPUT_DIM)

    def outputs(x, state):
        full = [layer(x, training=flag) for flag in (None, False, True)]
        return full, [layer.step(x, state)[0], *(layer.step(x, state, flag)[0] for flag in (False, True))]

    for plain, evaluated, trained in runner(outputs)(x, layer.initial_state(2, LENGTH)):
        np.testing.assert_array_equal(plain, evaluated)
        assert np.abs(trained - plain).max() > 1e-3


@every_body
@pytest.mark.once
def test_a_model_refuses_sequences_without_tokens(make):
    model = LanguageModel(WordEmbedding(9, INPUT_DIM), make(), AdaptiveSoftmax(9, ()))
    model.compile("sgd")
    ids, message = np.ones((2, 0), "int32"), "at least one row and one token. Received: shape="
    for method, arguments in ((model.fit, [ids, ids]), (model.evaluate, [ids, ids]), (model.predict, [ids])):
        refused(method, *arguments, match=message)
    assert np.isfinite(model.get_weights()[0]).all()


def test_mixed_precision_stays_close(body, x):
    expected = body.call(x)
    for dtype, bound in (("bfloat16", 0.05), ("float16", 0.01)):
        layer = built(body.make(dtype=f"mixed_{dtype}"), INPUT_DIM)
        outputs = runner(lambda x, state: (layer(x), layer.step(x, state)[0]))  # noqa: B023
        for actual in outputs(x, layer.initial_state(2, LENGTH)):
            assert actual.dtype == dtype
            error = np.abs(actual.astype("float32") - expected).max()
            assert error < bound * np.abs(expected).max()


@pytest.mark.once
def test_values_that_a_transformer_keeps_for_the_backward_pass():
    """10 vectors, 2 feed-forward rows and 2 rows of attention per head, and a mask for each dropout."""
    for rate, masks in (("", 0), ("dropout", 2 * 8), ("attention_dropout", 2 * LENGTH), ("activation_dropout", 12)):
        body = transformer(num_blocks=3, dim=8, ffn_dim=12, num_heads=2, **({rate: 0.1} if rate else {}))
        assert body.activations_per_token(LENGTH) == 3 * (10 * 8 + 2 * 12 + 2 * 2 * LENGTH + masks)


@pytest.mark.once
def test_the_longest_sequence():
    assert transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2).max_length is None
    assert TransformerDecoder([], 8).max_length is None
    assert TransformerDecoder([], 8, positions=LearnedPositions(5)).max_length == 5
    assert TransformerDecoder([], 8, positions=SinusoidalPositions()).max_length is None


@pytest.mark.once
def test_every_body_is_here():
    public = {layer for layer in vars(layers).values() if isinstance(layer, type) and issubclass(layer, Body)}
    assert public - {Body} <= {type(make()) for make in BODIES.values()}
