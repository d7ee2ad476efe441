"""Keras' optimizers take steps of this package only while all of their options are known."""

import keras
import pytest

from keras_adaptive.backend import optimizer_step
from keras_adaptive.backend.known_options import has_known_options
from keras_adaptive.optimizers import NAG, AveragedSGD, L2Adam, LazyAdam

OPTIMIZERS = {
    "Adam": lambda: keras.optimizers.Adam(0.1),
    "AdamW": lambda: keras.optimizers.AdamW(0.1),
    "SGD": lambda: keras.optimizers.SGD(0.1),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.1),
}


def add_option(monkeypatch, base):
    """Gives a class of Keras a constructor with another option, as a new version might."""
    constructor = base.__init__

    def with_option(self, *arguments, trust_ratio=None, **options):
        constructor(self, *arguments, **options)

    monkeypatch.setattr(base, "__init__", with_option)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_with_a_new_option_takes_the_steps_of_keras(name, monkeypatch):
    make = OPTIMIZERS[name]
    assert type(optimizer_step._updater(make())) is not type(make())
    add_option(monkeypatch, getattr(keras.optimizers, name))
    assert type(optimizer_step._updater(make())) is type(make())


@pytest.mark.parametrize("make", [NAG, L2Adam, LazyAdam, AveragedSGD])
def test_a_new_option_of_all_optimizers_is_unknown(make, monkeypatch):
    """The options of classes outside of Keras are their own matter."""
    assert has_known_options(make())
    (base,) = (base for base in keras.optimizers.Optimizer.__mro__ if base.__name__ == "BaseOptimizer")
    add_option(monkeypatch, base)
    assert not has_known_options(make())
