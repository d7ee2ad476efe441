"""What dropout's masks are shared by: values, time steps, micro-batches; and what draws them anew."""

import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import SeededDropout, VariationalDropout, WeightDrop
from keras_adaptive.layers.regularization.seeds import micro_batch
from tests.support.backends import gradient_function, runner

ONES = np.ones((3, 5, 200), "float32")
LAYERS = [SeededDropout, VariationalDropout, WeightDrop]


def drawn(layer, calls=1, values=ONES):
    """The masks of `calls` calls in one compiled function."""
    return runner(lambda x: [layer(x, training=True) for _ in range(calls)])(values)


@pytest.mark.parametrize("kind", LAYERS)
def test_kept_values_are_scaled_and_each_call_draws_anew(kind):
    layer = kind(0.25, seed=3)
    first, second = drawn(layer, 2)
    for mask in (first, second):
        np.testing.assert_allclose(np.unique(mask), [0, 4 / 3], rtol=1e-6)
        assert 0.15 < np.mean(mask == 0) < 0.35
    assert np.any(first != second)
    np.testing.assert_array_equal(drawn(kind(0.25, seed=3))[0], first)
    assert np.any(drawn(kind(0.25, seed=4))[0] != first)
    np.testing.assert_array_equal(runner(layer)(ONES), ONES)


def test_a_variational_mask_is_one_per_row_and_channel():
    (mask,) = drawn(VariationalDropout(0.5))
    np.testing.assert_array_equal(mask, np.broadcast_to(mask[:, :1], mask.shape))
    assert np.any(mask[0] != mask[1]) and np.any(mask[1] != mask[2])


def test_gradients_flow_through_the_mask():
    layer, again = (WeightDrop(0.5, seed=3) for _ in range(2))
    gradient, _ = gradient_function(lambda x, weight: ops.sum(weight * layer(x, training=True)))(ONES, 3 * ONES)
    np.testing.assert_array_equal(gradient, 3 * drawn(again)[0])


@pytest.mark.parametrize("kind, shared", [(WeightDrop, True), (SeededDropout, False)])
def test_micro_batches_of_an_update_share_the_masks_of_weights(kind, shared):
    layer = kind(0.5, seed=3)

    def update(x):
        masks = []
        for number in range(3):
            with micro_batch(number):
                masks.append(layer(x, training=True))
        return masks

    first, second, state = runner(lambda x: [update(x), update(x), layer.seed_generator.state.value])(ONES)
    assert all(np.array_equal(first[0], mask) == shared for mask in first[1:])
    assert np.any(second[0] != first[0])
    assert state[1] == (2 if shared else 6)
