import functools

import numpy as np
import pytest
from keras import ops

from keras_adaptive.ops import forget_mult, lstm
from tests.support import oracle
from tests.support.backends import MODES, numpy, runner, value_and_gradients
from tests.support.closeness import all_close, close, close_to_formula, normal, weighted

BATCH, TIME, INPUT, UNITS, OUTPUT = 3, 5, 4, 6, 2


def lstm_arguments(projected, bias=(4 * UNITS,)):
    """x, kernel, recurrent_kernel, bias (of this shape), h, c and, if asked, projection."""
    width = OUTPUT if projected else UNITS
    weights = [0.5 * normal(INPUT, 4 * UNITS), 0.5 * normal(width, 4 * UNITS), normal(*bias)]
    state = [normal(BATCH, width), normal(BATCH, UNITS)]
    return [normal(BATCH, TIME, INPUT), *weights, *state, *([normal(UNITS, OUTPUT)] if projected else [])]


def pooling_arguments():
    return [normal(BATCH, TIME, UNITS), oracle.sigmoid(normal(BATCH, TIME, UNITS, seed=1)), normal(BATCH, UNITS)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "function, exact, arguments",
    [
        (lstm, oracle.lstm, lstm_arguments(False)),
        (lstm, oracle.lstm, lstm_arguments(True)),
        (lstm, oracle.lstm, lstm_arguments(False, (BATCH, 4 * UNITS))),
        (forget_mult, oracle.forget_mult, pooling_arguments()),
    ],
    ids=["lstm", "projected lstm", "lstm with a bias for each row", "forget_mult"],
)
def test_values_and_gradients_of_all_arguments_are_those_of_the_oracle(function, exact, arguments, mode):
    values, formula = functools.partial(weighted, function, ops), functools.partial(weighted, exact, np)
    close_to_formula(values, formula, arguments, mode)


def test_the_arguments_may_be_arrays():
    arguments = pooling_arguments()
    np.testing.assert_allclose(numpy(forget_mult(*arguments)), oracle.forget_mult(*arguments), atol=1e-6)


@pytest.mark.parametrize("projected", [False, True])
def test_segments_continue_one_another(projected):
    x, *weights, h, c = lstm_arguments(projected)[:6]
    projection = lstm_arguments(projected)[6:]
    run = runner(lambda x, h, c: lstm(x, *weights, h, c, *projection))
    whole, *last = run(x, h, c)
    first, h, c = run(x[:, :2], h, c)
    second, h, c = run(x[:, 2:], h, c)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-6)
    all_close((h, c), last, atol=1e-6)


@pytest.mark.parametrize("projected", [False, True])
def test_the_state_is_float32_whatever_the_dtype_of_the_input(projected):
    """A cell that is kept adds up a thousand small values, which bfloat16 would lose."""
    x, *weights, h, c = lstm_arguments(projected)[:6]
    weights[2] = np.repeat([2.0, 40.0, 3.0, 40.0], UNITS).astype("float32")  # i = 0.88, f = o = 1, g near 1
    tensors = [0 * x, 0 * weights[0], 0 * weights[1], weights[2]]
    projection = lstm_arguments(projected)[6:]
    narrow = lambda arrays: [ops.cast(array, "bfloat16") for array in arrays]  # noqa: E731
    run = runner(lambda h, c: lstm(*narrow(tensors), h, c, *narrow(projection)))
    y, h, c = run(h, np.full_like(c, 1000))
    assert h.dtype == c.dtype == "float32"
    np.testing.assert_allclose(c, 1000 + TIME * oracle.sigmoid(2.0) * np.tanh(3.0), rtol=1e-6)


def test_bfloat16_is_near_float32():
    arguments = lstm_arguments(True)

    def narrow(*arguments):
        x, kernel, recurrent_kernel, bias, projection = (ops.cast(arguments[n], "bfloat16") for n in (0, 1, 2, 3, 6))
        y, h, c = lstm(x, kernel, recurrent_kernel, bias, *arguments[4:6], projection)
        return ops.cast(y, "float32"), h, c

    both = [functools.partial(weighted, values, ops) for values in (narrow, lstm)]
    close(*(value_and_gradients(function, arguments) for function in both), 0.05, least=0.0)


def test_published_lstm_with_dropped_recurrent_weights(golden):
    arrays, config = golden("weight_drop")
    weight = {name: arrays[f"param/module.{name}"] for name in ("weight_ih_l0", "bias_ih_l0", "bias_hh_l0")}

    def lstm_of(x, kernel, raw, bias):
        x, recurrent = ops.transpose(x, (1, 0, 2)), ops.transpose(ops.multiply(raw, scale))
        return lstm(x, ops.transpose(kernel), recurrent, bias, arrays["in/h0"][0], arrays["in/c0"][0])

    scale = arrays["aux/mask"] / (1 - config["p"])
    inputs = [arrays["in/x"], weight["weight_ih_l0"], arrays["param/module.weight_hh_l0_raw"]]
    inputs.append(weight["bias_ih_l0"] + weight["bias_hh_l0"])
    y, h, c = runner(lstm_of)(*inputs)
    expected = [np.swapaxes(arrays["out/y"], 0, 1), arrays["out/h_n"][0], arrays["out/c_n"][0]]
    all_close((y, h, c), expected, atol=1e-6)
    upstream = np.swapaxes(arrays["in/cot_out"], 0, 1)
    _, gradients = value_and_gradients(lambda *inputs: ops.sum(ops.multiply(lstm_of(*inputs)[0], upstream)), inputs)
    names = ("x", "module.weight_ih_l0", "module.weight_hh_l0_raw", "module.bias_ih_l0")
    all_close(gradients, [arrays[f"grad/{name}"] for name in names], atol=1e-6)
