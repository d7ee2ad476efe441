"""The private names of Keras that the package relies on, each with what would break without it.

Keras may rename them in any release, so setup.cfg bounds its version. A renamed hook fails here first. Whether
training clips depends on none of them.
"""

import ast
import functools
import inspect
from pathlib import Path

import keras
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
SOURCES = [path for folder in ("keras_adaptive", "trainers") for path in sorted((ROOT / folder).rglob("*.py"))]
BACKEND = keras.config.backend()
# Names of functions and attributes of our own classes that Keras uses for its own classes.
OURS = {"_buffers", "_dtype", "_version"}

VARIABLE = keras.Variable(0.0)
COMPILED = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
COMPILED.compile("sgd", "mse", metrics=["mae"], run_eagerly=True)
COMPILED.test_on_batch(np.zeros((1, 1)), np.zeros((1, 1)))  # builds the loss and the metrics
BY_STRING = {"getattr", "setattr", "hasattr", "delattr"}

DENSE = keras.layers.Dense(1)
CALL = DENSE(keras.Input((1,)))._keras_history.operation._inbound_nodes[0]
BUILT = COMPILED.layers[0]
METRIC = keras.metrics.MeanMetricWrapper(abs)
HOOKS = {  # name: (object that must have it, why it is used)
    "_maybe_symbolic_build": (
        keras.Model,
        "With TensorFlow's strategies Keras would build a model by the mean of ids.",
    ),
    "_symbolic_build": (keras.Model, "Under JAX it gets the batches of `fit` before their integers are narrowed."),
    "_convert_inputs_to_tensors": (
        COMPILED._functional,
        "Inputs of 64 bits are clipped before Keras makes them int32.",
    ),
    "_all_reduce_sum_gradients": (
        keras.optimizers.Optimizer,
        "Gradients are summed before they are clipped, and once.",
    ),
    "_backend_update_step": (keras.optimizers.Optimizer, "NAG updates all variables by one fused kernel under torch."),
    "_get_variable_index": (keras.optimizers.Optimizer, "Finds the momentum of a variable, as Keras documents it."),
    "_keras_history": (keras.Input((1,)), "A copied output finds the copy of the embedding that it is tied to."),
    "_inbound_nodes": (DENSE, "The same: the calls that made a symbolic tensor."),
    "_tracker": (DENSE, "A copied output replaces the copy of the embedding that it was made with."),
    "replace_tracked_value": (DENSE._tracker, "Does so, since that copy would be trained and saved too."),
    "unlock": (DENSE._tracker, "A built layer replaces its matrices by integers, as Keras does in `quantize`."),
    "lock": (DENSE._tracker, "After that it accepts no more weights."),
    "_untrack_variable": (DENSE, "The replaced matrices are no longer weights of the layer."),
    "_post_quantize": (keras.Model, "After that torch lists the parameters of all layers again."),
    "_kernel": (BUILT, "A dense layer holds its matrix there, where `quantize` replaces it."),
    "input_tensors": (CALL, "The inputs of such a call, from which the search continues."),
    "_post_build": (DENSE, "After that torch lists the parameters of the layer again."),
    "_get_call_context": (DENSE, "An output finds the model that calls it, whose loss may read probabilities."),
    "_losses": (DENSE, "Replicas of TensorFlow share the list of added losses, but each must keep its own."),
    "_loss_ids": (DENSE, "A layer under JAX would take the loss of another for its own of the program before."),
    "_flatten_layers": (keras.Model, "The same under JAX, where `fit` calls the layers: whether the output is one."),
    "_compile_loss": (COMPILED, "The losses of the model, as Keras resolves them."),
    "_metrics": (keras.layers.Layer(), "An output gets a metric at its first call, after Keras has locked it."),
    "_compile_metrics": (COMPILED, "Its metrics."),
    "_flat_losses": (COMPILED._compile_loss, "Each of these losses, with the output that it reads."),
    "_y_pred_build_structure": (COMPILED._compile_loss, "The structure in which the losses find their outputs."),
    "_flat_metrics": (COMPILED._compile_metrics, "The metrics of each output."),
    "_flat_weighted_metrics": (COMPILED._compile_metrics, "The same, weighted."),
    "_flatten_y": (COMPILED._compile_metrics, "The outputs in the order of the metrics."),
    "_fn": (METRIC, "The function of a metric."),
    "_fn_kwargs": (METRIC, "Its arguments."),
    "_value": (VARIABLE, "An error in a step would lose the weights, which Keras removes during `fit` under JAX."),
    "_initializer": (VARIABLE, "Weights that are read from a file start from zeros, which take no time."),
    "_deferred_initialize": (VARIABLE, "The variables of a model that was built without memory are allocated."),
}
ON_TENSORFLOW = {"_maybe_symbolic_build", "_all_reduce_sum_gradients"}  # only


