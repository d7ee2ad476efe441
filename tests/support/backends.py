"""What the tests ask of a backend: gradients of a function, compiled or not, and how big its arrays get."""

import math

import keras
import numpy as np
from keras import ops

BACKEND = keras.backend.backend()
MODES = {"tensorflow": ["eager", "function", "xla"], "jax": ["jit", "eager"], "torch": ["eager"]}[BACKEND]


def use_graph_optimizer(used):
    """Turns TensorFlow's graph optimizer on or off. It takes almost as long as tracing and pays in long programs."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not used})


def compiled(function, mode):
    """`function` of tensors, run in the given mode."""
    if mode in ("function", "xla"):
        import tensorflow as tf

        return tf.function(function, jit_compile=mode == "xla", autograph=False)
    if mode == "jit":
        import jax

        return jax.jit(function)
    return function


def numpy(tree):
    return keras.tree.map_structure(lambda x: np.asarray(ops.convert_to_numpy(x)), tree)


def runner(function, mode=MODES[0]):
    """`function` of tensors as one of NumPy arrays, in the mode that is the fastest to test (JAX is slow in eager)."""
    function = compiled(function, mode)
    return lambda *arrays: numpy(function(*keras.tree.map_structure(ops.convert_to_tensor, arrays)))


def value_and_gradients(function, arrays, mode=MODES[0]):
    """The float value of `function(*tensors)` and its gradients with respect to `arrays`, as NumPy arrays."""
    return runner(_differentiated(function), mode)(*arrays)


def differentiated(function, mode=MODES[0]):
    """`(arrays, *constants) -> (value, [gradient of each array])` of the float `function(*arrays, *constants)`."""

    def of_arrays(tensors, *constants):
        return _differentiated(lambda *tensors: function(*tensors, *constants))(*tensors)

    return runner(of_arrays, mode)


def gradient_function(function):
    """`arrays -> gradients`: of the float `function(*tensors)` with respect to each."""
    run = runner(_differentiated(function))
    return lambda *arrays: run(*arrays)[1]


def _differentiated(function):
    """`tensors -> (value, [gradient of each])`, in the manner of the backend."""
    if BACKEND == "jax":
        import jax

        def differentiated(*tensors):
            value, gradients = jax.value_and_grad(function, argnums=tuple(range(len(tensors))))(*tensors)
            return value, list(gradients)

    elif BACKEND == "tensorflow":
        import tensorflow as tf

        def differentiated(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                value = function(*tensors)
            return value, tape.gradient(value, list(tensors), unconnected_gradients="zero")

    else:
        import torch

        def differentiated(*tensors):
            tensors = [tensor.detach().clone().requires_grad_() for tensor in tensors]
            value = function(*tensors)
            gradients = torch.autograd.grad(value, tensors, allow_unused=True)
            return value.detach(), [torch.zeros_like(t) if g is None else g for t, g in zip(tensors, gradients)]

    return differentiated


def of_weights(function, variables):
    """`function(*tensors)` as a function of the values of Keras variables, and then of `tensors`.

    `function` may read the losses that it lets layers add.
    """
    count = len(variables)

    def of_values(*tensors):
        mapping = list(zip(variables, tensors[:count], strict=True))
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True):
            return function(*tensors[count:])

    return of_values


def weight_gradients(function, variables, arrays=(), mode=MODES[0]):
    """As `value_and_gradients` of `function(*arrays)`, with respect to Keras variables and then to arrays."""
    values = [variable.value for variable in variables]
    return value_and_gradients(of_weights(function, variables), [*values, *arrays], mode)


def largest_array(function, *arrays):
    """The number of elements of the largest array made while `function` and its gradients are computed."""
    tensors = [ops.convert_to_tensor(array) for array in arrays]
    shapes = _SHAPES[BACKEND](_differentiated(function), tensors)
    return max(math.prod(size or 1 for size in shape) for shape in shapes)  # TensorFlow does not know every size


def _jax_shapes(function, tensors):
    import jax

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            yield from (variable.aval.shape for variable in equation.outvars)
            for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
                if _is_jaxpr(parameter):
                    yield from walk(getattr(parameter, "jaxpr", parameter))

    return walk(jax.make_jaxpr(function)(*tensors).jaxpr)


def _is_jaxpr(value):
    return hasattr(value, "eqns")


def _tensorflow_shapes(function, tensors):
    outputs = (output for operation in graph_operations(function, *tensors) for output in operation.outputs)
    return [output.shape.as_list() for output in outputs if output.shape.rank is not None]


def _torch_shapes(function, tensors):
    results = keras.tree.flatten([result for _, result in torch_operations(function, *tensors)])
    return [result.shape for result in results if hasattr(result, "shape")]


def graph_operations(function, *arguments):
    """Returns the operations of TensorFlow's graph of a function, and of the functions that it calls."""
    import tensorflow as tf

    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph
    graphs = [graph, *(graph._get_function(name).graph for name in graph._functions)]
    return [operation for one in graphs for operation in one.get_operations()]


def torch_operations(function, *arguments):
    """Runs a function and returns `[(name, result)]` of the operations of torch."""
    from torch.utils._python_dispatch import TorchDispatchMode

    operations = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, arguments=(), named=None):
            result = operation(*arguments, **(named or {}))
            operations.append((operation._schema.name.removeprefix("aten::"), result))
            return result

    with Record():
        function(*arguments)
    return operations


_SHAPES = {"jax": _jax_shapes, "tensorflow": _tensorflow_shapes, "torch": _torch_shapes}
