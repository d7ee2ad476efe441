"""What Keras, TensorFlow, XLA and torch still do wrong or slowly. A test that fails names the code to remove.

The workarounds themselves are tested beside the modules that they are in. Their docstrings have the measured gain.
"""

import gc
import inspect
import weakref

import keras
import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import CharCNN
from keras_adaptive.ops import active_rows, map_rows
from keras_adaptive.special_words import SPECIAL_WORDS
from tests.support.backends import BACKEND, graph_operations, torch_operations
from tests.support.steps import apply

on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="a workaround for TensorFlow")
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="a workaround for JAX and XLA")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="a workaround for torch")

X = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")


def names_of_operations(function):
    """Returns the names of the operations of torch that a function runs."""
    return [name for name, _ in torch_operations(function)]


@on_torch
@pytest.mark.parametrize("name, kernel", [("Adam", "_fused_adam_"), ("SGD", "_fused_sgd_")])
def test_keras_takes_no_fused_steps(name, kernel):
    optimizer, variable = getattr(keras.optimizers, name)(0.1), keras.Variable(np.ones(3))
    names = names_of_operations(lambda: apply(optimizer, [variable], [np.ones(3)]))
    assert kernel not in names, f"Keras' {name} is fused now: compare it with `fused_step`, and remove what it equals."


@on_torch
def test_fused_kernels_ignore_strides():
    import torch

    variable, gradient = torch.zeros(3, 2).t(), torch.arange(6.0).reshape(2, 3)
    torch._fused_sgd_([variable], [gradient], [], weight_decay=0.0, momentum=0.0, lr=1.0, dampening=0.0,
                      nesterov=False, maximize=False, is_first_step=True)  # fmt: skip
    assert not torch.equal(variable, -gradient), "Fused kernels read strides now: let `fused_step` take all tensors."


@on_torch
def test_dense_adds_its_bias_in_a_second_pass():
    layer = keras.layers.Dense(4)
    layer.build(X.shape)
    names = names_of_operations(lambda: layer(ops.convert_to_tensor(X)))
    assert "add" in names and "addmm" not in names, (
        "Keras' Dense adds its bias within the product now: remove `_torch_call`."
    )


@on_torch
def test_dropout_draws_bernoulli_numbers():
    names = names_of_operations(lambda: keras.random.dropout(ops.convert_to_tensor(X), 0.5, seed=1))
    assert any("bernoulli" in name for name in names), "Keras' dropout has changed: compare it with backend/dropout.py."


def saved_arrays(function, *arguments):
    """Returns the arrays of the shape of the first argument that JAX keeps for the gradients of a function."""
    import jax

    _, pull = jax.vjp(function, *arguments)
    return [array for array in jax.tree.leaves(pull) if np.shape(array) == arguments[0].shape]


@on_jax
def test_normalization_keeps_several_arrays():
    keras_keeps = saved_arrays(lambda *given: ops.layer_normalization(*given, -1, 1e-5), X, np.ones(3), np.zeros(3))
    assert len(keras_keeps) > 1, "Keras' layer_normalization keeps one array now: remove ops/normalization.py."


@on_jax
def test_relu_does_not_keep_its_result():
    kept = saved_arrays(ops.relu, ops.convert_to_tensor(X))
    assert not any(np.array_equal(array, np.maximum(X, 0)) for array in kept), (
        "Keras' relu keeps its result now: remove ops/relu.py."
    )


@on_jax
def test_layers_remember_the_losses_of_former_programs():
    layer = keras.layers.ActivityRegularization(l2=1.0)
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile("sgd", "mse")
    model.train_on_batch(np.ones((2, 1)), np.ones((2, 1)))
    assert layer._loss_ids, "Keras forgets added losses now: remove `_forget_losses`."


@on_jax
def test_numbers_of_64_bits_wrap():
    wrapped = int(ops.convert_to_tensor(np.array(2**32 + 5)))
    assert wrapped == 5, "64-bit integers do not wrap now: remove `saturated` in backend/wide_ids.py."


def program(function, *arguments, **options):
    """Returns the program that XLA makes of a function."""
    import jax

    return jax.jit(function, **options).lower(*map(ops.convert_to_tensor, arguments)).compile().as_text()


@on_jax
def test_a_slot_is_copied_that_is_read_before_its_update():
    def step(table, slot, ids, values):
        return table.at[ids].add(values / slot[ids]), slot.at[ids].add(values)

    tables = np.ones((2, 1_000, 3), "float32")
    text = program(step, *tables, np.arange(4), np.ones((4, 3), "float32"), donate_argnums=(0, 1))
    assert " copy(" in text, "XLA reads a slot before it updates it now: remove `computed_after`."


