"""Builds graphs of ONNX from formulas: every call of an operator adds a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

OPSET, IR_VERSION = 17, 8  # which onnxruntime 1.12 and newer read
LARGEST_FILE = 2_000_000_000  # bytes of a graph and its weights, which protobuf limits to 2 GiB
ZERO = 128  # the number that stands for 0 in a byte
SMALLEST = 1e-12  # scale of a row of zeros


class Value:
    """A tensor of a graph. Python floats are float32 tensors, integers int64 tensors."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __add__(self, other: Any) -> Value:
        return self.graph.Add(self, other)

    def __sub__(self, other: Any) -> Value:
        return self.graph.Sub(self, other)

    def __mul__(self, other: Any) -> Value:
        return self.graph.Mul(self, other)

    def __matmul__(self, other: Any) -> Value:
        return self.graph.MatMul(self, other)


class Graph:
    """Nodes and weights of a graph.

    `graph.Name(*inputs, **attributes)` adds a node of the operator `Name` and returns its output. Inputs are `Value`s,
    NumPy arrays, Python numbers or lists of integers.

    Args:
        int8: Whether the weights of products and tables are bytes.
    """

    def __init__(self, int8: bool = False) -> None:
        self.int8 = int8
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._count = 0
        self._matrices: dict[int, Matrix] = {}

    def __getattr__(self, operator: str) -> Callable[..., Value]:
        if not operator[0].isupper():
            raise AttributeError(operator)
        return lambda *inputs, **attributes: self.node(operator, inputs, **attributes)[0]

    def node(self, operator: str, inputs: Sequence[Any], outputs: int = 1, **attributes: Any) -> list[Value]:
        """Adds a node and returns its outputs."""
        from onnx import helper

        names = [self.value(given).name for given in inputs]
        made = [self._new() for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, names, [value.name for value in made], **attributes))
        return made

    def value(self, given: Any) -> Value:
        """Returns a `Value`: the given one, or a constant."""
        from onnx import numpy_helper

        if isinstance(given, Value):
            return given
        if not isinstance(given, np.ndarray):
            given = np.array(given, "float32" if isinstance(given, float) else "int64")
        new = self._new()
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(given), new.name))
        return new

    def matrix(self, array: np.ndarray) -> Matrix:
        """Returns the `Matrix` of a weight (rows, columns), which the graph stores once."""
        if id(array) not in self._matrices:
            self._matrices[id(array)] = (ByteMatrix if self.int8 else Matrix)(self, array)
        return self._matrices[id(array)]

    def linear(self, x: Value, weights: dict[str, np.ndarray]) -> Value:
        """Returns the output of a linear layer with the weights `weight` (outputs, inputs) and, optionally, `bias`."""
        y = self.matrix(weights["weight"]).product(x)
        return y + weights["bias"] if "bias" in weights else y

    def norm(self, x: Value, weights: dict[str, np.ndarray]) -> Value:
        """Returns the output of a LayerNorm."""
        return self.LayerNormalization(x, weights["weight"], weights["bias"], epsilon=1e-5)

    def scan(
        self, step: Callable[[list[Value], list[Value]], tuple[list[Value], Value]], states: list, sequences: list
    ) -> Value:
        """Returns the outputs (batch, length, …) of a recurrence.

        Args:
            step: Function of lists of states and of inputs (batch, …) that returns the next states and an output.
            states: First states, `Value`s (batch, …).
            sequences: `Value`s (batch, length, …).
        """
        from onnx import TensorProto, helper

        outer, self.nodes = self.nodes, []
        given = [[self._new() for _ in values] for values in (states, sequences)]
        new, output = step(*given)
        results = [self.Identity(value) for value in (*new, output)]
        inner, self.nodes = self.nodes, outer
        inputs, outputs = (
            [helper.make_tensor_value_info(value.name, TensorProto.FLOAT, None) for value in values]
            for values in ([*given[0], *given[1]], results)
        )
        return self.node(
            "Scan",
            (*states, *sequences),
            len(states) + 1,
            body=helper.make_graph(inner, "step", inputs, outputs),
            num_scan_inputs=len(sequences),
            scan_input_axes=[1] * len(sequences),
            scan_output_axes=[1],
        )[-1]

    def length(self, value: Value, axis: int) -> Value:
        """Returns the size of an axis, an int64 scalar."""
        return self.Gather(self.Shape(value), axis)

    def range(self, stop: Value) -> Value:
        """Returns the int64 numbers below `stop`."""
        return self.Range(0, stop, 1)

    def numbers_of(self, condition: Value) -> Value:
        """Returns the numbers of the rows that fulfill a condition (rows,)."""
        return self.Squeeze(self.NonZero(condition), [0])

    def put_rows(self, into: Value, numbers: Value, rows: Value, **attributes: Any) -> Value:
        """Returns `into` with rows in the places of the given numbers."""
        return self.ScatterND(into, self.Unsqueeze(numbers, [1]), rows, **attributes)

    def zeros(self, *sizes: Any) -> Value:
        """Returns a float32 tensor of zeros; sizes are integers or int64 scalars."""
        shape = [self.Reshape(size, [1]) for size in sizes]
        return self.Expand(0.0, self.Concat(*shape, axis=0))

    def save(
        self,
        path: Path,
        inputs: dict[str, list],
        outputs: dict[str, tuple[Value, list]],
        facts: dict[str, str],
    ) -> None:
        """Writes the graph as a file.

        Args:
            path: Path of the file. Weights of more than `LARGEST_FILE` bytes lie in another file beside it.
            inputs: Shapes of int64 inputs, `Value`s of these names.
            outputs: The float32 outputs and their shapes by name. Sizes are integers or names.
            facts: Metadata.
        """
        import onnx
        from onnx import TensorProto, helper

        for name, (value, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        given, made = (
            [helper.make_tensor_value_info(name, dtype, shape) for name, shape in shapes.items()]
            for dtype, shapes in (
                (TensorProto.INT64, inputs),
                (TensorProto.FLOAT, {name: shape for name, (_, shape) in outputs.items()}),
            )
        )
        graph = helper.make_graph(self.nodes, "language_model", given, made, self.initializers)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="keras_adaptive")
        helper.set_model_props(model, facts)
        size = sum(len(array.raw_data) for array in self.initializers)
        onnx.save_model(model, path, save_as_external_data=size > LARGEST_FILE, location=f"{path.name}.data")

    def _new(self) -> Value:
        self._count += 1
        return Value(self, f"v{self._count}")


