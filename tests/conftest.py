"""What every test shares: quiet backends, a fresh Keras session and seed per test, the golden numbers."""

import gc
import importlib.metadata
import json
import os
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


# What does not depend on the backend: scripts/test.sh runs it on the first backend only.
ONCE = [
    "callbacks/test_stop_on_signal.py::test_the_message",
    "callbacks/test_stop_on_signal.py::test_two_signals",
    "callbacks/test_terminate_on_hang.py",
    "data",
    "distribution/test_lost_process.py",
    "fairseq/test_hostile_files.py",
    "fairseq/test_unknown_options.py",
    "hub/test_causal_lm.py::test_a_preset_keeps",
    "hub/test_causal_lm.py::test_a_saved_task",
    "hub/test_causal_lm.py::test_a_task_of_a_run",
    "hub/test_causal_lm.py::test_another_dtype",
    "hub/test_causal_lm.py::test_bad",
    "hub/test_causal_lm.py::test_keras_hub_that_is_missing",
    "hub/test_causal_lm.py::test_the_dtype",
    "hub/test_causal_lm.py::test_the_summary",
    "hub/test_documentation.py",
    "hub/test_presets.py::test_a_damaged_config",
    "hub/test_presets.py::test_a_missing_file",
    "hub/test_presets.py::test_lengths",
    "hub/test_presets.py::test_parts_of_other_classes",
    "hub/test_presets.py::test_task_weights",
    "hub/test_presets.py::test_the_vocabulary",
    "hub/test_presets.py::test_what_is_no",
    "hub/test_tokenizer.py",
    "layers/bodies/test_recurrent_decoders.py::test_sizes_of",
    "layers/bodies/test_recurrent_decoders.py::test_values_that",
    "layers/bodies/test_recurrent_decoders.py::test_what_makes_no_sense",
    "layers/outputs/test_char_cnn_softmax.py::test_bad_input",
    "layers/outputs/test_char_cnn_softmax.py::test_the_published",
    "layers/outputs/test_char_cnn_softmax.py::test_training_computes",
    "layers/outputs/test_char_lstm_softmax.py::test_bad_input",
    "layers/outputs/test_char_lstm_softmax.py::test_prefixes",
    "layers/outputs/test_char_lstm_softmax.py::test_the_published",
    "layers/outputs/test_model_checks.py::test_losses_and_metrics",
    "layers/outputs/test_ties.py::test_a_copy_is_tied",
    "layers/outputs/test_ties.py::test_an_embedding_of_keras",
    "metrics/test_frequency_bins.py",
    "metrics/test_mixture.py",
    "metrics/test_positions.py",
    "models/test_model_file.py",
    "models/test_parameter_counts.py",
    "models/test_transfer.py",
    "models/test_unsorted_ids.py::test_padding",
    "models/test_unsorted_ids.py::test_what_is",
    "ops/test_bands.py",
    "scripts/benchmarks/peers",
    "scripts/benchmarks/test_benchmarks.py::test_each",
    "scripts/benchmarks/test_benchmarks.py::test_nothing",
    "scripts/benchmarks/test_plot.py",
    "scripts/benchmarks/test_preparation.py",
    "scripts/benchmarks/test_serving.py::test_answers",
    "scripts/benchmarks/test_step.py",
    "scripts/experiments",
    "scripts/test_results.py",
    "scripts/tutorials/test_tutorials.py::test_a_recommender",
    "scripts/tutorials/test_tutorials.py::test_an_adaptive",
    "test_annotations.py",
    "test_deprecation.py",
    "text/test_line_ends.py",
    "text/test_text_batches.py::test_fit_asks",
    "text/test_text_batches.py::test_lines_make",
    "text/test_text_batches.py::test_sizes",
    "text/test_text_model.py::test_an_empty_path",
    "text/test_text_model.py::test_bad_input",
    "text/test_text_model.py::test_no_line_begins",
    "test_configs.py",
    "test_documentation.py",
    "test_evaluation.py",
    "test_files.py",
    "test_imports.py::test_allowed",
    "test_imports.py::test_forbidden",
    "test_imports.py::test_imports_of_module",
    "test_imports.py::test_programs_in_the_wheel",
    "test_imports.py::test_relative_imports",
    "test_imports.py::test_tests_share",
    "test_imports.py::test_there_are_modules",
    "test_package.py",
    "test_published_tables.py",
    "test_structure.py",
    "trainers/test_analysis_pictures.py",
    "trainers/test_analyze.py",
    "trainers/test_bad_folders.py",
    "trainers/test_bad_input.py",
    "trainers/experiments/test_hyperparameters.py",
    "trainers/page",
    "trainers/test_character_programs.py",
    "trainers/support/test_command_line.py",
    "trainers/test_convert.py",
    "trainers/experiments/test_ensembles.py",
    "trainers/test_empty_paths.py",
    "trainers/experiments/test_experiment.py",
    "trainers/test_hybrid_programs.py",
    "trainers/test_kneser_ney.py",
    "trainers/test_last_words.py",
    "trainers/test_longer_runs.py",
    "trainers/test_output_flags.py",
    "trainers/test_neighbors.py",
    "trainers/test_plot.py",
    "trainers/test_prepare.py",
    "trainers/test_programs.py::test_bad_flags",
    "trainers/test_programs.py::test_the_command_line",
    "trainers/support/test_progress.py",
    "trainers/test_trials.py",
    "trainers/test_results.py",
    "trainers/experiments/test_run_folder.py",
    "trainers/test_sampled_output.py",
    "trainers/test_score_tables.py",
    "trainers/test_serve.py",
    "trainers/test_sharded_corpus.py",
    "trainers/test_stream_programs.py::test_averages",
    "trainers/test_stream_programs.py::test_bad_flags",
    "trainers/test_stream_programs.py::test_streams_are_not_divided",
    "trainers/test_stream_programs.py::test_summary_counts",
    "trainers/test_stream_programs.py::test_words_are_generated",
    "trainers/test_subword_programs.py",
]
# What starts processes, by file or test; the slowest ones, so that they do not begin last.
PROCESSES = [
    "distribution/test_strategies.py",
    "distribution/test_forms.py",
    "distribution/test_lost_process.py::test_a_process_whose_other_is",
    "scripts/experiments/test_compare.py",
    "scripts/experiments/test_fault_injection.py",
    "scripts/benchmarks/test_benchmarks.py",
    "scripts/benchmarks/test_on_gpu.py",
    "scripts/benchmarks/test_serving.py",
    "scripts/benchmarks/peers",
    "export/test_saved_model.py",
    "data/preparation/test_shards.py",
    "trainers/support/test_command_line.py",
    "models/test_streams.py::test_a_killed",
    "models/test_saving.py::test_another_backend",
    "trainers/test_programs.py::test_an_exported_run",
    "trainers/test_programs.py::test_the_command_line",
    "trainers/test_programs.py::test_two_trainings",
    "trainers/test_plot.py::test_the_command",
    "trainers/test_plot.py::test_matplotlib_that_is_missing",
    "trainers/test_prepare.py::test_the_command",
    "trainers/test_analyze.py::test_command_says",
    "scripts/benchmarks/test_plot.py::test_the_command",
    "data/codecs/test_subwords.py::test_merges_do_not_depend",
    "distribution/test_lost_process.py::test_the_lines_for_slurm",
    "ops/test_chunks.py::test_two_mirrored",
    "trainers/test_serve.py::test_eight_clients",
    "test_imports.py::test_every_module",
    "test_package.py::test_a_file",
    "test_package.py::test_an_installed_backend",
    "test_package.py::test_importing",
    "test_package.py::test_without_a_backend",
]
# What runs with TensorFlow's graph optimizer, by file or test: programs, as users run them.
OPTIMIZED = [
    "models/test_training.py::test_graphs_make_the_same_update",
    "trainers",
]


