import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.callbacks import SGDR
from keras_adaptive.optimizers import NAG, CosineRestarts

RUNS = {  # run of tests/golden/nag.json -> (what its schedule has of its own, the optimizer's arguments)
    "clip0.1_min1e-4": ({}, {"global_clipnorm": 0.1}),
    "clip0.1_min1e-5": ({"min_rate": 1e-5}, {"global_clipnorm": 0.1}),
    "clip0.1_wd0.01": ({}, {"global_clipnorm": 0.1, "weight_decay": 0.01}),
    "noclip_lr0.01": ({"max_rate": 0.01}, {}),
    "clip0.1_nowarmup": ({"warmup": 0}, {"global_clipnorm": 0.1}),
}
PUBLISHED = {"max_rate": 1.0, "period": 20, "min_rate": 1e-4, "warmup": 10, "period_mult": 2, "shrink": 0.75}


@keras.saving.register_keras_serializable(package="test_sgdr")
def output_times_target(targets, outputs):
    return ops.mean(outputs * targets)


class Toy(keras.layers.Layer):
    """The function of two parameters that the published runs minimise."""

    def __init__(self, a, b):
        super().__init__()
        self.a = self.add_weight(shape=a.shape, initializer=keras.initializers.Constant(a.tolist()))
        self.b = self.add_weight(shape=b.shape, initializer=keras.initializers.Constant(b.tolist()))

    def call(self, inputs):
        quadratic = ops.sum(ops.multiply([4, 1, 0.25], ops.square(ops.subtract(self.a, [1, -2, 3]))))
        product = ops.matmul(self.b, ops.expand_dims(self.a[:2], -1))[:, 0]
        bilinear = 3 * ops.sum(ops.square(ops.subtract(product, [0.5, -1])))
        return inputs + quadratic + bilinear + 0.1 * ops.sum(ops.sin(5 * self.b))


class Trace(keras.callbacks.Callback):
    """Copies what the update used and where it got to."""

    def __init__(self):
        super().__init__()
        self.rates, self.logged, self.weights = [], [], []

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        self.rates.append(float(ops.convert_to_numpy(optimizer.learning_rate)))
        self.logged.append(logs["learning_rate"])
        self.weights.append([weight.copy() for weight in self.model.get_weights()])


def fit(model, optimizer, schedule, updates, trace=None, epochs=1):
    model.compile(optimizer, loss=output_times_target)
    zeros, ones = np.zeros((updates, 1), "float32"), np.ones((updates, 1), "float32")
    callbacks = [SGDR(schedule), *([trace] if trace else [])]
    return model.fit(zeros, ones, batch_size=1, epochs=epochs, verbose=0, callbacks=callbacks)


def line():
    """A model whose weight is minus the sum of the rates."""
    layer = keras.layers.Dense(1, kernel_initializer="zeros", bias_initializer="zeros")
    return keras.Sequential([keras.layers.Input((1,)), layer])


@pytest.mark.parametrize("run", RUNS)
def test_fit_follows_the_published_trajectory(golden, run):
    arrays = golden("nag").arrays
    schedule, kwargs = RUNS[run]
    inputs = keras.Input((1,))
    model = keras.Model(inputs, Toy(arrays["init/a"], arrays["init/b"])(inputs))
    trace = Trace()
    fit(model, NAG(1.0, momentum=0.99, **kwargs), CosineRestarts(**{**PUBLISHED, **schedule}), 50, trace)
    np.testing.assert_allclose(trace.logged, arrays[f"{run}/lr"], rtol=0, atol=1e-10)
    for step, (a, b) in enumerate(trace.weights):
        np.testing.assert_allclose(a, arrays[f"{run}/a"][step], rtol=5e-5, atol=5e-6)
        np.testing.assert_allclose(b, arrays[f"{run}/b"][step], rtol=5e-5, atol=5e-6)


def test_every_update_uses_its_own_rate():
    rates = [0.5, 0.0, 0.0, 0.25, 2.0, 0.125]
    model, trace = line(), Trace()
    history = fit(model, keras.optimizers.SGD(1.0), rates.__getitem__, 3, trace, epochs=2)
    assert trace.rates == trace.logged == rates
    reached = [float(bias[0]) for _, bias in trace.weights]
    np.testing.assert_allclose(reached, -np.cumsum(rates), rtol=1e-6)
    assert history.history["learning_rate"] == [0.0, 0.125]


@pytest.mark.once
def test_a_loaded_model_goes_on_in_the_schedule(tmp_path):
    schedule = CosineRestarts(1.0, 4, warmup=3, period_mult=2, shrink=0.5)
    model = line()
    fit(model, NAG(1.0), schedule, 5)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    zeros, trace = np.zeros((4, 1), "float32"), Trace()
    loaded.fit(zeros, zeros, batch_size=1, verbose=0, callbacks=[SGDR(schedule), trace])
    assert trace.logged == [schedule(t) for t in range(5, 9)]


def test_skipped_updates_do_not_advance_the_schedule():
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=2.0)
    model, trace, rates = line(), Trace(), [0.5, 0.25, 0.125]
    model.compile(optimizer, loss=output_times_target)
    targets = np.float32([[1], [np.inf], [1], [1]])
    callbacks = [SGDR(rates.__getitem__), trace]
    model.fit(np.zeros((4, 1)), targets, batch_size=1, shuffle=False, verbose=0, callbacks=callbacks)
    assert trace.logged == [0.5, 0.25, 0.25, 0.125]
    assert float(model.get_weights()[1][0]) == -0.875


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="torch has no steps_per_execution")
def test_several_steps_per_execution_are_refused():
    model = line()
    model.compile(NAG(1.0), loss="mse", steps_per_execution=2)
    with pytest.raises(ValueError, match="steps_per_execution=2"):
        model.fit(np.zeros((4, 1)), np.zeros((4, 1)), verbose=0, callbacks=[SGDR(lambda update: 0.1)])


@pytest.mark.once
def test_any_keras_schedule_will_do():
    trace = Trace()
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.25])
    fit(line(), keras.optimizers.SGD(1.0), schedule, 4, trace)
    assert trace.logged == [0.5, 0.5, 0.25, 0.25]


@pytest.mark.once
def test_a_factor_multiplies_the_rate_of_its_update():
    """The factor is an iterator, which every update reads once."""
    model, trace = line(), Trace()
    model.compile(keras.optimizers.SGD(1.0), loss=output_times_target)
    callbacks = [SGDR([0.5, 0.25].__getitem__, iter([1.0, 0.5]).__next__), trace]
    model.fit(np.zeros((2, 1)), np.ones((2, 1)), batch_size=1, verbose=0, callbacks=callbacks)
    assert trace.rates == trace.logged == [0.5, 0.125]
