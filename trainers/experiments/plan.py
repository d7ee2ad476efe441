"""Plans a training on several devices: the memory of each, what it sends in an update, and the tokens per second."""

import math
from typing import NamedTuple

import numpy as np

from keras_adaptive.backend.sparse.tables import row_tables
from keras_adaptive.backend.unallocated import number_of_values
from keras_adaptive.files import read_json_lines
from trainers.experiments import summary
from trainers.support.tables import aligned

DEVICES = (1, 8, 64)
MACHINE = 8  # devices that divide each word table, at the most
GIGABYTES = (25, 300)  # that a device sends per second: InfiniBand, NVLink
MIB = 2**20


class Plan(NamedTuple):
    """What each of several devices holds and sends.

    Attributes:
        devices: Number of devices.
        sharing: Number of devices that divide each word table; 1 under data parallelism.
        micro_batches: Number of parts in which a device computes its rows.
        tokens: Number of tokens of an update that each device computes. Devices that divide word tables compute the
            same ones.
        memory: Bytes of each device, `{part: bytes}`.
        sent: Bytes that each device sends in an update.
    """

    devices: int
    sharing: int
    micro_batches: int
    tokens: int
    memory: dict
    sent: float

    def tokens_per_second(self, rate: float, bandwidth: float) -> float:
        """Returns the tokens per second of all devices.

        Args:
            rate: Tokens per second of one device alone.
            bandwidth: Bytes per second that a device sends, while it computes nothing.
        """
        return self.devices / self.sharing * self.tokens / (self.tokens / rate + self.sent / bandwidth)


def plans(model, optimizer, counts, rows, length, micro_batches):
    """Returns a `Plan` for each of `DEVICES`, and a second one with divided word tables if the model has any.

    With more replicas, each computes its rows in fewer micro-batches, which have as many tokens as on one device.

    Args:
        model: A built `LanguageModel`, whose weights need not be allocated.
        optimizer: Its optimizer.
        counts: Number of occurrences of every word, from which the words of an update in each band follow.
        rows: Number of rows of an update.
        length: Number of tokens of a row.
        micro_batches: Number of micro-batches on one device.

    Returns:
        List of plans.
    """
    sizes, made = (rows, length, micro_batches), []
    for devices in DEVICES:
        made.append(plan_of(model, optimizer, counts, sizes, devices))
        if devices > 1 and tables_of(model):
            made.append(plan_of(model, optimizer, counts, sizes, devices, min(devices, MACHINE)))
    return made


def plan_of(model, optimizer, counts, sizes, devices, sharing=1):
    """Returns the `Plan` of a number of devices, `sharing` of which divide each word table."""
    rows, length, micro_batches = sizes
    replicas = devices // sharing
    micro_batches = math.ceil(micro_batches / replicas)
    at_a_time = math.ceil(rows / replicas / micro_batches) * length  # rows of weight 0 complete a batch
    memory = summary.memory(model, optimizer, at_a_time, length, micro_batches)
    gradients = memory["gradients"] / min(micro_batches, 2)  # accumulated gradients are summed once
    tables, share = tables_of(model), 1 - 1 / sharing  # the share of a divided table that other devices hold
    elsewhere = 4 * number_of_values(tables) * share
    # Gradients of tables that are updated by rows have the rows that were read.
    by_rows = row_tables((model.word_input, model.word_output), model.trainable_variables, optimizer)
    dense = [table for table in tables if not any(table is other for other in by_rows)]
    saved = 4 * number_of_values(dense) * share
    gradients -= saved
    memory["gradients"] -= saved * min(micro_batches, 2)
    memory["weights"] -= elsewhere
    memory["optimizer"] -= elsewhere * summary.slots(optimizer)
    memory["logits of a chunk"] /= sharing
    # Devices that divide tables compute the same rows, and sum the gradients of their weights with other such devices.
    sent = ring(replicas) * gradients
    if sharing > 1:
        sent += ring(sharing) * exchanged_bytes(model, counts, at_a_time * micro_batches)
    return Plan(devices, sharing, micro_batches, at_a_time * micro_batches, memory, sent)


def ring(devices):
    """Returns the share of summed bytes that a device sends to the others, arranged in a ring."""
    return 2 * (devices - 1) / devices


def exchanged_bytes(model, counts, tokens):
    """Returns the bytes that devices sum which divide word tables: of words, and of rows of the loss.

    Each token of the input takes a vector of each band. Each row of a band of the loss takes the largest logit, the
    sum of the exponentials, the logit of the target and the gradient of the hidden vector.
    """
    entering = sum(table.shape[1] for table in model.word_input.tables)
    boundaries, counts = model.word_output.boundaries, np.asarray(counts, "float64")
    shares = [counts[low:high].sum() / counts.sum() for low, high in zip(boundaries, boundaries[1:])]
    shares[0] = 1  # every row has a place in the head
    leaving = sum(share * (table.shape[1] + 3) for share, table in zip(shares, model.word_output.tables))
    return 4 * tokens * (entering + leaving)


def tables_of(model):
    """Returns the word tables of the input and the output, each once."""
    tables = [*model.word_input.tables, *model.word_output.tables]
    return list({id(table): table for table in tables}.values())


def print_plans(made, rate=None):
    """Prints a column for each plan, with the tokens/s of all devices if `rate`, the tokens/s of one, is known."""
    lines = {"devices": [plan.devices for plan in made]}
    lines["that divide word tables"] = [plan.sharing if plan.sharing > 1 else "–" for plan in made]
    lines["micro-batches"] = [plan.micro_batches for plan in made]
    lines["tokens on each"] = [f"{plan.tokens:,}" for plan in made]
    for part in made[0].memory:
        lines[f"{part}, MiB"] = [f"{plan.memory[part] / MIB:,.0f}" for plan in made]
    lines["all, MiB"] = [f"{sum(plan.memory.values()) / MIB:,.0f}" for plan in made]
    lines["sent by each, MiB"] = [f"{plan.sent / MIB:,.0f}" for plan in made]
    for speed in GIGABYTES:
        lines[f"at {speed} GB/s, ms"] = [f"{plan.sent / speed / 1e6:,.1f}" for plan in made]
        if rate:
            lines[f"tokens/s at {speed} GB/s"] = [f"{plan.tokens_per_second(rate, 1e9 * speed):,.0f}" for plan in made]
    print(*aligned([[name, *cells] for name, cells in lines.items()]), sep="\n")
    whole, divided = ([plan for plan in made if (plan.sharing > 1) == shares] for shares in (False, True))
    if divided:
        print(advice(whole[-1], divided[-1]))


def advice(whole, divided):
    """Returns a sentence on when to divide the word tables."""
    saved = sum(whole.memory[part] - divided.memory[part] for part in ("weights", "optimizer"))
    return (
        f"Dividing the word tables among {divided.sharing} devices saves {saved / MIB:,.0f} MiB of weights and "
        "optimizer\non each. These devices compute the same tokens: divide the tables only where memory is short."
    )


def measured_rate(log):
    """Returns the tokens per second that a run on one device has measured, the median of its log, or None."""
    if not log.exists():
        return None
    rates = [record["tokens_per_second"] for record in read_json_lines(log) if record.get("tokens_per_second")]
    return float(np.median(rates)) if rates else None
