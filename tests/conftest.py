"""What every test shares: quiet backends, a fresh Keras session and seed per test, the golden numbers."""

import json
import os
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

GOLDEN = Path(__file__).parent / "golden"

hypothesis.settings.register_profile(
    "tests", deadline=None, max_examples=50, derandomize=True, database=None, print_blob=True
)
hypothesis.settings.load_profile("tests")


class Golden(NamedTuple):
    """One set of numbers of the published implementation, see tests/golden/README.md."""

    arrays: dict  # name -> array
    config: dict  # the .json beside them


def pytest_report_header():
    return f"keras {keras.__version__} on {keras.backend.backend()}"


def pytest_collection_modifyitems(items):
    """The tests that train in several processes come first: begun last, they would keep one process alone waiting."""
    items.sort(key=lambda item: item.path.stem != "test_strategies")


@pytest.fixture(autouse=True)
def fresh_keras():
    """Every test starts from the same names, seed and dtype policy, whatever ran before it."""
    keras.backend.clear_session(free_memory=False)
    keras.config.set_dtype_policy("float32")
    keras.utils.set_random_seed(1)


@pytest.fixture(scope="session")
def golden():
    """`golden("nag")` reads nag.npz and nag.json of tests/golden; `golden.folder` is that folder."""

    def read(name):
        with np.load(GOLDEN / f"{name}.npz") as arrays:
            config = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
            return Golden(dict(arrays), config)

    read.folder = GOLDEN
    return read
