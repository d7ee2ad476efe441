"""Public functions refuse arguments that do not fit together, in one line."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_adaptive.backend.checks import check_shapes
from keras_adaptive.ops import (
    context_product,
    forget_mult,
    linear_cross_entropy,
    linear_nll,
    lstm,
    noise_contrastive_loss,
    sampled_cross_entropy,
)
from tests.support.refusals import refused

floats = lambda *shape: np.ones(shape, "float32")  # noqa: E731
SAMPLED = {"x": floats(2, 4), "vectors": floats(5, 4), "targets": np.array([1, 9]), "weights": floats(2)}
SAMPLED |= {"sampled_values": (np.array([7, 3, 12]), floats(2), floats(3)), "bias": floats(5)}
LINEAR = {"x": floats(2, 4), "table": floats(6, 4), "targets": np.array([1, 5]), "weights": floats(2)}
LINEAR |= {"extra_logits": floats(2, 3), "bias": floats(6), "excluded": np.array([0, -1])}
LSTM = {"x": floats(2, 3, 4), "kernel": floats(4, 20), "recurrent_kernel": floats(6, 20), "bias": floats(20)}
LSTM |= {"h": floats(2, 6), "c": floats(2, 5), "projection": floats(5, 6)}
CALLS = {  # the function, its arguments, and for each argument a value that does not fit
    "sampled_cross_entropy": (sampled_cross_entropy, SAMPLED),
    "noise_contrastive_loss": (noise_contrastive_loss, SAMPLED),
    "linear_cross_entropy": (linear_cross_entropy, LINEAR),
    "linear_nll": (linear_nll, {name: LINEAR[name] for name in ("x", "table", "targets", "extra_logits", "bias")}),
    "forget_mult": (forget_mult, {"z": floats(2, 3, 4), "f": floats(2, 3, 4), "c": floats(2, 4)}),
    "lstm": (lstm, LSTM),
    "context_product": (context_product, {"x": floats(2, 5, 3), "kernel": floats(6, 4), "bias": floats(4)}),
}
CASES = [(name, argument) for name, (_, arguments) in CALLS.items() for argument in arguments]


@pytest.mark.parametrize("name, argument", CASES)
@pytest.mark.once
def test_arguments_that_do_not_fit(name, argument):
    function, arguments = CALLS[name]
    more = {"num_local": 2} if name == "context_product" else {}
    value = arguments[argument]
    if argument == "sampled_values":
        wrong = [tuple(floats(9) if place == k else part for place, part in enumerate(value)) for k in range(3)]
    else:
        axis = -1 if name == "context_product" else 0
        one = value.take([0], axis)  # which would broadcast
        wrong = [one, np.concatenate([value, one], axis), value[..., None], value[0]]
    named = rf"`{argument}` must have .* with .*=\d" if argument in ("bias", "excluded") else r"`\w+` must have "
    for one in wrong:
        refused(function, match=rf"^{named}.*Received: shape=[^\n]*\.$", **{**arguments, argument: one}, **more)
    function(**arguments, **more)


BAD_VALUES = [
    ((np.array([], "int32"), floats(2), floats(0)), "`ids` .* at least one noise word"),
    ((np.array([7, 7, 12]), floats(2), floats(3)), "`ids` .* must be different words.* 3 words, 2 of them"),
    ((np.array([7, 3, 12]), floats(2), -floats(3)), "`counts` .* finite and at least 0"),
    ((np.array([7, 3, 12]), np.nan * floats(2), floats(3)), "`target_counts` .* finite and at least 0"),
    ((np.array([7, 3, 12]), np.inf * floats(2), floats(3)), "`target_counts` .* finite and at least 0"),
]


@pytest.mark.parametrize("values, message", BAD_VALUES)
@pytest.mark.parametrize("function", [sampled_cross_entropy, noise_contrastive_loss])
@pytest.mark.once
def test_noise_that_is_none(function, values, message):
    vectors = floats(len(values[0]) + 2, 4)
    refused(function, **{**SAMPLED, "vectors": vectors, "bias": None, "sampled_values": values}, match=message)


def test_sizes_that_are_unknown_fit():
    unknown = SimpleNamespace(shape=(None, 4))
    check_shapes(x=(unknown, "rows dim"), table=(floats(6, 4), "classes dim"), targets=(floats(3), "rows"))
    message = r"`y` must have the shape \(rows\) with rows=3, dim=4\. Received: shape=\(2,\)"
    refused(check_shapes, a=(floats(3), "rows"), x=(unknown, "rows dim"), y=(floats(2), "rows"), match=message)


@pytest.mark.parametrize("ids", [[2**32 + 1, 5], [1.0, np.nan], [-1, 2**40]])
def test_targets_outside_are_no_targets(ids):
    arguments = {name: LINEAR[name] for name in ("x", "table", "targets")}
    nll = np.asarray(linear_nll(**{**arguments, "targets": np.array(ids)}))
    assert (nll == 0).tolist() == [not 0 <= id < 6 for id in ids]
