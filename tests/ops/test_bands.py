from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_adaptive.ops.bands import band_boundaries, band_dimensions
from tests.support.refusals import refused

pytestmark = pytest.mark.once


@given(st.integers(1, 1000), st.sets(st.integers(1, 999), max_size=6))
def test_bands_cut_the_vocabulary_into_parts(vocabulary_size, cutoffs):
    cutoffs = sorted(cutoff for cutoff in cutoffs if cutoff < vocabulary_size)
    boundaries = band_boundaries(vocabulary_size, cutoffs)
    ids = [word for low, high in zip(boundaries, boundaries[1:], strict=False) for word in range(low, high)]
    assert ids == list(range(vocabulary_size))
    assert list(boundaries[1:-1]) == cutoffs


REFUSED = [
    (band_boundaries, (100, (20, 10)), r"strictly increasing.* Received: cutoffs=\(20, 10\), vocabulary_size=100"),
    (band_boundaries, (100, (20, 20)), "strictly increasing"),
    (band_boundaries, (100, (0, 20)), "positive and strictly increasing"),
    (band_boundaries, (100, (-5,)), "positive"),
    (band_boundaries, (100, (20, 100)), r"below `vocabulary_size`.* Received: cutoffs=\(20, 100\)"),
    (band_boundaries, (100, (200,)), "below `vocabulary_size`"),
    (band_boundaries, (100, (60, 30, 10)), r"not sizes of bands: pass cutoffs=\(60, 90\)"),
    (band_boundaries, (100, (50, 50)), r"not sizes of bands: pass cutoffs=\(50,\)"),
    (band_boundaries, (100, (20, 20, 60)), r"not sizes of bands: pass cutoffs=\(20, 40\)"),
    (band_boundaries, (100, (130, -30)), "positive and strictly increasing"),
    (band_boundaries, (0, ()), "`vocabulary_size` must be at least 1"),
    (band_boundaries, (1_000, 500), r"a sequence of integers: pass cutoffs=\(500,\). Received: cutoffs=500"),
    (band_boundaries, (1_000, "500"), r"pass cutoffs=\(2_000, 10_000\), or \(\) for none. Received: cutoffs='500'"),
    (band_boundaries, (1_000, None), "a sequence of integers.* Received: cutoffs=None"),
    (band_boundaries, (1_000, (20.5, 60)), "a sequence of integers"),
    (band_boundaries, (1_000, (20, float("inf"))), "a sequence of integers"),
    (band_dimensions, (8, 4, 3), r"at least 1.* Received: dim=8, factor=4, which gives \(8, 2, 0\)"),
    (band_dimensions, (8, 0.5, 3), "`factor` must be at least 1"),
]


@pytest.mark.parametrize("function, arguments, message", REFUSED)
def test_what_is_refused(function, arguments, message):
    refused(function, *arguments, match=message)


@pytest.mark.parametrize("layer", [partial(AdaptiveSoftmax, 1_000), partial(AdaptiveEmbedding, 1_000, 16)])
def test_layers_take_any_sequence_of_cutoffs(layer):
    for cutoffs in ([200, 500], np.array([200, 500]), iter((200, 500.0))):
        made = layer(cutoffs=cutoffs)
        assert made.boundaries == (0, 200, 500, 1_000) and made.get_config()["cutoffs"] == (200, 500)
    refused(layer, cutoffs=500, match=r"pass cutoffs=\(500,\)")


@pytest.mark.parametrize("vocabulary_size, cutoffs", [(60_000, (20_000, 40_000)), (100, (10, 30, 60))])
def test_first_ids_may_sum_to_the_vocabulary(vocabulary_size, cutoffs):
    assert band_boundaries(vocabulary_size, cutoffs) == (0, *cutoffs, vocabulary_size)


def test_dimensions_shrink_and_are_rounded_down():
    assert band_dimensions(1024, 4, 3) == (1024, 256, 64)
    assert band_dimensions(10, 3, 3) == (10, 3, 1)
    assert band_dimensions(10, 1.5, 3) == (10, 6, 4)
    assert band_dimensions(8, 1, 2) == (8, 8)
