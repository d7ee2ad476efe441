"""The private names of Keras that the package relies on, each with what would break without it.

Keras may rename them in any release, so setup.cfg bounds its version. A renamed hook fails here first. Whether
training clips depends on none of them.
"""

import ast
import inspect
from pathlib import Path

import keras
import pytest

PACKAGE = Path(__file__).parents[1] / "keras_adaptive"
BACKEND = keras.config.backend()
# Names of functions and attributes of our own classes that Keras uses for its own classes.
OURS = {"_buffers", "_dtype", "_metrics", "_version"}

# name: (object that must have it, why it is used, backends that have it)
HOOKS = {
    "_maybe_symbolic_build": (
        keras.Model,
        "Under TensorFlow's strategies Keras would build the model by the mean of a batch of ids.",
        {"tensorflow"},
    ),
    "_all_reduce_sum_gradients": (
        keras.optimizers.Optimizer,
        "Gradients are summed over replicas before they are clipped; TensorFlow would sum them again.",
        {"tensorflow"},
    ),
    "_backend_update_step": (
        keras.optimizers.Optimizer,
        "NAG updates all variables by one fused kernel under torch. Without it each is updated by itself.",
        {"tensorflow", "jax", "torch"},
    ),
    "_get_variable_index": (
        keras.optimizers.Optimizer,
        "Finds the momentum of a variable, as the documentation of keras.optimizers.Optimizer shows.",
        {"tensorflow", "jax", "torch"},
    ),
    "_keras_history": (
        keras.Input((1,)),
        "A copied output finds the copy of the embedding that it is tied to in the graph of its input.",
        {"tensorflow", "jax", "torch"},
    ),
    "_inbound_nodes": (
        keras.layers.Dense(1),
        "The same: the calls that made a symbolic tensor.",
        {"tensorflow", "jax", "torch"},
    ),
    "_tracker": (
        keras.layers.Dense(1),
        "A copied output replaces the copy of the embedding that it was made with.",
        {"tensorflow", "jax", "torch"},
    ),
    "_post_build": (
        keras.layers.Dense(1),
        "After that torch lists the parameters of the layer again.",
        {"tensorflow", "jax", "torch"},
    ),
}


@pytest.mark.parametrize("name", HOOKS)
def test_keras_has_the_hook(name):
    owner, reason, backends = HOOKS[name]
    assert reason.endswith(".")
    assert hasattr(owner, name) == (BACKEND in backends)


def private_names(path):
    """The private attributes of a file's code that neither the file nor the package defines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return {name for name in used | defined if name.startswith("_") and not name.startswith("__")}


def names_of_keras():
    owners = [
        keras.Model,
        keras.layers.Layer,
        keras.optimizers.Optimizer,
        keras.metrics.Metric,
        keras.callbacks.Callback,
    ]
    owners += [keras.random.SeedGenerator, keras.optimizers.LossScaleOptimizer]
    instances = [keras.layers.Dense(1), keras.Input((1,)), keras.optimizers.SGD()]
    names = set().union(*(dir(one) for one in [*owners, *(type(one) for one in instances), *instances]))
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_no_other_hook_is_used():
    found = set().union(*(private_names(path) for path in PACKAGE.rglob("*.py"))) & names_of_keras()
    assert found - set(HOOKS) - OURS == set()


def test_clipping_uses_public_names_only():
    from keras_adaptive.models.training_step import TrainingStep

    source = inspect.getsource(TrainingStep._clipped)
    assert "global_clipnorm" in source and "._" not in source.replace("self._clipped", "")
    assert hasattr(keras.optimizers.SGD(), "global_clipnorm")
