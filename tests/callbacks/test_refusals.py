"""Arguments of callbacks that make no sense."""

import pytest

from keras_adaptive.callbacks import Backup, TerminateOnHang, TerminateOnNonFinite, Throughput, TrainLog
from tests.support.refusals import refused

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "callback, arguments, match",
    [
        (Backup, {"folder": "none", "every": 0}, "Received: .*every=0"),
        (Backup, {"folder": "none", "keep": 0}, "Received: .*keep=0"),
        (TerminateOnHang, {"seconds": 0}, "`seconds` must be positive. Received: seconds="),
        (TerminateOnHang, {"seconds": -1}, "`seconds` must be positive. Received: seconds="),
        (TerminateOnHang, {"seconds": float("nan")}, "`seconds` must be positive. Received: seconds="),
        (TerminateOnNonFinite, {"limit": 0}, "limit=0"),
        (Throughput, {"tokens_per_update": 0}, "tokens_per_update=0"),
        (Throughput, {"tokens_per_update": -1}, "tokens_per_update=-1"),
        (TrainLog, {"path": "none", "every": 0}, "every=0"),
    ],
)
def test_arguments_are_named(callback, arguments, match):
    refused(callback, **arguments, match=match)