class Matrix:
    """A weight (rows, columns) whose rows are looked up, or multiplied with vectors."""

    def __init__(self, graph: Graph, array: np.ndarray) -> None:
        self.graph, self.rows = graph, len(array)
        self.array = array  # kept alive, since the graph knows matrices by the identity of their arrays
        self._store(array)

    def _store(self, array):
        self._stored = self.graph.value(array)
        self._transposed = self.graph.Transpose(self._stored, perm=[1, 0])  # computed once, when a graph is loaded

    def lookup(self, numbers: Value) -> Value:
        """Returns the rows of the given numbers (…): (…, columns)."""
        return self.graph.Gather(self._stored, numbers)

    def product(self, x: Value, low: int = 0, high: int | None = None) -> Value:
        """Returns the products of vectors (…, columns) with the rows from `low` to `high`: (…, high − low)."""
        return x @ self._part(self._transposed, 1, low, high)

    def _part(self, value, axis, low, high):
        if (low, high) in ((0, None), (0, self.rows)):
            return value
        return self.graph.Slice(value, [low], [self.rows if high is None else high], [axis])


class ByteMatrix(Matrix):
    """A weight of bytes, with a scale for each row. Vectors become bytes for a product, with a scale each."""

    def _store(self, array):
        graph = self.graph
        scales = np.maximum(np.abs(array).max(1) / 127, SMALLEST).astype("float32")
        self._scales = graph.value(scales)
        self._stored = graph.value((np.rint(array / scales[:, None]) + ZERO).astype("uint8"))
        self._transposed = graph.Transpose(self._stored, perm=[1, 0])

    def lookup(self, numbers):
        graph = self.graph
        values = graph.Cast(graph.Gather(self._stored, numbers), to=1) - float(ZERO)
        return values * graph.Unsqueeze(graph.Gather(self._scales, numbers), [-1])

    def product(self, x, low=0, high=None):
        graph = self.graph
        largest = graph.ReduceMax(graph.Abs(x), axes=[-1], keepdims=1)
        largest = graph.Slice(largest, [0], [1], [-1])  # ONNX Runtime 1.30 and older return (0, columns) for no vectors
        scales = graph.Max(largest * (1 / 127), SMALLEST)
        numbers = graph.Cast(graph.Round(graph.Div(x, scales)) + float(ZERO), to=2)
        zero = np.array(ZERO, "uint8")
        sums = graph.MatMulInteger(numbers, self._part(self._transposed, 1, low, high), zero, zero)
        return graph.Cast(sums, to=1) * scales * self._part(self._scales, 0, low, high)
