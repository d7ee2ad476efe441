"""Answers requests as the REST interface of TensorFlow Serving maps them, in a process that has TensorFlow alone.

python rest.py SAVED_MODEL < requests.json > responses.json, each a list of what is sent and returned.
"""

import base64
import json
import resource
import sys

sys.modules.update(dict.fromkeys(("keras", "keras_adaptive", "keras_nlp", "tensorflow_text")))  # their import fails

import tensorflow as tf  # noqa: E402


def answer(loaded, request):
    """The response to a request with `inputs` by name, or with `instances`, rows of all inputs."""
    function = loaded.signatures[request.get("signature_name", "serving_default")]
    specifications = function.structured_input_signature[1]
    inputs = request["inputs"] if "inputs" in request else by_name(request["instances"], specifications)
    assert inputs.keys() == specifications.keys(), (inputs.keys(), specifications.keys())
    tensors = {name: tensor(decoded(inputs[name]), one) for name, one in specifications.items()}
    before = peak()
    try:
        outputs = {name: encoded(output.numpy().tolist()) for name, output in function(**tensors).items()}
    except tf.errors.InvalidArgumentError as error:
        return {"error": str(error), "grown": peak() - before}
    only = next(iter(outputs)) if len(outputs) == 1 else None
    if "inputs" in request:
        return {"outputs": outputs[only] if only else outputs}
    rows = [dict(zip(outputs, row)) for row in zip(*outputs.values(), strict=True)]
    return {"predictions": [row[only] for row in rows] if only else rows}


def peak():
    """The most memory that this process has ever taken, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def by_name(instances, specifications):
    (name,) = specifications  # rows with several inputs would need each to have a batch
    return {name: [row[name] if isinstance(row, dict) and name in row else row for row in instances]}


def tensor(value, specification):
    """A constant of the type and the number of axes of an input; an empty list has one axis."""
    constant = tf.constant(value, specification.dtype)
    missing = specification.shape.rank - constant.shape.rank
    return tf.reshape(constant, [*constant.shape, *[0] * missing])


def decoded(value):
    if isinstance(value, list):
        return [decoded(part) for part in value]
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def encoded(value):
    if isinstance(value, list):
        return [encoded(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    loaded = tf.saved_model.load(sys.argv[1])
    json.dump([answer(loaded, request) for request in json.load(sys.stdin)], sys.stdout)