@pytest.mark.parametrize("name", HOOKS)
def test_keras_has_the_hook(name):
    owner, reason = HOOKS[name]
    assert reason.endswith(".")
    assert hasattr(owner, name) == (BACKEND == "tensorflow" or name not in ON_TENSORFLOW)


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def private_names(source):
    """Returns the private names that code uses or defines, and the names that it asks of private attributes.

    Names are those of attributes, also as strings for `getattr` and its like, of keyword arguments, since they may
    become attributes, of functions and of classes.
    """
    nodes = list(ast.walk(ast.parse(source)))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    names = {node.attr for node in attributes}
    names |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    names |= {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_STRING:
            names |= {one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    names = {name for name in names if is_private(name)}
    return names | {node.attr for node in attributes if owner_of(node) in names & names_of_keras()}


def owner_of(node):
    """Returns the attribute that an attribute is asked of, as `_nodes` in `x._nodes[0].inputs`, or None."""
    owner = node.value.value if isinstance(node.value, ast.Subscript) else node.value
    return owner.attr if isinstance(owner, ast.Attribute) else None


@functools.cache
def names_of_keras():
    owners = [keras.Model, keras.layers.Layer, keras.metrics.Metric, keras.callbacks.Callback]
    owners += [keras.optimizers.Optimizer, keras.random.SeedGenerator, keras.optimizers.LossScaleOptimizer]
    instances = [DENSE, keras.Input((1,)), keras.optimizers.SGD(), VARIABLE]
    instances += [COMPILED, COMPILED._compile_loss, COMPILED._compile_metrics, METRIC]
    names = set().union(*(dir(one) for one in [*owners, *(type(one) for one in instances), *instances]))
    return {name for name in names if is_private(name)}


def hooks_of(source):
    """Returns the names in a source that are private to Keras, or asked of what is."""
    return {name for name in private_names(source) if name in names_of_keras() or not is_private(name)}


@pytest.mark.once
def test_hooks_and_what_is_asked_of_them_are_found():
    uses = [
        "model._tracker",
        "def _tracker(self): pass",
        "view(optimizer, _tracker=None)",
        "hasattr(model, '_tracker')",
    ]
    for line in (*uses, "getattr(model, '_tracker', None)", "setattr(model, '_tracker', 1)"):
        assert hooks_of(line) == {"_tracker"}, line
    assert hooks_of("x._tracker.stored_ids") == {"_tracker", "stored_ids"}
    assert hooks_of("x._inbound_nodes[0].outputs") == {"_inbound_nodes", "outputs"}
    assert hooks_of("self._ours_alone.public, x.public, f(public=1), getattr(x, 'public')") == set()


@pytest.mark.once
def test_no_other_hook_is_used():
    sources = [path.read_text(encoding="utf-8") for path in SOURCES]
    assert set().union(*map(hooks_of, sources)) - set(HOOKS) - OURS == set()
    assert set(HOOKS) - set().union(*map(private_names, sources)) == set()  # a hook without a use is not needed here


def test_a_tracker_replaces_a_layer():
    layer, old, new = keras.layers.Layer(), keras.layers.Dense(1), keras.layers.Dense(1)
    layer.part = old
    layer._tracker.replace_tracked_value("layers", old, new)
    assert layer._layers == [new]


@pytest.mark.once
def test_clipping_uses_public_names_only():
    from keras_adaptive.models.training_step import TrainingStep

    source = inspect.getsource(TrainingStep._clipped)
    assert "global_clipnorm" in source and "._" not in source.replace("self._clipped", "")
    assert hasattr(keras.optimizers.SGD(), "global_clipnorm")
