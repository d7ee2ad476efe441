"""Functions as graphs of PyTorch's own operations, without the Python code of layers between them."""

import collections

import keras
import optree

EAGER_CALLS = 16  # number of calls before a function is traced, which takes as long as some 20 calls


class TorchGraph:
    """A function without gradients that is traced, once for each kind of arguments that come often.

    A step of a decoder with one token is hundreds of small operations, and the Python code of Keras between them takes
    longer than they do. The graph calls the same operations, so its results are equal to the last bit. A function
    whose Python code reads the values of tensors cannot be traced and stays as it is.

    Args:
        function: Function of nested structures of tensors, which returns such a structure. It must not assign to a
            variable.
        variables: List of all variables that the function reads. Every call reads their current values.
        donate_argnums: Positions of arguments that the caller does not use again. Their tensors are updated in place.
    """

    def __init__(self, function, variables, donate_argnums=()):
        self._function, self._weights, self._donated = function, variables, donate_argnums
        self._calls, self._graphs = collections.Counter(), {}

    def __call__(self, *arguments):
        import torch

        tensors, structure = optree.tree_flatten(arguments)
        kind = (structure, *((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors))
        with torch.no_grad():
            if self._calls[kind] < EAGER_CALLS:
                self._calls[kind] += 1
                return self._function(*arguments)
            if kind not in self._graphs:
                self._graphs[kind] = self._traced(tensors, structure)
            graph, result = self._graphs[kind]
            if graph is None:
                return self._function(*arguments)
            return optree.tree_unflatten(result, graph(*self._values(), *tensors))

    def _values(self):
        return [variable.value for variable in self._weights]

    def _traced(self, tensors, structure):
        """Returns `(graph, result)`, a function from values and tensors to a list, and the structure of the result.

        The graph is `None` if the function cannot be traced.
        """
        from torch.fx.experimental.proxy_tensor import make_fx

        result = None

        def flat(*values):
            nonlocal result
            values, tensors = values[: len(self._weights)], values[len(self._weights) :]
            with keras.StatelessScope(state_mapping=list(zip(self._weights, values))):
                leaves, result = optree.tree_flatten(self._function(*optree.tree_unflatten(structure, tensors)))
            return leaves

        trace = make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)
        try:
            traced = trace(*self._values(), *tensors)
        except Exception:  # the function did answer to such arguments: it reads values, which a trace does not have
            return None, None
        traced.graph.eliminate_dead_code()
        _merge_equal(traced.graph)
        self._update_in_place(traced.graph, structure)
        traced.recompile()
        return traced, result

    def _update_in_place(self, graph, structure):
        """Replaces copies of donated tensors with a part replaced, such as a cache of keys, by the part's update."""
        import torch

        inputs = [node for node in graph.nodes if node.op == "placeholder"][len(self._weights) :]
        owners = [number for number, part in enumerate(structure.children()) for _ in range(part.num_leaves)]
        for node, owner in zip(inputs, owners, strict=True):
            users = list(node.users)
            if owner in self._donated and [user.target for user in users] == [torch.ops.aten.index_copy.default]:
                if users[0].args[0] is node:
                    users[0].target = torch.ops.aten.index_copy_.default


def _merge_equal(graph):
    """Computes once what each layer computes again, such as the mask of attention.

    Results of the graph stay separate tensors, since a caller may donate them.
    """
    import torch

    known, (output,) = {}, graph.find_nodes(op="output")
    for node in list(graph.nodes):
        tags = getattr(node.target, "tags", None)
        if tags is None or torch.Tag.nondeterministic_seeded in tags or output in node.users:
            continue
        key = (node.target, *map(_hashable, (node.args, tuple(node.kwargs.items()))))
        if (first := known.setdefault(key, node)) is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _hashable(value):
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else (type(value), value)