@on_jax
def test_a_single_row_is_processed_before_its_loop(monkeypatch):
    monkeypatch.setattr(active_rows, "computed_in_loop", lambda index, step: index)

    def products(x, active):
        body = lambda rows, live, carry: ([ops.matmul(rows[0], np.ones((3, 4), "float32"))], carry)  # noqa: E731
        return active_rows.over_active_rows(body, active, [x], [ops.zeros((1, 4))], [], 1)[0]

    text = program(products, X[0, :1], np.ones(1, "bool"))
    assert " dot(" in text[text.index("ENTRY") :], "XLA keeps the product in the loop: remove `computed_in_loop`."


@on_jax
def test_the_gradient_of_a_kernel_is_a_batched_product():
    import jax

    layer = keras.layers.Dense(4)
    layer.build(X.shape)
    loss = lambda kernel, bias: ops.sum(ops.square(layer.stateless_call([kernel, bias], [], X)[0]))  # noqa: E731
    text = program(jax.grad(loss), layer.kernel, layer.bias)
    assert "lhs_contracting_dims={0}, rhs_contracting_dims={1}" in text, "XLA needs no flat inputs: remove FlatDense."


@on_tensorflow
def test_a_graph_has_no_order_of_its_own():
    operations = graph_operations(lambda x: ops.exp(x) + ops.log(x), X)
    assert not any(operation.control_inputs for operation in operations), "remove `with_dependencies`."


@on_tensorflow
def test_xla_returns_wrong_values_of_a_graph_with_dynamic_shapes(monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(map_rows, "refuse_xla", lambda index: index)
    layer = CharCNN([*SPECIAL_WORDS, "a", "long", "longer-than-either"], 4, char_dim=2, filters=(2, 3))
    layer.build()
    ids = tf.constant([4, 6, 5, 4, 6])
    graph = tf.function(layer, autograph=False)
    expected = graph(ids)
    found = tf.function(lambda ids: graph(ids) + 0.0, jit_compile=True, autograph=False)(ids)
    assert not np.allclose(found, expected, atol=1e-3), "XLA is right now: remove `refuse_xla`."


@on_tensorflow
def test_a_slice_update_is_an_operation_of_xla():
    import tensorflow as tf

    specifications = [tf.TensorSpec([None, 4, 3]), tf.TensorSpec([None, 1, 3])]
    types = graph_types(lambda x, new: ops.slice_update(x, [0, 2, 0], new), *specifications)
    assert any(name.startswith("Xla") for name in types), (
        "Keras' slice_update needs no XLA now: remove backend/slice_update.py."
    )


@on_tensorflow
def test_batches_of_another_length_fail():
    model = keras.Sequential([keras.Input((None, 1)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse", run_eagerly=True)
    data = [(np.ones((2, n, 1), "float32"), np.ones((2, n, 1), "float32")) for n in (3, 3, 5)]
    with pytest.raises(Exception, match="shape"):
        model.fit((one for one in data), steps_per_epoch=3, verbose=0, shuffle=False)


@on_tensorflow
def test_loops_run_ten_steps_at_once():
    import tensorflow as tf

    default = inspect.signature(tf.while_loop).parameters["parallel_iterations"].default
    assert default != 1 and "parallel_iterations" not in inspect.signature(ops.while_loop).parameters, (
        "remove `one_by_one`."
    )


def graph_types(function, *arguments):
    return [operation.type for operation in graph_operations(function, *arguments)]


@on_tensorflow
def test_a_gather_reads_a_whole_variable():
    variable = keras.Variable(np.ones((5, 3)))
    types = graph_types(lambda: ops.take(variable, [1], axis=0))
    assert "ReadVariableOp" in types, "Keras gathers from variables now: remove `read_rows`."


@on_tensorflow
def test_the_registry_keeps_custom_gradients():
    import tensorflow as tf

    kept = []

    @tf.custom_gradient
    def identity(x):
        gradient = lambda upstream: upstream  # noqa: E731
        kept.append(weakref.ref(gradient))
        return tf.identity(x), gradient

    tf.function(lambda x: identity(x))(tf.ones(2))
    gc.collect()
    assert kept[0]() is not None, "Graphs with custom gradients are freed now: remove `_custom_gradient`."
