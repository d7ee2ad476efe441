"""Bodies: the layers from word vectors (batch, length, dim) to hidden states."""

import math

import numpy as np

from keras_adaptive.export.onnx.attention import attention, inside, sinusoids
from keras_adaptive.export.onnx.graph import Graph, Value


def body(graph: Graph, x: Value, config: dict, weights: dict) -> Value:
    """Returns the hidden states (batch, length, output_dim) of word vectors (batch, length, input_dim)."""
    return BODIES[config["kind"]](graph, x, config, weights)


def _activated(graph, x, name):
    if name == "relu_squared":
        x = graph.Relu(x)
        return x * x
    if name == "gelu":
        return x * (graph.Erf(x * math.sqrt(0.5)) + 1.0) * 0.5
    if name == "gelu_tanh":
        return x * (graph.Tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0) * 0.5
    return {"relu": graph.Relu, "tanh": graph.Tanh, "linear": lambda x: x}[name](x)


def _block(graph, x, places, config, weights):
    def added(x, name, function):
        norm = inside(weights, name)
        return x + function(graph.norm(x, norm)) if config["normalize_first"] else graph.norm(x + function(x), norm)

    def ffn(x):
        x = _activated(graph, graph.linear(x, inside(weights, "ffn_in")), config["activation"])
        return graph.linear(x, inside(weights, "ffn_out"))

    if config["mixer"] is not None:
        mixer = inside(weights, "mixer")
        x = added(x, "mixer_norm", lambda y: attention(graph, y, places, config["mixer"], mixer))
    return added(x, "ffn_norm", ffn)


def _concatenation(graph, x, places, config, weights):
    """Returns the output of a concatenation and the sum of its averages, 0 if there are none."""
    reach = config["reach"]
    seen = graph.Pad(x, [0, reach - 1, 0, 0, 0, 0])
    index = graph.Unsqueeze(places, [1]) + np.arange(reach)[::-1]
    windows = graph.Gather(seen, index, axis=1)  # (batch, length, distance, dim)
    blocks, global_sum = graph.Slice(windows, [0], [config["num_local"]], [2]), 0.0
    if config["num_global"]:
        averages = graph.MatMul(weights["filters"], windows)
        blocks, global_sum = graph.Concat(blocks, averages, axis=2), graph.ReduceSum(averages, [2], keepdims=0)
    branch = graph.Relu(graph.linear(graph.Reshape(blocks, [0, 0, -1]), inside(weights, "hidden")))
    branch = graph.linear(branch, inside(weights, "out")) if config["hidden_dim"] else branch
    y = graph.ReduceSum(blocks, [2], keepdims=0) + branch
    return graph.norm(y, inside(weights, "norm")) if config["normalize"] else y, global_sum


def _layer(graph, x, places, config, weights):
    if "num_local" in config:
        return _concatenation(graph, x, places, config, weights)[0]
    return _block(graph, x, places, config, weights)


def _transformer(graph, x, config, weights):
    x, places, dim = x * config["scale"], graph.range(graph.length(x, 1)), config["dim"]
    if "projection.weight" in weights:
        x = graph.linear(x, inside(weights, "projection"))
    if config["positions"]:
        numbers = places + config["positions"]["first"]
        table = weights.get("positions")
        x += sinusoids(graph, numbers, dim, dim // 2 - 1) if table is None else graph.Gather(table, numbers)
    if config["input_norm"]:
        x = graph.norm(x, inside(weights, "input_norm"))
    for number, block in enumerate(config["blocks"]):
        x = _layer(graph, x, places, block, inside(weights, f"blocks.{number}"))
    if config["final_norm"]:
        x = graph.norm(x, inside(weights, "final_norm"))
    return graph.linear(x, inside(weights, "output_projection")) if "output_projection.weight" in weights else x


def _nplm(graph, x, config, weights):
    places, (first, *others) = graph.range(graph.length(x, 1)), config["blocks"]
    x, global_sum = _concatenation(graph, x * config["scale"], places, first, inside(weights, "blocks.0"))
    for number, block in enumerate(others, 1):
        x = _layer(graph, x, places, block, inside(weights, f"blocks.{number}")) + global_sum
    return x


def _lstm(graph, x, config, weights):
    recurrent = graph.matrix(weights["recurrent.weight"])
    projection = graph.matrix(weights["projection.weight"]) if config["projects"] else None

    def step(states, inputs):
        (h, c), (sums,) = states, inputs
        i, f, g, o = graph.node("Split", (sums + recurrent.product(h),), 4, axis=-1)
        c = graph.Sigmoid(f) * c + graph.Sigmoid(i) * graph.Tanh(g)
        h = graph.Sigmoid(o) * graph.Tanh(c)
        h = h if projection is None else projection.product(h)
        return [h, c], h

    batch = graph.length(x, 0)
    states = [graph.zeros(batch, config["output_dim"]), graph.zeros(batch, config["units"])]
    return graph.scan(step, states, [graph.linear(x, inside(weights, "kernel"))])


def _qrnn(graph, x, config, weights):
    if config["window"] == 2:
        before = graph.Slice(graph.Pad(x, [0, 1, 0, 0, 0, 0]), [0], [-1], [1])
        inputs = graph.Concat(x, before, axis=-1)
    else:
        inputs = x
    z, f, o = graph.node("Split", (graph.linear(inputs, inside(weights, "kernel")),), 3, axis=-1)
    shares = graph.Sigmoid(f) * config["rate"]
    values = graph.Tanh(z) * shares
    kept = graph.Sub(1.0, shares)

    def step(states, inputs):
        c = inputs[1] * states[0] + inputs[0]
        return [c], c

    cells = graph.scan(step, [graph.zeros(graph.length(x, 0), config["units"])], [values, kept])
    return graph.Sigmoid(o) * cells


def _recurrent(graph, x, config, weights):
    layer = {"lstm": _lstm, "qrnn": _qrnn}[config["cell"]]
    for number, options in enumerate(config["layers"]):
        x = layer(graph, x, options, inside(weights, f"layers.{number}"))
    return x


BODIES = {"transformer": _transformer, "nplm": _nplm, "recurrent": _recurrent}
