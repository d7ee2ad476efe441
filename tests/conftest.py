"""What every test shares: quiet backends, a fresh Keras session and seed per test, the golden numbers."""

import gc
import importlib.metadata
import json
import os
import re
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as in the programs, whatever the CPU
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

from tests.support.processes import forked  # noqa: E402

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
    return f"keras {importlib.metadata.version('keras')}, KERAS_BACKEND={os.environ.get('KERAS_BACKEND', '')}"


ONCE = re.compile(r"^pytestmark = .*\bmark\.once\b", re.MULTILINE)  # of a file whose tests all are


def pytest_addoption(parser):
    parser.addoption("--without-once", action="store_true", help="leave out what does not depend on the backend")


def pytest_configure(config):
    config.addinivalue_line("markers", "once: does not depend on the backend, and runs on the first one only")
    config.addinivalue_line("markers", "each_backend: depends on the backend, in a file whose other tests run once")
    config.addinivalue_line("markers", "processes: starts processes")
    config.addinivalue_line("markers", "graph_optimizer: runs with TensorFlow's graph optimizer, as for users")


def pytest_ignore_collect(collection_path, config):
    """Does not even import files whose tests are all left out."""
    if config.getoption("--without-once") and collection_path.match("test_*.py"):
        text = collection_path.read_text(encoding="utf-8")
        return True if ONCE.search(text) and "mark.each_backend" not in text else None


def runs_once(item):
    return item.get_closest_marker("once") and not item.get_closest_marker("each_backend")


def pytest_collection_modifyitems(config, items):
    """Leaves out the tests that run once, and puts those that start processes first: they take the longest."""
    if config.getoption("--without-once"):
        config.hook.pytest_deselected(items=[item for item in items if runs_once(item)])
        items[:] = [item for item in items if not runs_once(item)]
    items.sort(key=lambda item: item.get_closest_marker("processes") is None)


def pytest_collection_finish():
    """Keeps what is imported out of the garbage collector, which would look through it again and again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Leaves out TensorFlow's graph optimizer, which takes longer than it saves in tests."""
    from tests.support.backends import use_graph_optimizer  # not at the top: it imports a backend

    use_graph_optimizer(item.get_closest_marker("graph_optimizer") is not None)


@pytest.fixture(autouse=True, scope="module")
def no_garbage():
    """Models are cycles: what the tests of a file leave is collected here, and not in the middle of a later test.

    This is before the next file, since pytest holds what the last test of a file was given until that test is over.
    What is still alive is not looked through again, which took a third of the time under JAX. JAX keeps every traced
    program until its caches are cleared.
    """
    if os.environ.get("KERAS_BACKEND") == "jax":
        import jax

        jax.clear_caches()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fresh_keras():
    """Every test starts from the same names, seed and dtype policy, whatever ran before it."""
    import keras  # not at the top: the process that hands out the tests to others needs no backend

    keras.backend.clear_session(free_memory=False)
    keras.config.set_dtype_policy("float32")
    keras.utils.set_random_seed(1)


@pytest.fixture(scope="module")
def eager_predictions():
    """Under TensorFlow, predictions run eagerly: the quickest way where a test only compares with them."""
    with pytest.MonkeyPatch.context() as patched:
        if os.environ.get("KERAS_BACKEND") == "tensorflow":
            patched.setattr("keras_adaptive.models.prediction.compiled", lambda function, *_, **__: function)
        yield


@pytest.fixture(scope="module")
def one_number_of_slots():
    """Networks of characters read every word with the most slots, to compile less."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("keras_adaptive.layers.inputs.char_cnn.SLOTS", ())
        yield


@pytest.fixture(autouse=True, scope="session")
def compile_once():
    """Under JAX, predictions begin with the program that they keep, not with a quick one: the flags of XLA are quick.

    `tests/backend/test_compiled.py` tests the quick one, and programs in processes of their own begin with it.
    """
    with pytest.MonkeyPatch.context() as patched:
        if os.environ.get("KERAS_BACKEND") == "jax":
            from keras_adaptive.models import prediction

            compiled = prediction.compiled
            patched.setattr(prediction, "compiled", lambda *given, quick_start=False, **kw: compiled(*given, **kw))
        yield


@pytest.fixture(autouse=True, scope="session")
def without_autotuning():
    """Under TensorFlow, data sets are not tuned: freeing an iterator may wait a minute for the thread that tunes it."""
    with pytest.MonkeyPatch.context() as patched:
        if os.environ.get("KERAS_BACKEND") == "tensorflow":
            import tensorflow

            options, iterate = tensorflow.data.Options(), tensorflow.data.Dataset.__iter__
            options.autotune.enabled = False
            patched.setattr(tensorflow.data.Dataset, "__iter__", lambda data: iterate(data.with_options(options)))
        yield


@pytest.fixture
def forks():
    """Processes of `python -m` begin with the package imported."""
    with forked():
        yield


@pytest.fixture(scope="session")
def golden():
    """`golden("nag")` reads nag.npz and nag.json of tests/golden; `golden.folder` is that folder."""

    def read(name):
        with np.load(GOLDEN / f"{name}.npz") as arrays:
            config = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
            return Golden(dict(arrays), config)

    read.folder = GOLDEN
    return read