def pytest_addoption(parser):
    parser.addoption("--without-once", action="store_true", help="leave out what does not depend on the backend")


def pytest_configure(config):
    config.addinivalue_line("markers", "once: does not depend on the backend")
    config.addinivalue_line("markers", "processes: starts processes")


def pytest_ignore_collect(collection_path, config):
    """Does not even import files whose tests are all left out."""
    if config.getoption("--without-once") and _relative(collection_path) in ONCE:
        return True


def pytest_collection_modifyitems(config, items):
    """Marks the tests of the tables above, leaves some out, and puts those that start processes first."""
    places = {id(item): place(item, PROCESSES) for item in items}
    for item in items:
        if place(item, ONCE) < len(ONCE):
            item.add_marker("once")
        if places[id(item)] < len(PROCESSES):
            item.add_marker("processes")
    if config.getoption("--without-once"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("once")])
        items[:] = [item for item in items if not item.get_closest_marker("once")]
    items.sort(key=lambda item: places[id(item)])


def pytest_collection_finish():
    """Keeps what is imported out of the garbage collector, which would look through it again and again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Leaves out TensorFlow's graph optimizer, but for the tests of the table."""
    from tests.support.backends import use_graph_optimizer  # not at the top: it imports a backend

    use_graph_optimizer(place(item, OPTIMIZED) < len(OPTIMIZED))


def place(item, table):
    """Returns the index of the entry of a table that an item belongs to, and the table's length if there is none."""
    name = f"{_relative(item.path)}::{item.name}"
    return next((index for index, entry in enumerate(table) if name.startswith(entry)), len(table))


def _relative(path):
    root = Path(__file__).parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else ""


@pytest.fixture(autouse=True, scope="module")
def no_garbage():
    """Models are cycles: what the tests of a file leave is collected here, and not in the middle of a later test."""
    yield
    gc.collect()


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
