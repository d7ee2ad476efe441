"""Measures training on several devices: bytes sent by an update, its waiting time, and the memory of a device.

    python -m scripts.benchmarks.scaling --backend=jax --strategy=model_parallel --results=scaling.json

The program trains on 1, 2 and 4 virtual CPU devices, or in 1, 2 and 4 local processes for strategies of processes,
with the same number of rows per device. The devices share the cores, so that an update takes longer with more devices.
Its time is therefore compared with the same update without sums over the replicas. A ring all-reduce sends each summed
byte 2·(devices − 1)/devices times from every device. Under `model_parallel`, the compiler inserts the sums, which
cannot be omitted.
"""

import itertools
import json
import sys

import numpy as np
from absl import flags

from scripts.benchmarks import common
from scripts.benchmarks.step import fit_turn
from scripts.benchmarks.virtual_devices import environments, make_devices, run_processes

FLAGS = flags.FLAGS
STRATEGIES = {"tensorflow": "mirrored", "jax": "data_parallel", "torch": "ddp"}
PER_PROCESS = ("ddp", "multiworker")  # strategies with a process for each device
SETTINGS = ("backend", "strategy", *common.MODEL_FLAGS, "length", "rows")
MIB = 2**20


def define_flags():
    common.define_flags(5, **common.BOOKS)
    flags.DEFINE_string(
        "strategy", None, "Strategy of trainers.train; by default the strategy of the backend for one machine."
    )
    flags.DEFINE_list("devices", ["1", "2", "4"], "Numbers of devices.")
    flags.DEFINE_integer("length", 128, "Number of tokens in a block.", lower_bound=1)
    flags.DEFINE_integer("rows", 4, "Number of blocks in an update on each device.", lower_bound=1)
    flags.DEFINE_integer("replica_of", 0, "Used internally: measure as one of this number of devices.", 0)


def replica():
    """Measures on the devices of this process and prints the figures."""
    make_devices(1 if FLAGS.strategy in PER_PROCESS else FLAGS.replica_of)
    from keras_adaptive import distribution
    from keras_adaptive.backend.replicas import sum_over_replicas
    from keras_adaptive.backend.sparse import tables
    from keras_adaptive.models import training_step

    strategy = distribution.start(FLAGS.strategy)
    summed = {}

    def counting(tensors):
        shapes = [tensor.shape for tensor in (tensors if isinstance(tensors, list) else [tensors])]
        summed[len(shapes)] = sum(4 * int(np.prod(shape)) for shape in shapes)  # the same in each update and replica
        return sum_over_replicas(tensors)

    with strategy.scope():
        turns, models = {}, []
        for name, function in (("update", counting), ("without sums", lambda tensors: tensors)):
            training_step.sum_over_replicas = tables.sum_over_replicas = function
            models.append(new_model())
            turns[name] = fit_turn(models[-1], strategy.shard(itertools.repeat(text(strategy.replicas))))
            turns[name]()  # traces and compiles with this function
        if FLAGS.strategy != "model_parallel" and sum(summed.values()) < held(models[0].trainable_variables):
            raise RuntimeError("The sums of gradients were not counted: they are made by another function.")
        figures = {
            "replicas": strategy.replicas,
            "seconds": common.times_of(turns, warmup=1, timed=True),
            "summed_bytes": by_compiler(models[0]) if FLAGS.strategy == "model_parallel" else sum(summed.values()),
            "state_bytes_of_a_device": held([*models[0].trainable_variables, *models[0].optimizer.variables]),
            "table_bytes_of_a_device": held(models[0].word_output.tables),
        }
    if strategy.process == 0:
        print(json.dumps(figures), flush=True)


def new_model():
    from keras_adaptive.optimizers import NAG

    model = common.build()
    model.compile(NAG(1e-3, momentum=0.99, global_clipnorm=0.1))
    return model


def by_compiler(model):
    """Returns the bytes that devices with shared word tables sum in XLA's program: no table and no gradient of one.

    Of each token its vectors of all bands go into the model; of each row that a band of the loss has come the
    greatest logit, the sum of the exponentials, the target's logit and the gradient of the hidden vector.
    """
    dims = np.array([table.shape[1] for table in model.word_output.tables])
    _, targets, _ = text(1)
    rows, _ = np.histogram(targets, model.word_output.boundaries)
    rows[0] = targets.size  # the head has all
    return 4 * int(targets.size * dims.sum() + rows @ (dims + 3))


def text(replicas):
    """Returns `(tokens, targets, weights)` of an update."""
    shape = FLAGS.rows * replicas, FLAGS.length + 1
    ids = np.random.default_rng(1).integers(0, FLAGS.vocabulary_size, shape).astype("int32")
    return ids[:, :-1], ids[:, 1:], np.ones((shape[0], FLAGS.length), "float32")


def held(variables):
    """Returns the bytes of variables on one device."""
    shards = [getattr(variable.value, "addressable_shards", None) for variable in variables]
    shapes = [shard[0].data.shape if shard else variable.shape for shard, variable in zip(shards, variables)]
    return sum(4 * int(np.prod(shape)) for shape in shapes)


def measure(devices):
    """Returns the figures of one number of devices, measured by processes of this script."""
    arguments = [*(FLAGS[name].serialize() for name in (*SETTINGS, "repeats")), f"--replica_of={devices}"]
    processes = environments(FLAGS.backend, devices) if FLAGS.strategy in PER_PROCESS else [{}]
    first, *_ = run_processes(processes, [sys.executable, "-m", "scripts.benchmarks.scaling", *arguments])
    return json.loads(first.splitlines()[-1])


def main():
    FLAGS.strategy = FLAGS.strategy or STRATEGIES[FLAGS.backend]
    if FLAGS.replica_of:
        return replica()
    cases = [{"devices": int(devices), **measure(int(devices))} for devices in FLAGS.devices]
    report(cases)


def report(cases):
    header = ["devices", "update, ms", "without sums", "in sums", "sent by each, MiB", "state, MiB", "tables, MiB"]
    rows = []
    for case in cases:
        update, alone = (case["seconds"][name]["median"] for name in ("update", "without sums"))
        case["share_in_sums"] = 1 - alone / update if case["replicas"] > 1 else None  # XLA's sums cannot be omitted
        case["sent_bytes_of_a_device"] = 2 * (case["devices"] - 1) / case["devices"] * case["summed_bytes"]
        sizes = (case[f"{name}_bytes_of_a_device"] / MIB for name in ("sent", "state", "table"))
        share = "" if case["share_in_sums"] is None else f"{100 * case['share_in_sums']:.0f} %"
        times = f"{1e3 * update:.0f}", f"{1e3 * alone:.0f}", share
        rows.append([case["devices"], *times, *(f"{size:.2f}" for size in sizes)])
        case["candidates"] = case.pop("seconds")
    common.print_table([f"{FLAGS.strategy}, {header[0]}", *header[1:]], rows)
    common.save(SETTINGS, cases=cases)


if __name__ == "__main__":
    common.run(main, define_flags)
