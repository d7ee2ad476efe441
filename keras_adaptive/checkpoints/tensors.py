"""The tensors of a checkpoint and the variables of a model that hold them, in both directions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import keras
import numpy as np


class TensorMapping(NamedTuple):
    """A tensor of a state dict and the variables that it contains.

    Attributes:
        name: Name in the state dict.
        variables: List of variables of the model, which are concatenated along the first axis of the tensor.
        transposed: Whether the axes are reversed. Linear weights are (out, in) in PyTorch and (in, out) in Keras,
            convolutions are (out, in, width) in PyTorch and (width, in, out) in Keras.
        optional: Whether files may omit the tensor, because it equals another one.
    """

    name: str
    variables: list
    transposed: bool = False
    optional: bool = False

    @property
    def _shapes(self):
        return [tuple(variable.shape)[:: -1 if self.transposed else 1] for variable in self.variables]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        first = self._shapes[0]
        return (sum(shape[0] for shape in self._shapes), *first[1:])

    def split(self, array: np.ndarray) -> Iterator[tuple[keras.Variable, np.ndarray]]:
        """Yields pairs of a variable and its value, given the array of the state dict."""
        ends = np.cumsum([shape[0] for shape in self._shapes])
        for variable, part in zip(self.variables, np.split(array, ends[:-1])):
            yield variable, part.T if self.transposed else part

    def join(self) -> np.ndarray:
        """Returns the array of the state dict that holds the variables."""
        arrays = [keras.ops.convert_to_numpy(variable.value) for variable in self.variables]
        return np.ascontiguousarray(np.concatenate([array.T if self.transposed else array for array in arrays]))


def load_weights(tensors: Iterable[TensorMapping], weights: Mapping[str, np.ndarray]) -> None:
    """Assigns the weights of a checkpoint to the variables of a model. Call `check_weights` first."""
    for tensor in tensors:
        if tensor.name in weights:
            for variable, value in tensor.split(weights[tensor.name]):
                variable.assign(value)


def check_weights(tensors: Iterable[TensorMapping], weights: Mapping[str, np.ndarray]) -> None:
    """Checks that the weights of a checkpoint match a model, whose variables need not be allocated.

    Args:
        tensors: All tensors of the model.
        weights: Dict from names to arrays.

    Raises:
        ValueError: If tensors are missing, unknown or of another shape, or if the model ties tensors that differ. The
            message lists them.
    """
    tensors = list(tensors)
    present = [tensor for tensor in tensors if tensor.name in weights]
    missing = [tensor.name for tensor in tensors if tensor.name not in weights and not tensor.optional]
    extra = sorted(weights.keys() - {tensor.name for tensor in tensors})
    shapes = [(t.name, weights[t.name].shape, t.shape) for t in present if weights[t.name].shape != t.shape]
    misshaped = [f"{name} {shape} instead of {expected}" for name, shape, expected in shapes]
    problems = {"missing": missing, "not part of the model": extra, "of another shape": misshaped}
    if not any(problems.values()):
        problems = {"different from the tensors they are tied to": _untied(present, weights)}
    if any(problems.values()):
        listed = "; ".join(f"{what}: {_listed(names)}" for what, names in problems.items() if names)
        raise ValueError(f"The tensors do not match the model that the options describe. {listed}.")


def _listed(names):
    """Returns the first names, separated by commas, and the number of omitted ones."""
    return ", ".join([*names[:5], *([f"and {len(names) - 5} more"] if names[5:] else [])])


def _untied(tensors, weights):
    """Returns the names of the tensors that differ from an earlier tensor that should be equal."""
    values, names = {}, []
    for tensor in tensors:
        for variable, value in tensor.split(weights[tensor.name]):
            if not np.array_equal(values.setdefault(id(variable), value), value, equal_nan=True):
                names.append(tensor.name)
    return names
