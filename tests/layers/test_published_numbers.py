"""Adaptive input and adaptive softmax against the numbers of the published implementation."""

import numpy as np
import pytest
from keras import ops

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, WordEmbedding
from tests.support.backends import runner, weight_gradients
from tests.support.closeness import close
from tests.support.weights import published

WORDS_OF_TRANSFORMER_XL = [f"layers.{band}.weight" for band in range(3)] + [f"projs.{band}" for band in range(3)]


@pytest.fixture(params=["adaptive_tied", "adaptive_untied"])
def case(request, golden):
    arrays, config = golden(request.param)
    config = config["config"]
    embedding = AdaptiveEmbedding(config["vocab"], config["initial_dim"], config["cutoff_arg"], factor=config["factor"])
    tied = embedding if config["tie_adaptive_weights"] else None
    softmax = AdaptiveSoftmax(config["vocab"], config["cutoff_arg"], factor=config["factor"], tied_to=tied)
    embedding.build()
    softmax.build((None, None, config["model_dim"]))
    for variable, read in published(embedding, softmax):
        variable.assign(read(arrays, "param"))
    return arrays, embedding, softmax


def test_values(case):
    arrays, embedding, softmax = case
    targets = arrays["in/targets"].astype("int32")
    vectors, log_probs, nll = runner(
        lambda ids, hidden: (embedding(ids), softmax.log_probs(hidden), softmax.nll(hidden, targets))
    )(arrays["in/ids"].astype("int32"), arrays["in/hidden"])
    np.testing.assert_allclose(vectors, arrays["out/embedding"], atol=1e-5)
    expected = arrays["out/log_probs"]
    np.testing.assert_allclose(log_probs[: len(expected)], expected, atol=1e-4)
    np.testing.assert_allclose(np.where(targets == 1, 0, nll), arrays["out/nll_exact"], atol=1e-4)


def test_gradients_of_the_softmax(case):
    arrays, embedding, softmax = case
    targets = arrays["in/targets"].astype("int32")
    weights = (targets != 1).astype("float32")
    pairs = published(embedding, softmax)
    variables = [variable for variable, _ in pairs]
    value, gradients = weight_gradients(
        lambda hidden: softmax.total_nll(hidden, targets, weights), variables, [arrays["in/hidden"]]
    )
    np.testing.assert_allclose(value, arrays["out/loss_sum_exact"], rtol=1e-5)
    expected = [*(read(arrays, "grad_exact") for _, read in pairs), arrays["grad_exact/hidden"]]
    close(gradients, expected, 1e-4, least=0.0)


def test_gradients_of_the_embedding(case):
    arrays, embedding, softmax = case
    ids = arrays["in/ids"].astype("int32")
    pairs = published(embedding, softmax)
    variables = [variable for variable, _ in pairs]
    _, gradients = weight_gradients(
        lambda: ops.sum(ops.multiply(embedding(ids), arrays["in/emb_cotangent"])), variables
    )
    gradients[0] = np.where(np.arange(len(gradients[0]))[:, None] == 1, 0, gradients[0])  # published: none for padding
    close(gradients, [read(arrays, "grad_input") for _, read in pairs], 1e-4, least=0.0)


@pytest.mark.parametrize("tied", [True, False])
def test_the_softmax_without_reduction(golden, tied):
    """Merity et al. 2018. The published columns of the tails are reversed, and the loss is the mean."""
    arrays, config = golden("split_softmax")
    words = WordEmbedding(config["vocab"], config["hidden"])
    source = {"tied_to": words} if tied else {"factor": None}
    softmax = AdaptiveSoftmax(config["vocab"], config["splits_arg"], use_bias=True, **source)
    softmax.build((None, config["hidden"]))
    variables = [softmax.tables[0], softmax.bias, softmax.class_table, softmax.class_bias]
    names = ["in/weight", "in/bias", "param/tail_vectors", "param/tail_bias"]
    order = [slice(None), slice(None), slice(None, None, -1), slice(None, None, -1)]
    for variable, name, rows in zip(variables, names, order, strict=True):
        variable.assign(arrays[name][rows])
    hidden, targets = arrays["in/hiddens"], arrays["in/targets"].astype("int32")
    log_probs, nll = runner(lambda hidden: (softmax.log_probs(hidden), softmax.nll(hidden, targets)))(hidden)
    weights = np.full(len(targets), 1 / len(targets), "float32")
    loss, gradients = weight_gradients(lambda hidden: softmax.total_nll(hidden, targets, weights), variables, [hidden])
    expected = [arrays[name] for name in ("out/log_probs", "out/nll", "out/loss_mean", "grad/hiddens")]
    names = ["weight", "bias", "tail_vectors", "tail_bias"]
    expected += [arrays[f"grad/{name}"][rows] for name, rows in zip(names, order, strict=True)]
    close([log_probs, nll, loss, gradients[-1], *gradients[:-1]], expected, 1e-5, least=0.0)


def test_the_words_of_transformer_xl(golden):
    """Every band has a projection, those of the tails are tied, and the columns of the tails are in natural order."""
    arrays, config = golden("transfo_xl")
    bands, size = config["config"], config["config"]["vocab_size"]
    embedding = AdaptiveEmbedding(size, bands["d_embed"], bands["cutoffs"], factor=bands["div_val"])
    tied = {"tied_to": embedding, "tie_projections": bands["tie_projs"]}
    softmax = AdaptiveSoftmax(size, bands["cutoffs"], use_bias=True, **tied)
    softmax.build((None, bands["d_model"]))
    weights = [arrays[f"param/transformer.word_emb.emb_{kind}"] for kind in WORDS_OF_TRANSFORMER_XL]
    for variable, weight in zip([*embedding.tables, *embedding.projections], weights, strict=True):
        variable.assign(weight if "table" in variable.name else weight.T)
    own = [softmax.projections[0], softmax.class_table, softmax.class_bias, softmax.bias]
    read = lambda kind: [  # noqa: E731
        *(arrays[f"{kind}/crit.{name}"] for name in ("out_projs.0", "cluster_weight", "cluster_bias")),
        np.concatenate([arrays[f"{kind}/crit.out_layers.{band}.bias"] for band in range(3)]),
    ]
    for variable, weight in zip(own, read("param"), strict=True):
        variable.assign(weight)
    hidden, targets = arrays["out/hidden_2_2"], arrays["in/targets_2"]
    results = runner(lambda ids, hidden: (embedding(ids), softmax.log_probs(hidden), softmax.nll(hidden, targets)))
    vectors, log_probs, nll = results(arrays["in/ids_2"], hidden)
    loss, gradients = weight_gradients(lambda hidden: softmax.total_nll(hidden, targets), own, [hidden])
    expected = [arrays[f"out/{name}_2"] for name in ("log_probs", "nll", "loss_sum")]
    close([vectors * bands["d_model"] ** 0.5], [arrays["out/hidden_2_0"]], 1e-5, least=0.0)
    close([log_probs[0], nll, loss, *gradients[:-1]], [*expected, *read("grad")], 1e-5, least=0.0)
