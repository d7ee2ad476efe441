"""The size of the chunks of `linear_cross_entropy`, and its sums over several devices."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from keras import ops

from keras_adaptive.backend.compiled import compiled
from keras_adaptive.ops.chunks import CHUNK_BYTES, MAX_CHUNK_ROWS, MIN_CHUNK_ROWS, default_chunk_rows, tail_chunk_rows
from tests.support.backends import BACKEND


@pytest.mark.parametrize("columns", [1, 5_000, 60_000, 1_000_000])
@pytest.mark.parametrize("rows", [None, 1, 7, 1_000, 2_048, 16_384])
@pytest.mark.parametrize("dim", [0, 64, 1_024, 8_192])
def test_default_chunks(rows, columns, dim):
    chunk = default_chunk_rows(rows, columns, dim)
    assert chunk % 8 == 0 and chunk <= MAX_CHUNK_ROWS
    least = MIN_CHUNK_ROWS if BACKEND == "torch" else max(MIN_CHUNK_ROWS, dim // 2)
    assert 4 * columns * (chunk - 8) < CHUNK_BYTES[BACKEND] or chunk <= least
    assert rows is not None or chunk >= min(least, MAX_CHUNK_ROWS)
    if rows:  # no more than 7 rows of a chunk are idle
        chunks = -(-rows // chunk)
        assert chunks * chunk - rows < 8 * chunks


def test_chunks_of_a_tail():
    """They follow the rows of the batch where a graph of TensorFlow does not know them, as in `fit`."""
    chunk_rows = compiled(lambda x: ops.convert_to_tensor(tail_chunk_rows(x, 10_000)), [])
    sizes = {rows: int(chunk_rows(ops.zeros((rows, 2)))) for rows in (2_048, 1_024, 1_000, 64)}
    padded = {2_048: 64, 1_024: 32, 1_000: 32, 64: 16}
    assert sizes == (dict.fromkeys(padded, MAX_CHUNK_ROWS) if BACKEND == "torch" else padded)


MIRRORED = """
import numpy as np, tensorflow as tf
processor = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
from keras_adaptive.ops import linear_cross_entropy
random = np.random.default_rng(0)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    table = tf.Variable(random.normal(size=(7, 4)).astype("float32"))
x, targets = random.normal(size=(10, 4)).astype("float32"), random.integers(-1, 7, 10)

def step(x, targets):
    with tf.GradientTape() as tape:
        ones = tf.ones_like(targets, "float32")
        total = linear_cross_entropy(x, tf.convert_to_tensor(table), targets, ones, chunk_rows=2)
    return total, tape.gradient(total, table)

@tf.function
def mirrored(parts):
    return [strategy.reduce("SUM", one, axis=None) for one in strategy.run(step, parts)]

halves = lambda array: strategy.experimental_distribute_values_from_function(
    lambda context: array[context.replica_id_in_sync_group :: 2]
)
parts = [halves(array) for array in (x, targets)]
for one, other in zip(mirrored(parts), step(tf.constant(x), tf.constant(targets))):
    np.testing.assert_allclose(one, other, atol=1e-5)
print("equal")
"""


@pytest.mark.skipif(BACKEND != "tensorflow", reason="MirroredStrategy is TensorFlow's")
def test_two_mirrored_devices_give_the_sums_of_one():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", MIRRORED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.stdout.split() == ["equal"], done.stderr
