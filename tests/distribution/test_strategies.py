"""The same update on one device and on several, by every strategy: virtual devices, and real processes."""

import functools
import json
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_adaptive import distribution
from keras_adaptive.data import load_corpus
from keras_adaptive.distribution import data_parallel
from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, Input, WordEmbedding
from keras_adaptive.models import LanguageModel, transformer
from scripts.benchmarks.virtual_devices import environments, run_processes
from tests.support import replicas
from tests.support.backends import BACKEND
from tests.support.processes import forked
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.runs import assert_same_runs, records
from tests.support.text import prepared, write_zipf
from tests.support.tiny import language_model
from trainers import train
from trainers.experiments import checks

pytestmark = pytest.mark.processes

# How 8 rows are divided: strategy, processes, devices of each, micro-batches of each, devices that share tables; and
# whether float16 is tried, which is one program with JAX's other strategies.
CASES = {
    "tensorflow": [("mirrored", 1, 4, 1, 0, 1), ("multiworker", 2, 1, 2, 0, 1)],
    "jax": [("data_parallel", 1, 4, 1, 0, 1), ("data_parallel", 2, 1, 2, 0, 0)]
    + [("model_parallel", 1, 4, 2, 2, 0), ("model_parallel", 1, 2, 4, 2, 0)],
    "torch": [("ddp", 2, 1, 2, 0, 1), ("ddp", 4, 1, 1, 0, 0)],
}[BACKEND]


@pytest.fixture(scope="module")
def one_device():
    """Returns the results of the same code with 4 micro-batches on one device."""
    return replicas.trained(distribution.start(), 4, eagerly=BACKEND == "tensorflow")


@functools.cache
def streams_of_one_device():
    return replicas.streams(distribution.start(), 1)


@functools.cache
def float16_of_one_device(updates=replicas.FLOAT16_UPDATES):
    return replicas.float16(distribution.start(), updates)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def case(request):
    """The case and what each of its processes printed."""
    name, processes, *rest = request.param
    printed = launch(processes, "tests.support.replicas", name, *rest)
    return request.param, [json.loads(line) for line in printed]


def launch(processes, module, *arguments):
    """The last line that each process of a module prints, in their order."""
    known = environments(BACKEND, processes) if processes > 1 else [{}]
    with forked():
        printed = run_processes(known, [sys.executable, "-m", module, *map(str, arguments)])
    return [lines.splitlines()[-1] for lines in printed]


def assert_same_weights(one, other):
    for weight, expected in zip(one["weights"], other["weights"], strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-6, rtol=0)


def test_the_same_update_as_on_one_device(case, one_device):
    """Five updates of text and sentences, one of them with fewer rows than replicas, and one that is skipped."""
    (_, processes, devices, _, model_devices, _), found = case
    assert [one["process"] for one in found] == list(range(processes))
    for one in found:
        assert one["replicas"] == processes * devices // max(model_devices, 1)
        assert one["iterations"] == one_device["iterations"] == 5
        assert_same_weights(one, one_device)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a strategy of TensorFlow")
def test_the_same_update_under_a_strategy_of_one_device(one_device):
    strategy = distribution.start("mirrored")  # of all GPUs, or one CPU
    with strategy.scope():
        assert_same_weights(replicas.trained(strategy, 4), one_device)


def test_every_process_has_the_same_weights_to_the_last_bit(case):
    first, *others = case[1]
    for other in others:
        assert other["weights"] == first["weights"] and other.get("float16") == first.get("float16")


def test_logs_and_validation_are_of_all_replicas(case, one_device):
    for one in case[1]:
        assert one["logs"] == pytest.approx(one_device["logs"], rel=1e-5)
        assert one["validated"] == pytest.approx(one_device["validated"], rel=1e-5)
        assert one["tokens"] == one_device["tokens"] > 0
        assert one["logs"]["skipped"] == 1


def test_every_replica_draws_its_own_dropout(case):
    (_, processes, *_), found = case
    expected = 16 if found[0]["replicas"] > 1 else -1
    assert all(one["masks"] == found[0]["masks"] > expected for one in found)


def test_what_is_saved_is_what_is_restored(case):
    assert all(one["restored"] for one in case[1])


def test_the_processes_agree_on_the_largest_number(case):
    (_, processes, *_), found = case
    assert all(one["largest"] == [processes - 1, 0] for one in found)


