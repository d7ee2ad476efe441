"""The sizes of chunks by device, and sums of `linear_cross_entropy` over several devices."""

from functools import partial

import numpy as np
import pytest
from keras import ops

from keras_adaptive.backend.compiled import compiled
from keras_adaptive.layers import CharCNN, CharLSTMSoftmax
from keras_adaptive.ops import chunks, context_product, linear_cross_entropy
from keras_adaptive.ops.attention import causal_attention
from keras_adaptive.ops.chunks import default_chunk_rows, tail_chunk_rows
from tests.support import programs
from tests.support.backends import BACKEND, value_and_gradients, weight_gradients
from tests.support.chunks import pretend_accelerator
from tests.support.closeness import close

DEVICES = {"CPU": False, "accelerator": True}


@pytest.fixture(params=DEVICES)
def sizes(request, monkeypatch):
    """Sizes of chunks of a device, whatever this machine has."""
    pretend_accelerator(monkeypatch, DEVICES[request.param])
    return chunks.chunk_sizes()


@pytest.mark.parametrize("columns", [1, 5_000, 60_000, 1_000_000])
@pytest.mark.parametrize("rows", [None, 1, 7, 1_000, 2_048, 16_384])
@pytest.mark.parametrize("dim", [0, 64, 1_024, 8_192])
@pytest.mark.once
def test_default_chunks(sizes, rows, columns, dim):
    chunk = default_chunk_rows(rows, columns, dim)
    assert chunk % 8 == 0 and chunk <= sizes.max_rows
    least = max(sizes.min_rows, min(sizes.rows_by_dim * dim, sizes.most_logit_bytes // (4 * columns)))
    assert 4 * columns * (chunk - 8) < sizes.logit_bytes or chunk - 8 < least
    assert rows is not None or chunk >= min(least, sizes.max_rows)
    if rows:  # no more than 7 rows of a chunk are idle
        count = -(-rows // chunk)
        assert count * chunk - rows < 8 * count


@pytest.mark.once
def test_chunks_of_a_tail(sizes):
    """The chunks follow the rows of the batch where TensorFlow's graph does not know them, as in `fit`."""
    chunk_rows = compiled(lambda x: ops.convert_to_tensor(tail_chunk_rows(x, 10_000)), [])
    found = {rows: int(chunk_rows(ops.zeros((rows, 2)))) for rows in (16_384, 2_048, 1_024, 1_000, 64)}
    by_rows = {rows: max(-(-rows // sizes.tail_chunks), sizes.min_rows) for rows in found}
    most = default_chunk_rows(None, 10_000)
    assert most >= by_rows[16_384] > by_rows[64]
    assert found == (dict.fromkeys(found, most) if BACKEND == "torch" else by_rows)


@pytest.mark.once
def test_chunks_are_larger_on_an_accelerator():
    assert set(chunks.CPU) == {"tensorflow", "jax", "torch"}
    for on_cpu in chunks.CPU.values():
        larger = zip(on_cpu._replace(tail_chunks=0, rows_first=0, short_keys=0), chunks.ACCELERATOR, strict=True)
        assert all(number < other or not number for number, other in larger)


def adaptive_loss(x, targets, table, projection, tail):
    """A head of 20 words and a column for its tail of 5 words, as in an `AdaptiveSoftmax`."""
    weights = ops.ones(ops.shape(targets), "float32")
    head = linear_cross_entropy(x, table, ops.where(targets < 20, targets, 20), weights, x[:, :1])
    low, rows = ops.matmul(x, projection), tail_chunk_rows(x, 5)
    return head + linear_cross_entropy(low, tail, ops.where(targets < 20, -1, targets - 20), weights, None, rows)


def draws(*shapes):
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype("float32") for shape in shapes]


def losses():
    """Returns `{name: function of no arguments}`, of loss and gradients of more rows than a chunk has on a CPU."""
    targets = np.random.default_rng(1).integers(0, 25, 1_100).astype("int32")
    squares = lambda *parts: sum(ops.sum(ops.square(part)) for part in parts)  # noqa: E731
    softmax = lambda x, *weights: adaptive_loss(x, targets, *weights)  # noqa: E731
    context = lambda x, *weights: squares(*context_product(x, *weights, num_local=3))  # noqa: E731
    window = lambda *arrays: squares(causal_attention(*arrays, window=3))  # noqa: E731
    words = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefgh"]
    by_bytes = CharCNN(words, 4, highways=1, char_dim=3, filters=(2, 3), max_bytes=4)
    by_bytes.build()
    spelled = CharLSTMSoftmax(words, units=3, char_dim=2)
    spelled.build((None, 4))
    ids, of_words = targets[:300] % len(words), lambda x: spelled.total_nll(x, ids)
    return {
        "adaptive softmax": partial(value_and_gradients, softmax, draws((1_100, 4), (20, 4), (4, 2), (5, 2))),
        "context": partial(value_and_gradients, context, draws((2, 1_200, 2), (6, 3), (3,))),
        "window": partial(value_and_gradients, window, draws(*[(1, 150, 1, 2)] * 3)),
        "bytes": partial(weight_gradients, lambda: squares(by_bytes(ids)), by_bytes.trainable_variables),
        "spelling": partial(weight_gradients, of_words, spelled.trainable_variables, draws((300, 4))),
    }


@pytest.mark.parametrize("name", ["adaptive softmax", "context", "window", "bytes", "spelling"])
def test_values_and_gradients_do_not_depend_on_the_device(name, monkeypatch):
    compute, results = losses()[name], []
    for accelerator in DEVICES.values():
        pretend_accelerator(monkeypatch, accelerator)
        results.append(compute())
    (value, gradients), (other, others) = results
    np.testing.assert_allclose(value, other, rtol=1e-5)
    close(gradients, others, 1e-5, least=1e-3)


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
@pytest.mark.processes
def test_two_mirrored_devices_give_the_sums_of_one():
    done = programs.run("-c", MIRRORED)
    assert done.stdout.split() == ["equal"], done.stderr
