"""Products of torch by oneDNN. This machine's CPU may not use them, so the tests choose them."""

import numpy as np
import pytest

from keras_adaptive.backend import products
from keras_adaptive.layers.flat_dense import FlatDense
from keras_adaptive.ops import linear_cross_entropy
from tests.support.backends import BACKEND, value_and_gradients
from tests.support.chunks import set_chunk_sizes
from tests.support.closeness import all_close, normal

pytestmark = pytest.mark.skipif(BACKEND != "torch", reason="the other backends have one way to multiply")


@pytest.fixture
def calls(monkeypatch):
    """Lets oneDNN compute all products, and returns the list of the shapes of what it computed."""
    import torch

    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    calls, multiply = [], products._onednn
    monkeypatch.setattr(products, "_onednn", lambda *given: calls.append(given[1].shape) or multiply(*given))
    for name, value in {"_is_onednn_faster": lambda: True, "LEAST_ROWS": 1, "LEAST_MULTIPLICATIONS": 1}.items():
        monkeypatch.setattr(products, name, value)
    return calls


def arranged(array, layout):
    """Returns a tensor of torch with the values of a matrix, or of its first row or column everywhere."""
    import torch

    tensor = torch.from_numpy(array)
    if layout == "transposed":
        return tensor.T.contiguous().T
    if layout == "with gaps":
        return torch.nn.functional.pad(tensor, (0, 3))[:, :-3]
    if layout == "transposed with gaps":
        return torch.nn.functional.pad(tensor.T, (0, 3))[:, :-3].T
    if layout == "every second":
        return tensor.repeat_interleave(2, 1)[:, ::2]
    if layout == "one row":
        return tensor[:1].expand(tensor.shape)
    return tensor[:, :1].expand(tensor.shape) if layout == "one column" else tensor


LAYOUTS = "by rows", "transposed", "with gaps", "transposed with gaps", "every second", "one row", "one column"


@pytest.mark.parametrize("b", LAYOUTS)
@pytest.mark.parametrize("a", LAYOUTS)
@pytest.mark.parametrize("shape", [(9, 4, 5), (5, 4, 9), (1, 1, 1)], ids=str)
def test_products_of_any_layout_equal_numpys_and_are_contiguous(shape, a, b, calls):
    rows, inner, columns = shape
    a, b = arranged(normal(rows, inner), a), arranged(normal(inner, columns, seed=1), b)
    product = products.matmul(a, b)
    np.testing.assert_allclose(product, a.numpy() @ b.numpy(), rtol=1e-5, atol=1e-6)
    assert product.is_contiguous() and len(calls) == 1


def test_both_operands_and_the_bias_have_derivatives_of_any_order(calls):
    import torch

    def derivatives(multiply):
        tensors = [torch.from_numpy(normal(*shape)).requires_grad_() for shape in ((2, 3, 4), (4, 5), (5,))]
        first = torch.autograd.grad((multiply(*tensors) ** 3).sum(), tensors, create_graph=True)
        return [*first, *torch.autograd.grad(sum((gradient**2).sum() for gradient in first), tensors)]

    found = derivatives(products.matmul)
    assert calls
    expected = derivatives(lambda a, b, bias: a @ b + bias)
    all_close([part.detach() for part in found], [part.detach() for part in expected], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows, columns", [(9, 5), (5, 9)])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_product_is_added_in_parts_in_place(rows, columns, is_first, calls, monkeypatch):
    import torch

    monkeypatch.setattr(products, "BLOCK_VALUES", 2 * columns)
    a, b, total = normal(4, rows).T, normal(4, columns, seed=1), normal(rows, columns, seed=2)
    held = torch.full((rows, columns), np.nan) if is_first else torch.from_numpy(total.copy())
    products.add_product(held, torch.from_numpy(a), torch.from_numpy(b), is_first)
    np.testing.assert_allclose(held, a @ b + (0 if is_first else total), rtol=1e-5, atol=1e-5)
    assert len(calls) == -(-rows // 2)


@pytest.mark.parametrize("extras", [0, 2])
@pytest.mark.parametrize("block_rows", [2, 100])
def test_the_word_loss_equals_its_other_way(extras, block_rows, calls, monkeypatch):
    set_chunk_sizes(monkeypatch, block_bytes=4 * block_rows * (11 + extras))
    x, table, bias, extra = normal(10, 3), normal(11, 3), normal(11), normal(10, extras)
    weights, targets = np.linspace(0, 2, 10, dtype="float32"), np.array([0, 10, 3, -1, 5, 5, 9, 2, 1, 10])

    def loss(x, table, bias, *extra):
        return linear_cross_entropy(x, table, targets, weights, *extra, chunk_rows=4, bias=bias)

    arrays = [x, table, bias, *[extra] * (extras > 0)]
    value, gradients = value_and_gradients(loss, arrays)
    assert len(calls) > 3
    monkeypatch.setattr(products, "_is_onednn_faster", lambda: False)
    expected, of_other = value_and_gradients(loss, arrays)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    all_close(gradients, of_other, rtol=1e-5, atol=1e-6)


def test_small_and_narrow_products_and_short_ones_stay_with_pytorch(calls, monkeypatch):
    import torch

    monkeypatch.setattr(products, "LEAST_ROWS", 8)
    monkeypatch.setattr(products, "LEAST_MULTIPLICATIONS", 8 * 4 * 5)
    b = torch.ones(4, 5)
    for rows, dtype in ((7, torch.float32), (8, torch.bfloat16), (8, torch.float64)):
        assert products.matmul(torch.ones(rows, 4, dtype=dtype), b.to(dtype)).dtype == dtype
    assert products.matmul(torch.ones(9, 4), b[:, :4]).shape == (9, 4)
    assert not calls
    products.matmul(torch.ones(8, 4), b)
    assert calls
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    products.matmul(torch.ones(8, 4), b)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "name, capability, faster",
    [("AMD EPYC", "AVX512", True), ("AMD EPYC", "AVX2", False), ("Intel(R) Xeon(R)", "AVX512", False)],
)
def test_onednn_is_for_cpus_whose_avx512_mkl_does_not_use(name, capability, faster, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name})
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert products._is_onednn_faster.__wrapped__() is faster


def test_a_dense_layer_is_one_product_with_its_bias(calls):
    layer = FlatDense(5)
    layer.build((None, None, 4))
    layer(normal(2, 3, 4))
    assert len(calls) == 1
