"""Options of a checkpoint that this package does not know, in every form in which fairseq writes options."""

import argparse
import copy
from functools import partial

import pytest

from keras_adaptive import fairseq
from keras_adaptive.fairseq.options import resolve
from tests.support.refusals import refused

pytestmark = pytest.mark.once

torch = pytest.importorskip("torch")

KNN_LM = {  # options that the program of kNN-LM writes for every model
    "knnlm": True, "save_knnlm_dstore": False, "knn_keytype": "last_ffn_input", "knn_sim_func": "do_not_recomp_l2",
    "dstore_size": 103225485, "dstore_filename": "checkpoints/dstore", "dstore_mmap": "dstore", "dstore_fp16": True,
    "indexfile": "checkpoints/knn.index", "faiss_metric_type": "l2", "k": 1024, "lmbda": 0.25, "probe": 32,
    "no_load_keys": True, "move_dstore_to_mem": True, "lm_eval": True,
}  # fmt: skip
FORK = {"rotary_dim": 12, "cache": -1}  # options of a fork with other positions
SHORTFORMER = {"tokens_from_prev": 12, "sliding_inf": -1}


def as_args(contents, options):
    """Returns the contents with the options of all sections in one namespace, which versions before 0.11 wrote."""
    groups = [group for group in contents["cfg"].values() if isinstance(group, dict)]
    flat = {name: value for group in groups for name, value in group.items() if name != "_name"}
    flat |= contents["cfg"]["model"] | {"arch": contents["cfg"]["model"]["_name"], **options}
    return {"model": contents["model"], "args": argparse.Namespace(**flat)}


def in_section(contents, options, section):
    changed = {**contents, "cfg": copy.deepcopy(contents["cfg"])}
    changed["cfg"].setdefault(section, {})
    changed["cfg"][section] |= options
    return changed


SECTIONS = ("model", "task", "common", "dataset", "eval_lm", "positions")  # fairseq has no section of the last name
FORMS = {
    "args, a namespace": as_args,
    "args, a dict": lambda contents, options: {
        "model": contents["model"],
        "args": vars(as_args(contents, options)["args"]),
    },
    "cfg, model as a namespace": lambda contents, options: {
        **contents,
        "cfg": {**contents["cfg"], "model": as_args(contents, options)["args"]},
    },
    **{f"cfg, {section}": partial(in_section, section=section) for section in SECTIONS},
    "cfg, an option itself": lambda contents, options: {**contents, "cfg": contents["cfg"] | options},
}


def resolved(contents, tmp_path, positions=None):
    torch.save(contents, tmp_path / "model.pt")
    return resolve(fairseq.read_checkpoint(tmp_path / "model.pt"), positions)


@pytest.mark.parametrize("form", FORMS)
def test_unknown_options_are_refused_by_name_and_known_ones_are_not(form, read, tmp_path):
    for options in ({}, {"rotary": False, "memory": 0, "kind": None}):  # what is unknown and off
        plain = resolved(FORMS[form](read, options), tmp_path)
        assert (plain["decoder_layers"], plain["no_decoder_final_norm"], plain["dropout"]) == (3, True, 0.3)
    for options in (FORK, {"alibi": True}, {"residual_scale": 0.5}, {"kind": ["rotary"]}):
        message = refused(resolved, FORMS[form](read, options), tmp_path, match="not supported: ")
        listed = message.split("not supported: ")[1].split(". Each may")[0]
        assert [text.split("=")[0] for text in listed.split(", ")] == list(options)


@pytest.mark.parametrize("form", ["args, a namespace", "args, a dict", "cfg, task", "cfg, eval_lm"])
def test_the_datastore_of_knn_lm_is_apart_from_its_model(form, read, tmp_path):
    expected = resolved(FORMS[form](read, {}), tmp_path)
    options = resolved(FORMS[form](read, KNN_LM), tmp_path)
    assert {name: options[name] for name in expected} == expected
    refused(resolved, in_section(read, {"k": 1024}, "model"), tmp_path, match="not supported: k=1024")


def test_the_section_of_the_model_has_no_options_of_training(read, tmp_path):
    """ALiBi's fork alone gives its model the largest batch, from which it makes the biases, which it does not name."""
    refused(resolved, in_section(read, {"max_tokens_valid": 9}, "model"), tmp_path, match="supported: max_tokens_valid")
    contents = in_section(read, {"max_tokens": 128}, "model")
    refused(resolved, contents, tmp_path, match=r"--positions=alibi\).*'sinusoidal'.* Received: max_tokens=128")
    for positions in ("alibi", "sinusoidal"):
        assert resolved(contents, tmp_path, positions)["positions"] == positions
    for form in (as_args, partial(in_section, section="dataset")):  # where it is the batch of the training
        assert resolved(form(read, {"max_tokens": 128}), tmp_path)["positions"] is None


def test_positions_that_do_not_fit(read, tmp_path):
    refused(resolved, read, tmp_path, "rotary", match="must be one of sinusoidal, alibi. Received: positions='rotary'")
    learned = in_section(read, {"decoder_learned_pos": True}, "model")
    refused(resolved, learned, tmp_path, "alibi", match="other positions, by .*decoder_learned_pos=True: leave out")
    refused(resolved, as_args(read, SHORTFORMER), tmp_path, "sinusoidal", match="by .*tokens_from_prev=12: leave out")


def test_options_of_shortformer(read, tmp_path):
    assert resolved(as_args(read, SHORTFORMER), tmp_path)["tokens_from_prev"] == 12
    for name in ("decoder_learned_pos", "no_token_positional_embeddings"):
        refused(resolved, as_args(read, SHORTFORMER | {name: True}), tmp_path, match=f"not supported: {name}=True")
    refused(resolved, as_args(read, {"tokens_from_prev": 0}), tmp_path, match="tokens_from_prev .*from 1 .*Received: 0")


@pytest.mark.parametrize("section", ["criterion", "optimizer", "lr_scheduler", "job_logging_cfg"])
def test_a_criterion_or_an_optimizer_may_have_options_of_its_own(section, read, tmp_path):
    resolved(in_section(read, {"my_option": 3}, section), tmp_path)


@pytest.mark.parametrize(
    "options, name",
    [
        ({"arch": "transformer_lm_xl"}, "arch=transformer_lm_xl"),
        ({"arch": "model_parallel_transformer_lm"}, "arch=model_parallel_transformer_lm"),
        ({"quantization_config_path": "x.yaml"}, "quantization_config_path=x.yaml"),
        ({"model_parallel_size": 2}, "model_parallel_size=2"),
        ({"right_to_left": True}, "right_to_left=True"),
        ({"mine": 10**600}, "mine=10*[.]{3}0*"),
        ({"mine": [[[[[[[[[1]]]]]]]]]}, r"mine=\[\[\[\[\[\["),
        ({f"option_{number}": 1 for number in range(10**4)}, "option_7=1 and 9992 more"),
    ],
)
def test_what_changes_the_function_is_named_shortly(options, name, read, tmp_path):
    refused(resolved, as_args(read, options), tmp_path, match=f"not supported: .*{name}")


@pytest.mark.parametrize("arch", ["transformer_lm", "transformer_lm_baevski_gbw", "transformer_lm_gpt3_2_7"])
def test_published_architectures_are_known(arch, read, tmp_path):
    resolved(as_args(read, {"arch": arch}), tmp_path)
