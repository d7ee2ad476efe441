"""Graphs of PyTorch's operations answer as the functions that they were traced from, to the last bit."""

import numpy as np
import pytest
from keras import ops

from keras_adaptive.backend import torch_graph
from keras_adaptive.backend.compiled import compiled_part
from keras_adaptive.backend.slice_update import slice_update
from tests.support.backends import BACKEND
from tests.support.tiny import language_model

pytestmark = pytest.mark.skipif(BACKEND != "torch", reason="TensorFlow and JAX compile the whole")


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(torch_graph, "EAGER_CALLS", 1)


def graph_of(function):
    """Returns the only graph of a `TorchGraph`."""
    ((graph, _),) = function._graphs.values()
    return graph


def test_generated_words_do_not_change(at_once, monkeypatch):
    model = language_model()
    draw = lambda: list(model.stream([[4, 5]], 12, seed=1))  # noqa: E731
    traced = draw()
    assert graph_of(model._functions.get(("reader", 1), None)) is not None
    model.word_input.tables[0].assign(model.word_input.tables[0] * 2)  # the weights of every call are the current ones
    changed = draw()
    again = language_model()
    again.set_weights(model.get_weights())
    monkeypatch.setattr(torch_graph, "EAGER_CALLS", 99)
    assert list(again.stream([[4, 5]], 12, seed=1)) == changed != traced


def test_a_cache_is_updated_in_place_only_if_it_is_donated(at_once):
    function = lambda new, state: (ops.sum(state[0]), [slice_update(part, new, 1) for part in state])  # noqa: E731
    for donated in ([1], []):
        part = compiled_part(lambda new, state: function(new, state)[1], donate_argnums=donated)
        for _ in range(2):
            state = [ops.zeros((2, 3, 4)), ops.ones((2, 3, 4))]
            result = part(ops.ones((2, 1, 4)), state)
        assert [one.data_ptr() == other.data_ptr() for one, other in zip(result, state)] == [bool(donated)] * 2
        assert float(ops.sum(result[0])) == 8
    part = compiled_part(function, donate_argnums=[1])  # what another operation reads too is copied
    for _ in range(2):
        state = [ops.zeros((2, 3, 4)), ops.ones((2, 3, 4))]
        total, result = part(ops.ones((2, 1, 4)), state)
    assert [one.data_ptr() == other.data_ptr() for one, other in zip(result, state)] == [False, True]
    assert float(total) == 0


def test_equal_results_stay_separate_and_random_numbers_differ(at_once):
    import torch

    part = compiled_part(lambda x: (x + 1, x + 1, torch.rand(3), torch.rand(3), ops.exp(x) + ops.exp(x)))
    for _ in range(2):
        one, other, first, second, _ = part(ops.ones((3,)))
    assert one.data_ptr() != other.data_ptr() and not torch.equal(first, second)
    assert [str(node.target) for node in graph_of(part).graph.nodes].count("aten.exp.default") == 1


def test_what_depends_on_values_and_other_shapes(at_once):
    branching = compiled_part(lambda x: x + 1 if float(x[0]) > 0 else x - 1)
    for value in (1.0, -1.0, 1.0):
        assert float(branching(ops.full((2,), value))[0]) == value + np.sign(value)
    assert graph_of(branching) is None
    doubled = compiled_part(lambda x: {"twice": x * 2})
    for length in (2, 2, 3, 3):
        assert doubled(ops.ones((length,)))["twice"].tolist() == [2.0] * length
    assert len(doubled._graphs) == 2
