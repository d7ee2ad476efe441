"""LSTMDecoder and QRNNDecoder against the published implementations, and what only recurrent bodies have."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import (
    AdaptiveSoftmax,
    LSTMDecoder,
    QRNNDecoder,
    RecurrentDropout,
    SeededDropout,
    VariationalDropout,
    WeightDrop,
    WordEmbedding,
)
from keras_adaptive.models import LanguageModel
from tests.support import closeness, oracle, weights
from tests.support.backends import numpy, runner, weight_gradients
from tests.support.weights import value

ROWS, LENGTH, INPUT_DIM = 2, 7, 4


close = functools.partial(closeness.close, tolerance=1e-5, least=0.0)


def vectors():
    return np.random.default_rng(0).normal(size=(ROWS, LENGTH, INPUT_DIM)).astype("float32")


def built(body):
    return weights.built(body, INPUT_DIM)


def test_published_awd_lstm(golden):
    """The whole model: its objective, with both penalties, and the gradient of every weight."""
    arrays, config = golden("awd_lstm")
    words, inner, dim = config["vocab"], config["layer_sizes"][0][1], config["emb"]
    table = WordEmbedding(words, dim)
    body = LSTMDecoder(config["layers"], inner, dim, penalties=(2.0, 1.0))
    softmax = AdaptiveSoftmax(words, config["splits"], tied_to=table, use_bias=True)
    model = LanguageModel(table, body, softmax)
    known = {  # published name: our variable, and what maps the published array to ours
        "encoder.weight": (table.tables[0], np.asarray),
        "decoder.bias": (softmax.bias, np.asarray),
        "criterion.tail_vectors": (softmax.class_table, np.flipud),  # published: the first tail is the last column
        "criterion.tail_bias": (softmax.class_bias, np.flipud),
    }
    for number, layer in enumerate(body.recurrent_layers):
        known[f"rnns.{number}.weight_ih_l0"] = layer.kernel, np.transpose
        known[f"rnns.{number}.weight_hh_l0"] = layer.recurrent_kernel, np.transpose
        known[f"rnns.{number}.bias_ih_l0"] = layer.bias, np.asarray
    for name, (variable, ours) in known.items():
        variable.assign(ours(arrays[f"param/{name}"]))
    for number, layer in enumerate(body.recurrent_layers):
        layer.bias.assign_add(arrays[f"param/rnns.{number}.bias_hh_l0"])
    assert len(known) == len(model.trainable_variables)
    state = [(arrays[f"in/h0_{i}"][0], arrays[f"in/c0_{i}"][0]) for i in range(config["layers"])]
    state = keras.tree.map_structure(ops.convert_to_tensor, state)
    ids, targets = arrays["in/ids"].T.astype("int32"), arrays["in/targets"].reshape(LENGTH, -1).T.astype("int32")

    hidden, last = runner(lambda ids, state: model(ids, state=state))(ids, state)
    close(np.swapaxes(hidden, 0, 1), arrays["out/raw_2"])
    close(last, [(arrays[f"out/h_{i}"][0], arrays[f"out/c_{i}"][0]) for i in range(config["layers"])])

    shares = ops.full(ids.shape, 1 / ids.size, "float32")
    objective = lambda: model._objective(ids, targets, shares, state, 1.0, ops.ones(2))[0]  # noqa: E731
    found, gradients = weight_gradients(objective, [variable for variable, _ in known.values()])
    assert found == pytest.approx(arrays["out/loss"] + arrays["out/ar"] + arrays["out/tar"], rel=1e-6)
    for (name, (_, ours)), gradient in zip(known.items(), gradients, strict=True):
        expected = ours(arrays[f"grad/{name}"])
        if name == "encoder.weight":  # published: the padding index −1, so that the last word has no input gradient
            assert words - 1 in ids
            gradient, expected = gradient[:-1], expected[:-1]
        close(gradient, expected)


def test_published_qrnn(golden):
    arrays, config = golden("qrnn")
    body = QRNNDecoder(1, 6, 6, window=config["window"])
    assert config["output_gate"]
    x, h0 = np.swapaxes(arrays["in/x"], 0, 1), arrays["in/h0"]
    body.build(x.shape)
    (layer,) = body.recurrent_layers
    layer.kernel.assign(arrays["param/linear.weight"].T)
    layer.bias.assign(arrays["param/linear.bias"])

    def loss(x, cells):
        y, ((cells, _),) = body.step(x, [(cells, body.initial_state(len(h0))[0][1])])
        of_y, of_cells = (ops.convert_to_tensor(arrays[f"in/{name}"]) for name in ("cot_out", "cot_h"))
        return ops.sum(y * ops.swapaxes(of_y, 0, 1)) + ops.sum(cells * of_cells[0])

    y, ((cells, last),) = runner(body.step)(x, [(h0, np.zeros_like(x[:, 0]))])
    np.testing.assert_allclose(np.swapaxes(y, 0, 1), arrays["out/y"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(cells, arrays["out/h_n"][0], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(last, x[:, -1])
    _, (kernel, bias, of_x, of_h0) = weight_gradients(loss, [layer.kernel, layer.bias], [x, h0])
    found = {"linear.weight": kernel.T, "linear.bias": bias, "x": np.swapaxes(of_x, 0, 1), "h0": of_h0}
    close(list(found.values()), [arrays[f"grad/{name}"] for name in found], tolerance=2e-6)


def test_a_hidden_to_hidden_matrix_has_one_mask_for_all_steps():
    body, x = built(LSTMDecoder(1, 5, 3, weight_dropout=0.5)), vectors()
    (layer,) = body.recurrent_layers
    ones = np.ones(layer.recurrent_kernel.shape, "float32")
    mask = numpy(WeightDrop(0.5, seed=layer._drop.seed)(ones, training=True))
    assert set(np.unique(mask)) == {0, 2}
    kernel, recurrent_kernel, bias = (value(one) for one in (layer.kernel, layer.recurrent_kernel, layer.bias))
    start = np.zeros((ROWS, 3)), np.zeros((ROWS, 3))
    run = runner(lambda x: body.step(x, body.initial_state(ROWS), training=True)[0])
    close(run(x), oracle.lstm(x, kernel, recurrent_kernel * mask, bias, *start)[0])
    evaluated, _ = runner(body.step)(x, body.initial_state(ROWS))
    close(evaluated, oracle.lstm(x, kernel, recurrent_kernel, bias, *start)[0])


def test_zoneout_keeps_cells_and_weight_drop_thins_the_input_matrix():
    body, x = built(QRNNDecoder(1, 5, 3, zoneout=0.4, weight_dropout=0.5)), vectors()
    (layer,) = body.recurrent_layers
    ones = np.ones(layer.kernel.shape, "float32"), np.ones((ROWS, LENGTH, 3), "float32")
    mask = numpy(WeightDrop(0.5, seed=layer._drop_weights.seed)(ones[0], training=True))
    updates = numpy(SeededDropout(0.4, seed=layer._drop_updates.seed)(ones[1], training=True)) > 0
    assert 0 < updates.mean() < 1

    def expected(mask, updates):
        z, f, o = np.split(x @ (value(layer.kernel) * mask) + value(layer.bias), 3, axis=-1)
        cells = oracle.forget_mult(np.tanh(z), oracle.sigmoid(f) * updates, np.zeros((ROWS, 3)))
        return oracle.sigmoid(o) * cells

    run = runner(lambda x: body.step(x, body.initial_state(ROWS), training=True)[0])
    close(run(x), expected(mask, updates))
    evaluated, _ = runner(body.step)(x, body.initial_state(ROWS))
    close(evaluated, expected(1.0, 0.6))


@pytest.mark.parametrize("variational", [True, False])
def test_dropout_of_the_input_between_layers_and_of_the_hidden_states(variational):
    """A mask is shared by all tokens of a row, or each token has its own."""
    x, dropout_class = vectors(), VariationalDropout if variational else SeededDropout
    places = [[0.5 * (place == other) for other in range(3)] for place in range(3)]
    bodies = [built(QRNNDecoder(2, 5, 3, dropout=RecurrentDropout(*rates, variational))) for rates in places]
    outputs = runner(lambda x: [body.step(x, body.initial_state(ROWS), training=True)[0] for body in bodies])(x)
    for place, (rates, body, output) in enumerate(zip(places, bodies, outputs, strict=True)):
        drops = [body._drop_input, body._drop_between, body._drop_output]
        assert [drop.rate for drop in drops] == rates
        ones = np.ones((ROWS, LENGTH, (INPUT_DIM, 5, 3)[place]), "float32")
        mask = numpy(dropout_class(0.5, seed=drops[place].seed)(ones, training=True))
        assert variational == bool(np.all(mask == mask[:, :1]))
        y = x
        for number, layer in enumerate(body.recurrent_layers):
            y = y * mask if place == number else y
            y, _ = oracle.qrnn(y, value(layer.kernel), value(layer.bias), np.zeros((ROWS, layer.units)))
        close(output, y * mask if place == 2 else y)


def test_penalties_are_of_dropped_activations_and_of_changes_before_dropout():
    rates, x = (0.0, 0.0, 0.5), vectors()
    body = built(QRNNDecoder(1, 5, 3, dropout=rates, penalties=(2.0, 3.0)))
    run = runner(lambda x: (body.step(x, body.initial_state(ROWS), training=True)[0], penalties_of(body)))
    dropped, (of_activations, of_changes) = run(x)
    raw = runner(lambda x: body.step(x, body.initial_state(ROWS))[0])(x)
    assert of_activations == pytest.approx(2.0 * np.mean(dropped**2), rel=1e-5)
    assert of_changes == pytest.approx(3.0 * np.mean(np.diff(raw, axis=1) ** 2), rel=1e-5)
    assert np.mean(dropped == 0) > 0.1 and not np.any(raw == 0)


def penalties_of(body):
    """Returns the penalties of activations and of changes."""
    return [loss for layer in (body._penalize_activations, body._penalize_changes) for loss in layer.losses]


@pytest.mark.parametrize("body", [LSTMDecoder(1, 5, 3), QRNNDecoder(1, 5, 3, window=2)], ids=["lstm", "qrnn"])
def test_the_state_is_float32_under_mixed_precision(body):
    """A bfloat16 cell would lose the step from 256 to 257."""
    body = type(body).from_config({**body.get_config(), "dtype": "mixed_bfloat16"})
    body.build((None, None, INPUT_DIM))
    open_forget_gate = [-40.0, 40.0, 0.0, 0.0] if isinstance(body, LSTMDecoder) else [0.0, -40.0, 0.0]
    (layer,) = body.recurrent_layers
    for variable in layer.trainable_variables:
        variable.assign(np.zeros(variable.shape))
    layer.bias.assign(np.repeat(open_forget_gate, 3))
    start = [tuple(np.full(part.shape, 257, "float32") for part in body.initial_state(ROWS)[0])]
    y, state = runner(body.step)(vectors(), start)
    assert y.dtype == "bfloat16" and all(part.dtype == "float32" for part in state[0])
    np.testing.assert_array_equal(state[0][1 if isinstance(body, LSTMDecoder) else 0], 257)


@pytest.mark.parametrize("cls", [LSTMDecoder, QRNNDecoder])
def test_configs_hold_rates_and_penalties_by_name(cls):
    """As in files of models from before they were grouped."""
    names = {"variational": False, "activation_penalty": 2.0, "temporal_penalty": 1.0}
    former = {"num_layers": 2, "units": 5, "output_dim": 3, **names, "weight_dropout": 0.5}
    former |= {"output_gate": True} if cls is QRNNDecoder else {}
    body = cls.from_config({**former, "dropout": [0.1, 0.2, 0.3]})
    assert body.dropout == RecurrentDropout(0.1, 0.2, 0.3, False) and body.penalties == (2.0, 1.0)
    assert {name: body.get_config()[name] for name in names} == names
    assert cls.from_config({**former, "dropout": 0.4}).dropout == RecurrentDropout(0.4, 0.4, 0.4, False)


@pytest.mark.parametrize("body", [LSTMDecoder(2, 5, 3), QRNNDecoder(2, 5, 3, window=2)], ids=["lstm", "qrnn"])
def test_a_state_may_be_arrays(body):
    body, x = built(body), vectors()
    first, state = body.step(x[:, :4], numpy(body.initial_state(ROWS)))
    rest, _ = body.step(x[:, 4:], numpy(state))
    np.testing.assert_allclose(numpy(ops.concatenate([first, rest], axis=1)), numpy(body(x)), atol=1e-6)


@pytest.mark.once
def test_the_forget_gates_of_an_lstm_start_open():
    body = LSTMDecoder(1, 5, 3, projection_dim=2)
    body.build((None, None, INPUT_DIM))
    (layer,) = body.recurrent_layers
    np.testing.assert_array_equal(value(layer.bias), np.repeat([0, 1, 0, 0], 5))
    for matrix in (layer.kernel, layer.recurrent_kernel, layer.projection):
        assert 0.3 < np.abs(value(matrix)).max() <= 5**-0.5


PUBLISHED = {  # Merity et al. 2018, Jozefowicz et al. 2016: the body, the dimension of its input, the parameters
    "AWD-QRNN, WikiText-103": (QRNNDecoder, (4, 2500, 400), {}, 43_523_700),
    "AWD-QRNN, WikiText-103, window 2": (QRNNDecoder, (4, 2500, 400), {"window": 2}, 46_523_700),
    "AWD-QRNN, enwik8": (QRNNDecoder, (4, 1800, 400), {"window": 2}, 25_937_400),
    "AWD-LSTM, enwik8": (LSTMDecoder, (3, 1840, 400), {}, 47_171_520),
    "AWD-LSTM, char PTB": (LSTMDecoder, (3, 1000, 200), {}, 13_768_800),
    "BIG LSTM": (LSTMDecoder, (2, 8192, 1024), {"projection_dim": 1024}, 2 * 75_530_240),
}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.once
def test_sizes_of_the_published_models(name):
    make, (layers, units, dim), options, expected = PUBLISHED[name]
    with keras.StatelessScope(initialize_variables=False):
        body = make(layers, units, dim, **options)
        body.build((None, None, dim))
    assert body.count_params() == expected


@pytest.mark.once
def test_values_that_are_kept_for_the_backward_pass():
    """An LSTM keeps four gates, cells and outputs; a QRNN values, gates, cells and outputs; both, dropped values."""
    for body, expected in (
        (LSTMDecoder(2, 5, 3), 6 * 5 + 6 * 3),
        (LSTMDecoder(2, 5, 3, projection_dim=4), 2 * 5 * 5 + 4 + 3),
        (LSTMDecoder(2, 5, 3, dropout=0.1), 7 * 5 + 7 * 3),
        (QRNNDecoder(2, 5, 3), 5 * 5 + 5 * 3),
        (QRNNDecoder(2, 5, 3, zoneout=0.1, dropout=(0.1, 0, 0.1)), 6 * 5 + 7 * 3),
    ):
        assert body.activations_per_token(LENGTH) == expected