def test_streams_are_carried_as_on_one_device(case):
    expected = streams_of_one_device()
    for one in case[1]:
        assert_same_weights(one["streams"], expected)
        assert one["streams"]["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert np.abs(np.array(expected["weights"][-1])).max() > 0.1


def test_float16_loses_the_updates_that_overflow_and_then_learns_as_on_one_device(case):
    """Sums over fewer rows overflow at a larger scale: at the most at twice as large a one for half of the rows."""
    (_, processes, devices, *_), (first, *_) = case
    if "float16" not in first:
        pytest.skip("tested with the other strategies of the backend")
    found, expected = first["float16"], float16_of_one_device()
    assert 3 < expected["skipped"] < 20
    fewer = expected["skipped"] - found["skipped"]
    assert 0 <= fewer <= np.log2(processes * devices) and found["scale"] == expected["scale"] * 2**fewer
    if fewer:  # one device with as many updates that count
        expected = float16_of_one_device(replicas.FLOAT16_UPDATES + int(fewer))
    for weight, other in zip(found["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(weight, other, rtol=0, atol=0.01)


def test_word_tables_are_shared_out(case, one_device):
    (*_, model_devices, _), found = case
    for one in found:
        assert [rows * max(model_devices, 1) for rows in one["rows"]] == one_device["rows"]


def corpus(folder):
    """Returns the folder of a corpus of 75 lines of made-up words."""
    return prepared(write_zipf(folder, words=80, lengths=(61, 11, 3))).data_dir


def test_a_training_that_was_stopped_in_one_process_goes_on_bit_for_bit(tmp_path, capsys):
    """It resumes on one device, too. It sees every token once in an epoch, whose last batch is not full."""
    name, processes, devices, *_ = next(case for case in CASES if case[1] > 1)  # which must read and write in step
    sizes = "--dim=16 --num_heads=2 --ffn_dim=32 --num_blocks=1 --cutoffs=20 --length=8 --batch_size=4 --dropout=0.3"
    training = "--updates=16 --evaluate_every=16 --log_every=8 --save_every=9 --notensorboard --momentum=0.9"
    data_dir = corpus(tmp_path)
    flags = [*sizes.split(), *training.split(), f"--data_dir={data_dir}"]
    launch(processes, "tests.support.stopped_training", devices, tmp_path, f"--strategy={name}", *flags)
    runs = [tmp_path / run for run in ("whole", "stopped")]
    assert_same_runs(*runs)
    assert (runs[0] / "checkpoints" / "update_0000000016.npz").exists()
    tokens = load_corpus(data_dir).tokens("train")
    assert records(runs[0])[-1]["tokens"] == len(tokens) == 61 * 8  # in 16 batches of up to 32
    call(train, *flags, "--micro_batches=2", f"--run_dir={runs[0]}")
    assert "Continuing" in capsys.readouterr().out


def strategy(replicas, processes=1, process=0):
    return distribution.Strategy(replicas, processes, process, own_rows=processes > 1)


@pytest.mark.once
def test_no_row_is_left_out_or_counted_twice():
    """Five rows for two processes of two replicas with two micro-batches each."""
    batch = tuple(np.arange(1, 11).reshape(5, 2) * scale for scale in (1, 10, 100.0))
    parts = [strategy(4, 2, process).local_batch(batch, micro_batches=2) for process in range(2)]
    assert [array.shape for part in parts for array in part] == [(4, 2)] * 6
    for array, halves in zip(batch, zip(*parts, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate(halves)[:5], array)
        assert not np.concatenate(halves)[5:].any()
    assert strategy(1).local_batch(batch) is batch


ALONE = "one of several processes, which would train independently"
TF_CONFIG = '{"cluster": {"worker": ["a:1"%s]}, "task": {"type": "worker", "index": 1}}'
NO_CONFIG = "needs TF_CONFIG in the environment of every process: set it to"
REFUSED = {  # variables of the environment, arguments of `start`, and the message
    "tensorflow": [
        ({"TF_CONFIG": TF_CONFIG % ', "b:1"'}, ("none",), ALONE),
        ({}, ("multiworker",), NO_CONFIG),
        ({"TF_CONFIG": TF_CONFIG % ""}, ("multiworker",), NO_CONFIG),
    ],
    "jax": [
        ({"KERAS_DISTRIBUTION_NUM_PROCESSES": "2"}, ("none",), ALONE),
        ({}, ("model_parallel", 3), "groups of devices that divide all of them. Received: groups of 3, 1 devices"),
    ],
    "torch": [
        ({"WORLD_SIZE": "2"}, ("none",), ALONE),
        ({}, ("ddp",), "launch the processes with `torchrun --nproc_per_node=DEVICES -m"),
    ],
}[BACKEND]
REFUSED.append(({}, ("mirored",), "must be one of .*'none', 'mirrored'.* Received: 'mirored'"))
OTHERS = [(name, backend) for name, backend in distribution.BACKENDS.items() if backend != BACKEND]
REFUSED += [({}, (name,), f"'{name}' belongs to {backend}: run with KERAS_BACKEND=") for name, backend in OTHERS]


@pytest.mark.parametrize("environment, arguments, message", REFUSED, ids=lambda one: repr(one)[:40])
def test_a_strategy_that_cannot_start_is_refused(environment, arguments, message, monkeypatch):
    for name in ("TF_CONFIG", "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    refused(distribution.start, *arguments, match=message)


@pytest.mark.skipif(BACKEND != "jax", reason="a strategy of JAX")
@pytest.mark.parametrize("connected", [True, False])
def test_processes_that_the_user_has_connected_stay_as_they_are(connected, monkeypatch):
    """They may have heartbeats of another length than those that Keras connects."""
    import jax

    calls = []
    monkeypatch.setenv(data_parallel.JAX_PROCESSES, "1")
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: connected)
    monkeypatch.setattr(keras.distribution, "initialize", lambda: calls.append("connects"))
    distribution.start("data_parallel")
    assert calls == ([] if connected else ["connects"])


@pytest.mark.skipif(BACKEND != "jax", reason="a strategy of JAX")
def test_bands_that_the_devices_do_not_divide_are_named():
    mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"))
    mesh._shape = (1, 2)  # as of two devices
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[data_parallel.TABLES] = ("model", None)
    with data_parallel._SharedTables(layout_map=layouts).scope():
        refused(language_model, match="Received: 5 words in word_input/table_0, 2 devices that share them")


@pytest.mark.skipif(BACKEND != "jax", reason="a strategy of JAX")
def test_tables_are_shared_whatever_the_layers_are_called():
    mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"))
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[data_parallel.TABLES] = ("model", None)
    with data_parallel._SharedTables(layout_map=layouts).scope():
        for layer in (
            AdaptiveEmbedding(8, 4, (4,), factor=2, name="mine"),
            WordEmbedding(8, 4, name="own"),
            AdaptiveSoftmax(8, (4,), factor=2, name="last"),
            AdaptiveSoftmax(8, (3,), factor=None, use_bias=True, name="whole"),
        ):
            layer.build((None, None, 4))
            assert [table._layout.axes for table in layer.tables] == [("model", None)] * len(layer.tables)
            others = set(map(id, layer.variables)) - set(map(id, layer.tables))
            assert not any("model" in one._layout.axes for one in layer.variables if id(one) in others)


@pytest.mark.skipif(BACKEND != "jax", reason="a strategy of JAX")
def test_a_model_without_tables_is_refused():
    strategy = distribution.start("model_parallel")
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    refused(
        strategy.synchronize, model, match="the model has none: use 'data_parallel'. Received: .'sequential/dense/k"
    )


@pytest.mark.skipif(BACKEND != "jax", reason="a strategy of JAX")
def test_a_table_that_would_not_be_divided_is_refused():
    class Own(Input):
        vocabulary_size, output_dim, boundaries = 8, 4, (0, 8)

        def build(self, shape):
            self.tables = [self.add_weight(shape=(8, 4), name="words")]

        def call(self, ids):
            return keras.ops.take(self.tables[0], ids, axis=0)

    strategy = distribution.start("model_parallel")
    with strategy.scope():
        model = LanguageModel(Own(), transformer(num_blocks=1, dim=4, ffn_dim=8, num_heads=1), AdaptiveSoftmax(8, ()))
    refused(strategy.synchronize, model, match=r"table_1, …. Received: \['own/words'\]")


@pytest.mark.once
def test_fewer_rows_than_parts_of_an_update(tmp_path, monkeypatch):
    monkeypatch.setattr(distribution, "start", lambda *flags: strategy(4))
    flags = ["--length=8", "--batch_size=4", "--micro_batches=2", f"--data_dir={corpus(tmp_path)}"]
    match = "Received: --batch_size=4 --micro_batches=2 --strategy=none with 4 replicas"
    refused(train, *flags, f"--run_dir={tmp_path}/run", match=match)
    assert not (tmp_path / "run").exists()


@pytest.mark.once
def test_processes_that_do_not_see_the_same_folder():
    class Another(distribution.Strategy):
        def all_reduce_max(self, number):
            return max(number, 0)

    match = "--run_dir must be on a shared file system. Received: updates 0 to 7"
    refused(checks.check_same_checkpoint, Another(), SimpleNamespace(update=7), match=match)
