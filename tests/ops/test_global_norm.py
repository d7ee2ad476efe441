import numpy as np
from keras import ops

from keras_adaptive.ops.global_norm import clip_factor, global_norm
from tests.support.backends import numpy


def test_all_elements_of_all_tensors_count_once():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype("float32") for shape in [(), (5,), (7, 3), (2, 3, 4), (1000, 64)]]
    expected = np.sqrt(sum((array.astype("float64") ** 2).sum() for array in arrays))
    norm = global_norm([ops.convert_to_tensor(array) for array in arrays])
    np.testing.assert_allclose(numpy(norm), expected, rtol=1e-6)


def test_squares_that_float16_cannot_hold():
    norm = global_norm([ops.full((4,), 1000.0, dtype="float16"), ops.full((1,), 1.0, dtype="float32")])
    np.testing.assert_allclose(numpy(norm), np.sqrt(4e6 + 1), rtol=1e-6)


def test_what_is_not_finite_is_seen():
    for value in (np.inf, np.nan):
        assert not np.isfinite(numpy(global_norm([ops.ones(3), ops.convert_to_tensor([1.0, value])])))


def test_gradients_are_clipped_to_any_bound():
    for norm, bound, expected in [(4.0, 1.0, 0.25), (0.5, 1.0, 1.0), (0.0, 1.0, 1.0), (2.0, 1e-3, 5e-4)]:
        np.testing.assert_allclose(numpy(clip_factor(ops.convert_to_tensor(norm), bound)), expected, rtol=1e-6)
    for bound in (1e38, 1e39, 1e308, float("inf")):  # beyond float32
        assert numpy(clip_factor(ops.convert_to_tensor(3.0), bound)) == 1.0
