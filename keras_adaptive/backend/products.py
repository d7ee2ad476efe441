"""Matrix products, under torch by the faster one of its two libraries."""

import functools

import keras
from keras import ops

from keras_adaptive.backend.ordering import with_dependencies

LEAST_ROWS, LEAST_MULTIPLICATIONS = 8, 2**22  # of a product by oneDNN, a call of which takes 16 µs
BLOCK_VALUES = 2**21  # number of values of a product that are added to a sum at a time, 8 MiB
MOST_COLUMNS = 256  # of a product that is computed as its transpose


def matmul(a, b, bias=None):
    """Returns a·b (+ bias) of a tensor (…, k), a matrix (k, n) and a vector (n,), like Keras' product and sum."""
    if keras.config.backend() != "torch":
        return ops.matmul(a, b) if bias is None else ops.matmul(a, b) + bias
    given = [ops.convert_to_tensor(tensor) for tensor in (a, b, bias) if tensor is not None]
    if len(a.shape) == 2:
        return _torch_product(*given)
    return _torch_product(given[0].reshape(-1, a.shape[-1]), *given[1:]).reshape(*a.shape[:-1], b.shape[-1])


def add_product(total, a, b, is_first=False):
    """Returns a·b plus `total`, float32: a vector, or a matrix that torch overwrites, or ignores if `is_first`."""
    if not adds_in_place():
        return total + ops.cast(ops.matmul(with_dependencies(a, total), b), "float32")
    if a.dtype == total.dtype and len(total.shape) == 1:
        return matmul(a, b, total)
    if len(total.shape) == 1:
        return total + matmul(a, b)
    by_onednn = is_by_onednn(a, b)
    if a.dtype == total.dtype and not by_onednn:
        return total.addmm_(a, b, beta=0 if is_first else 1)
    size = -(-BLOCK_VALUES // total.shape[1]) if by_onednn else len(a)
    for part, rows in zip(total.split(size), a.split(size)):
        product = _onednn(rows, b) if by_onednn else rows @ b
        part.copy_(product) if is_first else part.add_(product)
    return total


def adds_in_place():
    """Returns whether the backend adds a product to a float32 sum in place, and pays neither a copy nor its zeros."""
    return keras.config.backend() == "torch"


def is_by_onednn(a, b, *others):
    """Returns whether oneDNN multiplies torch's matrices a and b (and adds a vector). It allocates the product."""
    import torch

    if any(tensor.dtype != torch.float32 or tensor.device.type != "cpu" for tensor in (a, b, *others)):
        return False
    is_large = len(a) >= LEAST_ROWS and a.numel() * b.shape[1] >= LEAST_MULTIPLICATIONS
    return is_large and _is_onednn_faster() and torch.backends.mkldnn.enabled and not torch.compiler.is_compiling()


@functools.cache
def _is_onednn_faster():
    """Returns whether PyTorch's own products in float32 leave out AVX-512, and the CPU has it.

    They are by Intel's MKL, which does so on CPUs of AMD: 190 against oneDNN's 450 GFLOP/s on two cores of an AMD EPYC
    (PyTorch 2.13, MKL 2024.2).
    """
    import torch

    is_there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not is_there or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    return "AMD" in torch.cpu.get_capabilities().get("cpu_name", "")


def _torch_product(a, b, *bias):
    import torch

    if not is_by_onednn(a, b, *bias):
        return torch.addmm(*bias, a, b) if bias else torch.mm(a, b)
    differentiated = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (a, b, *bias))
    return (_differentiable().apply if differentiated else _onednn)(a, b, *bias).contiguous()


@functools.cache
def _differentiable():
    """Returns the product by oneDNN as a function whose derivatives are such functions, too."""
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(context, a, b, *bias):
            context.save_for_backward(a, b)
            return _onednn(a, b, *bias)

        @staticmethod
        def backward(context, upstream):
            a, b = context.saved_tensors
            needed = context.needs_input_grad
            of_a = matmul(upstream, b.T) if needed[0] else None
            of_b = matmul(a.T, upstream) if needed[1] else None
            return of_a, of_b, *(upstream.sum(0) for _ in needed[2:])

    return Product


def _onednn(a, b, bias=None):
    import torch

    linear = torch.ops.mkldnn._linear_pointwise.default  # (x, w, bias) → x·wᵀ + bias, of a copy of a transposed x
    if bias is None and _is_tall(a, b):
        return linear(b.T, a.T.contiguous().T, None, "none", [], "").T
    # Where neither the rows nor the columns of w follow each other without gaps, it takes a thousand times as long.
    b = b if b.is_contiguous() or b.T.is_contiguous() else b.contiguous()
    return linear(a, b.T, bias, "none", [], "")


def _is_tall(a, b):
    """Returns whether bᵀ·aᵀ is faster than a·b, where a is the transpose of a matrix in memory.

    oneDNN copies the transposed first operand, a or bᵀ. It is faster with many columns, so that bᵀ·aᵀ is better if a
    has more rows than b has columns. If b has many columns, its copy takes longer than the product gains. The copy of a
    is slow if the rows of its matrix are a multiple of 4 KiB apart: its columns then share a few lines of the cache.
    """
    is_transposed = a.stride(0) == 1 and a.stride(1) >= len(a)
    return is_transposed and len(a) > b.shape[1] and (b.shape[1] <= MOST_COLUMNS or a.stride(1) % 1024 == 0)
