"""The NPLM and the hybrids against the numbers of the published program of Sun and Iyyer 2021, layer by layer."""

from functools import partial

import keras
import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveSoftmax, ContextConcatenation, NPLMDecoder, WordEmbedding
from keras_adaptive.models import assemble, hybrid_transformer
from tests.support import closeness
from tests.support.backends import runner, weight_gradients

close = partial(closeness.close, tolerance=1e-5, least=0)


def nplm(options, **kwargs):
    layers, ffn_dim, (num_local, window) = (options[name] for name in ("num_layers", "hidden_dim", "context_config"))
    averages = {"num_global": options["num_global_agg"], "global_window": window}
    return NPLMDecoder(layers, ffn_dim, num_local=num_local, concatenation_dim=options["mid_dim"], **averages, **kwargs)


def hybrid(options, **kwargs):
    sizes = {"num_blocks": "num_layers", "dim": "model_size", "ffn_dim": "hidden_dim", "num_heads": "num_heads"}
    return hybrid_transformer(**{ours: options[theirs] for ours, theirs in sizes.items()}, **kwargs)


def transformer_n(options, **kwargs):
    num_local, window = options["context_config"]
    return hybrid(options, num_local=num_local, num_global=options["num_global_agg"], global_window=window, **kwargs)


def transformer_c(options, **kwargs):
    return hybrid(options, attention_window=options["context_mask"][0], **kwargs)


BODIES = {"nplm": nplm, "transformer_n": transformer_n, "transformer_c": transformer_c}


def dense(layer, name):
    return [(layer.kernel, f"{name}.weight", np.transpose)] + [
        (bias, f"{name}.bias", np.asarray) for bias in (layer.bias,) if bias is not None
    ]


def norm(layer, name):
    return [(layer.gamma, f"{name}.weight", np.asarray), (layer.beta, f"{name}.bias", np.asarray)]


def concatenation(layer, name):
    own = [
        *dense(layer.hidden, f"{name}.ffn_nplm.sublayer.hidden"),
        *(dense(layer.out, f"{name}.ffn_nplm.sublayer.output") if layer.out is not None else ()),
        *norm(layer.norm, f"{name}.ffn_nplm.norm"),
    ]
    by_distance = lambda array: array[:, 0, ::-1, 0]  # noqa: E731
    return [*own, (layer.global_kernels, f"{name}.learned_global_kernels_l0_b0", by_distance)]


def block(layer, name):
    own = [
        *dense(layer.ffn_in, f"{name}.ffn.sublayer.hidden"),
        *dense(layer.ffn_out, f"{name}.ffn.sublayer.output"),
        *norm(layer.ffn_norm, f"{name}.ffn.norm"),
    ]
    if layer.attention is None:
        return own
    for number, part in enumerate(("value", "key", "query")):
        matrix = lambda array, number=number: np.split(array, 3)[number].T  # noqa: E731
        own.append((getattr(layer.attention, part).kernel, f"{name}.self_attention.sublayer.input_weights", matrix))
    own += dense(layer.attention.out, f"{name}.self_attention.sublayer.output_projection")
    return own + norm(layer.attention_norm, f"{name}.self_attention.norm")


@pytest.fixture(scope="module", params=BODIES)
def case(request, golden):
    arrays, config = golden(request.param)
    options, words = config["config"], config["vocab"]
    output = partial(AdaptiveSoftmax, words, options["cutoffs"], use_bias=True)
    table = partial(WordEmbedding, words, options["embedding_size"])
    model = assemble(table, partial(BODIES[request.param], options), output, tied=True)
    known = [  # (variable, published name, what maps the published array); the last tail comes first in their head
        (model.word_input.tables[0], "embedding.emb_layers.0.weight", np.asarray),
        (model.word_output.class_table, "adaptive_softmax.cluster_weight", np.flipud),
        (model.word_output.class_bias, "adaptive_softmax.cluster_bias", np.flipud),
        (model.word_output.bias, "adaptive_softmax.out_layers.0.bias", np.asarray),
    ]
    body = model.body
    layers = list(body.blocks)
    if request.param == "nplm":
        known += concatenation(body.concatenation, "layers.0")
    elif request.param == "transformer_n":  # whose concatenation and first block are one layer
        known += concatenation(layers.pop(0), "layers.0")
    for number, layer in enumerate(layers, start=request.param == "nplm"):
        known += block(layer, f"layers.{number}")
    for variable, name, change in known:
        variable.assign(change(arrays[f"param/{name}"]))
    assert len(known) == len(model.trainable_variables)
    unused = sum(arrays[f"param/{name}"].size for name in config["unused_params"])
    assert model.count_params() == config["num_params"] - unused
    batch = arrays["in/batch"].T.astype("int32")
    return arrays, model, known, batch[:, :-1], batch[:, 1:]


def layers_of(model, tokens):
    """The input of the first layer and the outputs of all layers, as in the published program.

    Its Transformer without a concatenation puts zeros in the place of padding, the id 0, after the positions.
    """
    body = model.body
    x = embedded = model.word_input(tokens) * 4.0  # √16
    if isinstance(body, NPLMDecoder):
        x, global_sum, _ = body.concatenation.mix(x)
        hidden = [x]
        for layer in body.blocks:
            hidden.append(layer(hidden[-1]) + global_sum)
        return embedded, hidden
    x = embedded = body.positions(embedded)
    first, *blocks = body.blocks
    if isinstance(first, ContextConcatenation):  # which is part of the first layer
        x = first(x)
    else:
        x, blocks = keras.ops.where(keras.ops.equal(tokens, 0)[..., None], 0.0, x), body.blocks
    hidden = [x]
    for layer in blocks:
        hidden.append(layer(hidden[-1]))
    return embedded, hidden[1:]


def test_values_of_every_layer(case):
    arrays, model, _, tokens, targets = case

    def outputs(tokens):
        embedded, hidden = layers_of(model, tokens)
        nll, log_probs = model.word_output.nll(hidden[-1], targets), model.word_output.log_probs(hidden[-1])
        return embedded, hidden, model(tokens[:1]), nll, log_probs

    embedded, hidden, last, nll, log_probs = runner(outputs)(tokens)
    close(embedded, arrays["out/embedded"])
    for number, found in enumerate(hidden):
        close(found, arrays[f"out/hidden_{number}"])
    assert tokens[0].all()  # no padding
    close(last, arrays[f"out/hidden_{len(hidden) - 1}"][:1])
    close(nll, arrays["out/nll"])
    close(log_probs, arrays["out/log_probs"])


def test_gradients(case):
    arrays, model, known, tokens, targets = case
    weights = np.ones(targets.shape, "float32")
    loss = lambda: model.word_output.total_nll(layers_of(model, tokens)[1][-1], targets, weights)  # noqa: E731
    value, gradients = weight_gradients(loss, [variable for variable, *_ in known])
    assert value == pytest.approx(arrays["out/nll"].sum(), rel=1e-5)
    for (_, name, change), gradient in zip(known, gradients, strict=True):
        close(gradient, change(arrays[f"grad/{name}"]))
