"""Bodies with a memory of the segments before, against the numbers of the published programs."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, WordEmbedding
from keras_adaptive.models import LanguageModel, shortformer, transformer_xl
from tests.support.backends import runner, weight_gradients
from tests.support.steps import in_steps
from tests.support.weights import published

SEGMENTS = (1, 2, 3)


class Case(NamedTuple):
    model: LanguageModel
    pairs: list  # (variable, how to read it from the published arrays)
    arrays: dict
    segments: list  # (tokens, targets) of three segments, batch first
    hidden: np.ndarray
    nll: np.ndarray
    config: dict[str, Any]


def load(model, pairs, arrays, config, names, last, rows=np.asarray):
    for variable, read in pairs:
        variable.assign(read(arrays, "param"))
    assert len(pairs) == len(model.trainable_variables) and model.count_params() == config["num_params"]
    segments = [[rows(arrays[f"in/{name}_{number}"]).astype("int32") for name in names] for number in SEGMENTS]
    hidden, nll = (
        np.concatenate([rows(arrays[f"out/{name}"]) for name in of_all], axis=1)
        for of_all in ([f"hidden_{number}_{last}" for number in SEGMENTS], [f"nll_{number}" for number in SEGMENTS])
    )
    return Case(model, pairs, arrays, segments, hidden, nll, config)


def of_shortformer(golden):
    arrays, config = golden("shortformer")
    args, bands = config["args"], {"cutoffs": (100, 300), "factor": 4}
    dim, length = args["decoder_embed_dim"], config["L"]
    words = AdaptiveEmbedding(config["vocab"], dim, **bands)
    body = shortformer(
        num_blocks=args["decoder_layers"],
        dim=dim,
        ffn_dim=args["decoder_ffn_embed_dim"],
        num_heads=args["decoder_attention_heads"],
        memory_length=args["tokens_from_prev"],
        segment_length=length,
    )
    model = LanguageModel(words, body, AdaptiveSoftmax(config["vocab"], **bands, tied_to=words))
    pairs = published(model.word_input, model.word_output, model.body, prefix="decoder.")
    return load(model, pairs, arrays, config, ("src", "target"), args["decoder_layers"])


def of_transformer_xl(golden, **lengths):
    arrays, config = golden("transformer_xl")
    sizes = config["config"]
    words = WordEmbedding(sizes["n_token"], sizes["d_model"])
    body = transformer_xl(
        num_blocks=sizes["n_layer"],
        dim=sizes["d_model"],
        ffn_dim=sizes["d_inner"],
        num_heads=sizes["n_head"],
        **(lengths or {"memory_length": sizes["mem_len"], "segment_length": sizes["tgt_len"]}),
    )
    softmax = AdaptiveSoftmax(sizes["n_token"], sizes["cutoffs"], tied_to=words, use_bias=True)
    model = LanguageModel(words, body, softmax)
    rows = lambda array: array.swapaxes(0, 1)  # noqa: E731
    return load(model, xl_pairs(model), arrays, config, ("ids", "targets"), sizes["n_layer"], rows)


def xl_pairs(model):
    pairs = []

    def add(variable, name, change=np.asarray):
        pairs.append((variable, lambda arrays, kind: change(arrays[f"{kind}/{name}"])))

    softmax = model.word_output
    add(softmax.tables[0], "word_emb.emb_layers.0.weight")
    add(softmax.bias, "crit.out_layers.0.bias")
    for variable, name in ((softmax.class_table, "cluster_weight"), (softmax.class_bias, "cluster_bias")):
        add(variable, f"crit.{name}", lambda array: array[::-1])
    for number, block in enumerate(model.body.blocks):
        attention = block.attention
        if attention.own_biases:
            add(attention.content_bias, "r_w_bias")
            add(attention.position_bias, "r_r_bias")
        for third, layer in enumerate((attention.query, attention.key, attention.value)):
            change = lambda array, third=third: np.split(array, 3)[third].T  # noqa: E731
            add(layer.kernel, f"layers.{number}.dec_attn.qkv_net.weight", change)
        for layer, name in ((attention.out, "o_net"), (attention.relative, "r_net")):
            add(layer.kernel, f"layers.{number}.dec_attn.{name}.weight", np.transpose)
        for layer, name in ((block.ffn_in, "CoreNet.0"), (block.ffn_out, "CoreNet.3")):
            add(layer.kernel, f"layers.{number}.pos_ff.{name}.weight", np.transpose)
            add(layer.bias, f"layers.{number}.pos_ff.{name}.bias")
        for layer, name in ((block.attention_norm, "dec_attn"), (block.ffn_norm, "pos_ff")):
            add(layer.gamma, f"layers.{number}.{name}.layer_norm.weight")
            add(layer.beta, f"layers.{number}.{name}.layer_norm.bias")
    return pairs


@pytest.fixture(scope="module", params=[of_shortformer, of_transformer_xl])
def case(request, golden):
    return request.param(golden)


def test_hidden_states_and_losses_whatever_the_steps(case):
    """A text has one function: the segments count from its beginning, not from that of a step."""
    tokens, targets = (np.concatenate(part, axis=1) for part in zip(*case.segments))
    hidden = runner(case.model)(tokens)
    np.testing.assert_allclose(hidden, case.hidden, atol=1e-5)
    np.testing.assert_allclose(case.model.nll(tokens, targets), case.nll, atol=2e-5)
    vectors, step = runner(case.model.word_input)(tokens), runner(case.model.body.step)
    length = case.segments[0][0].shape[1]
    for chunks in ([length] * 3, [1] * (length + 1) + [2 * length - 1], [length - 1, 2, 2 * length - 1]):
        y, _ = in_steps(step, vectors, case.model.body.initial_state(len(tokens)), chunks)
        np.testing.assert_allclose(y, case.hidden, atol=1e-5)


def test_the_second_segment_of_training(case):
    model, ((tokens, _), (after, targets), _) = case.model, case.segments
    in_training = lambda tokens, state: model.body.step(model.word_input(tokens), state, training=True)  # noqa: E731
    _, state = runner(in_training)(tokens, model.body.initial_state(len(tokens)))
    variables = [variable for variable, _ in case.pairs]

    def loss(weights):
        return model.word_output.total_nll(in_training(after, state)[0], targets, weights)

    value, gradients = weight_gradients(loss, variables, [np.ones(after.shape, "float32")])
    np.testing.assert_allclose(value, case.arrays["out/loss_sum_2"], rtol=1e-5)
    for (variable, read), gradient in zip(case.pairs, gradients):
        expected = read(case.arrays, "grad")
        scale = np.abs(expected).max() if not variable.path.endswith("key/bias") else 1.0  # 0 but for rounding
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-5 * scale, err_msg=variable.path)


def test_a_text_in_blocks_with_a_cache(golden):
    case = of_shortformer(golden)
    targets = case.arrays["eval/targets"].astype("int32")[None]
    tokens = np.insert(targets, 0, case.arrays["eval/first_input"], axis=1)[:, :-1]
    for segment in (None, 50):
        nll = case.model.nll(tokens, targets, segment)
        np.testing.assert_allclose(-nll[0], case.arrays["eval/logp_cached_blocks"], atol=2e-4)


def test_a_window_of_the_published_evaluation(golden):
    setting = golden("transformer_xl").config["evaluation_setting"]
    case = of_transformer_xl(golden, memory_length=setting["mem_len"])
    for block in case.model.body.blocks:
        block.attention.clamp_length = setting["clamp_len"]
    tokens, targets = (case.arrays[f"eval/{name}"].astype("int32").T for name in ("ids", "targets"))
    for segment in (None, setting["tgt_len"], 5):
        np.testing.assert_allclose(case.model.nll(tokens, targets, segment), case.arrays["eval/nll"].T, atol=2e-5)
    hidden = runner(case.model)(tokens)
    np.testing.assert_allclose(hidden, case.arrays["eval/hidden_last"].swapaxes(0, 1), atol=1e-5)
