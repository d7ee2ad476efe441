import json
import math
from pathlib import Path

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_adaptive.optimizers import NAG, CosineRestarts
from tests.support.refusals import refused

pytestmark = pytest.mark.once


SETTINGS = json.loads(Path(__file__).parents[1].joinpath("golden/cosine_restarts.json").read_text())["configs"]


def from_published(config):
    """The published code's arguments; it takes -1 for "from the minimum" and for "one period until the end"."""
    period, warmup = config["lr_period_updates"], config["warmup_updates"]
    min_rate = min(config["min_lr"], config["lr"])
    return CosineRestarts(
        config["lr"],
        period if period > 0 else config["max_update"] - warmup,
        min_rate=min_rate,
        warmup=warmup,
        warmup_rate=config["warmup_init_lr"] if config["warmup_init_lr"] >= 0 else min_rate,
        period_mult=config["t_mult"],
        shrink=config["lr_shrink"],
    )


def published(golden, setting):
    arrays, config = golden("cosine_restarts")
    rates = arrays[f"lr/{setting}"]
    return from_published(config["configs"][setting]), arrays.get(f"updates/{setting}", np.arange(len(rates))), rates


@pytest.mark.parametrize("setting", SETTINGS)
def test_integers_give_the_published_rates_in_float64(golden, setting):
    schedule, updates, rates = published(golden, setting)
    assert max(abs(schedule(int(t)) - rate) for t, rate in zip(updates, rates, strict=True)) < 1e-10
    assert type(schedule(np.int64(3))) is float
    np.testing.assert_allclose(schedule(updates), rates, rtol=0, atol=1e-10)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.each_backend
def test_tensors_give_the_published_rates_in_float32(golden, setting):
    schedule, updates, rates = published(golden, setting)
    tensor = schedule(ops.convert_to_tensor(updates, "int32"))
    assert keras.backend.standardize_dtype(tensor.dtype) == "float32"
    np.testing.assert_allclose(ops.convert_to_numpy(tensor), rates, rtol=1e-5, atol=1e-11)


@given(
    period=st.integers(1, 40),
    period_mult=st.integers(1, 4),
    warmup=st.integers(0, 9),
    shrink=st.floats(0.1, 1.0),
    t=st.integers(0, 10**7),
)
def test_any_update_agrees_with_walking_through_the_cycles(period, period_mult, warmup, shrink, t):
    rates = {"min_rate": 0.25, "warmup_rate": 0.5, "shrink": shrink}
    schedule = CosineRestarts(2.0, period, warmup=warmup, period_mult=period_mult, **rates)
    if t < warmup:
        expected = 0.5 + 1.5 * t / warmup
    else:
        cycle, length, done = 0, period, t - warmup
        if period_mult == 1:
            cycle, done = divmod(done, period)
        while done >= length:
            cycle, length, done = cycle + 1, length * period_mult, done - length
        expected = shrink**cycle * (0.25 + 1.75 * (1 + math.cos(math.pi * done / length)) / 2)
    assert schedule(t) == pytest.approx(expected, rel=1e-9)
    assert float(schedule(ops.convert_to_tensor(t, "int32"))) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("period, period_mult", [(18_000, 2), (125, 5), (1000, 10), (243, 3)])
def test_every_restart_falls_on_its_update(period, period_mult):
    schedule = CosineRestarts(1.0, period, warmup=16, period_mult=period_mult, shrink=0.5)
    restart = 16
    for cycle in range(5):
        for step in (restart, ops.convert_to_tensor(restart, "int32")):
            assert float(schedule(step)) == 0.5**cycle
            assert cycle == 0 or float(schedule(step - 1)) < 0.01 * 0.5**cycle
        restart += period * period_mult**cycle


def test_integers_stay_exact_where_float32_does_not():
    period = 2**25 + 1
    expected = (1 + math.cos(math.pi * 2**24 / (2 * period))) / 2
    assert CosineRestarts(1.0, period, period_mult=2)(period + 2**24) == pytest.approx(expected, rel=1e-12)


@pytest.mark.each_backend
def test_an_optimizer_takes_the_schedule_and_its_copy():
    schedule = CosineRestarts(1.0, 4, min_rate=0.1, warmup=3, period_mult=2, shrink=0.5)
    copied = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    variable = keras.Variable([0.0])
    optimizer = NAG(copied, momentum=0.0)
    for _ in range(9):
        optimizer.apply([ops.ones(1)], [variable])
    assert float(variable.numpy()[0]) == pytest.approx(-sum(schedule(t) for t in range(9)), rel=1e-6)


BAD = [("max_rate", 0.0), ("min_rate", -0.1), ("min_rate", 1.5), ("period", 0), ("period", 2.5), ("warmup", -1)]
BAD += [("warmup", 1.5), ("warmup_rate", -1), ("period_mult", 0.5), ("shrink", 0.0), ("shrink", 1.1)]


@pytest.mark.parametrize("name, value", BAD)
def test_bad_arguments_are_named(name, value):
    message = refused(CosineRestarts, **{"max_rate": 1.0, "period": 10, name: value}, match=f"^`.*{name}.* Received: ")
    received = "min_rate=1.5, max_rate=1.0" if value == 1.5 and name == "min_rate" else f"{name}={value}"
    assert received in message.split("Received: ")[1]


def test_boundaries_are_allowed():
    """A warm-up of a single update from 0, a period of one update that never grows, and no decay."""
    schedule = CosineRestarts(2.0, 1, warmup=1, warmup_rate=0, min_rate=2.0)
    assert [schedule(update) for update in range(4)] == [0.0, 2.0, 2.0, 2.0]
    config = CosineRestarts(1.0, 10).get_config()
    assert (config["warmup_rate"], config["period_mult"]) == (1e-7, 1)
