"""Parts, flags and experiments: one table, which flags, runs and models agree with."""

import inspect
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_adaptive.backend.unallocated import unallocated
from keras_adaptive.layers import AdaptiveEmbedding, AdaptiveSoftmax, CharCNN, SampledSoftmax, WordEmbedding
from keras_adaptive.ops.chunks import default_chunk_rows
from keras_adaptive.optimizers import NAG, AveragedSGD, L2Adam
from tests.support.programs import call
from tests.support.refusals import refused
from trainers import train
from trainers.experiments import checks, summary
from trainers.experiments.experiment import Experiment
from trainers.experiments.hyperparameters import GENERAL, HYPERPARAMETERS, RENAMED
from trainers.experiments.parts import PARTS, ROLES, Part
from trainers.experiments.run_folder import RunFolder

pytestmark = pytest.mark.once

PARTS_OF_ALL = [(role, name) for role, parts in PARTS.items() for name in parts]
SIZES = ["--dim=16", "--num_heads=2", "--ffn_dim=32", "--num_blocks=1"]
TINY = [*SIZES, "--length=8", "--batch_size=4"]
words = summary.stand_in
LENGTHS = ["--updates=6", "--evaluate_every=3", "--notensorboard"]
PLAIN = ["--input=word", "--output=softmax", "--notie_words", "--optimizer=adam", "--max_rate=1e-3"]


@pytest.mark.parametrize("role, name", PARTS_OF_ALL)
def test_what_a_part_takes_are_keywords_of_what_makes_it(role, name):
    part = PARTS[role][name]
    keywords = inspect.signature(part.make).parameters
    kinds = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    for argument in [*part.arguments(dict.fromkeys(part.flags)), *part.offered.split()]:
        if argument in keywords:
            assert keywords[argument].kind in kinds
        else:  # it passes through `**kwargs` to a class or function that refuses what it does not know
            assert "kwargs" in keywords and (role not in ("input", "body") or name in ("hybrid", "transformer_xl"))
    assert set(part.flags) <= set(HYPERPARAMETERS)


def test_flags_are_arguments_of_other_names_of_other_defaults_and_of_several_values():
    part = Part(dict, "one two=second three? four=fourth?one x=pair y=pair z=list")
    assert part.flags == ["one", "two", "three", "four", "x", "y", "z"]
    settings = {"one": 5, "two": 0, "three": 0, "four": 0, "x": 0.0, "y": 0.5, "z": []}
    expected = {"one": 5, "second": 0, "three": None, "fourth": 5, "pair": (0.0, 0.5), "list": []}
    assert part.arguments(settings) == expected
    assert part.arguments({"three": 7, "four": 8}) == {"three": 7, "fourth": 8}  # others are unused


def test_every_hyper_parameter_has_a_taker_and_one_meaning():
    taken = {name for role, part in PARTS_OF_ALL for name in PARTS[role][part].flags}
    assert taken == set(HYPERPARAMETERS)
    assert not set(HYPERPARAMETERS) & set(GENERAL)
    assert set(RENAMED.values()) <= set(HYPERPARAMETERS) and not set(RENAMED) & {*HYPERPARAMETERS, *GENERAL, *PARTS}
    assert list(ROLES) == list(PARTS) and all(default in PARTS[role] for role, (default, _) in ROLES.items())


def when_all_is_made(arguments):
    chosen = Experiment.of_arguments(arguments)
    return chosen.schedule(), chosen.optimizer(), chosen.model(words(40))


PLAIN_PARTS = ["--input=word", "--output=softmax"]
BANDS = [*SIZES, "--cutoffs=20"]
STEPS = ["--schedule=step_decay", "--updates=500"]
SIX = ["--updates=6", "--evaluate_every=6"]
OTHER_VOCABULARY = "needs a vocabulary of 1,000 ids, but the corpus has 40: .*vocabulary_size=0"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            [*PLAIN_PARTS, "--tail_dropout=0.2"],
            r"--tail_dropout belongs to --output=adaptive\. Received: --output=softmax\. Omit --tail_dropout",
        ),
        (
            [*PLAIN_PARTS, "--cutoffs=10,20"],
            "--cutoffs belongs to --input=adaptive and --output=adaptive. Received: --input=word --output=softmax",
        ),
        (["--optimizer=adam", "--momentum=0.99"], "--momentum belongs to --optimizer=nag. Received: --optimizer=adam"),
        (["--weight_dropout=0.5"], r"--weight_dropout belongs to --body=lstm\|qrnn. Received: --body=transformer"),
        (["--body=lstm", "--zoneout=0.1"], "--zoneout belongs to --body=qrnn. Received: --body=lstm"),
        (["--body=lstm", "--hidden_dropout=1"], "hidden_dropout"),
        (["--body=qrnn", "--window=3"], "window"),
        (["--body=qrnn", "--temporal_penalty=-1"], "temporal_penalty"),
        (
            ["--notie_words", "--tie_projections"],
            "--tie_projections is not used with --input=adaptive --output=adaptive --tie_words=False. Omit",
        ),
        (["--notie_words", "--notie_projections"], "--tie_projections is not used with"),
        (
            ["--input=word", "--tie_projections"],
            "--tie_projections is not used with --input=word --output=adaptive --tie_words=True. Omit",
        ),
        (["--input=word", "--factor=4"], "--factor is not used with"),
        (["--highways=1"], "--highways belongs to --input=char_cnn and --output=char_cnn. Received: --input=adaptive"),
        (["--output_units=8"], "--output_units belongs to --output=char_lstm. Received: --output=adaptive"),
        (["--cutoffs=a,b"], "must be comma-separated integers"),
        (["--dim=3"], "dim"),
        (["--no_such_flag=1"], "no_such_flag"),
        (["--dropout=1.0"], "dropout"),
        (["--tail_dropout=1"], "tail_dropout"),
        (["--clip_norm=inf"], "clip_norm=inf: must be a finite number"),
        (["--max_rate=-inf"], "max_rate=-inf: must be a finite number"),
        (["--dropout=nan"], "dropout=nan: must be a finite number"),
        (["word"], r"must be flags, --name=value. Received: \['word'\]"),
        ([*BANDS, "--factor=0"], "--factor=0 .no reduction. belongs to --input=word.*--input=adaptive"),
        ([*BANDS, "--clip_norm=1e-30"], "--clip_norm must be 0 for no clipping, or at least 1e-06"),
        ([*BANDS, "--optimizer=adam", "--clip_norm=1e-30"], "--clip_norm must be 0 for no clipping, or at least 1e-06"),
        ([*STEPS, "--decay_at=0,10"], "--decay_at must be strictly increasing .* Received: --decay_at=0,10."),
        ([*STEPS, "--decay_at=20,10"], "--decay_at must be strictly increasing .* Received: --decay_at=20,10."),
        ([*STEPS, "--decay_at=10,10"], "--decay_at must be strictly increasing .* Received: --decay_at=10,10."),
        ([*SIX, "--warmup=6"], "--warmup must be below --updates.* Received: --warmup=6 --updates=6"),
        ([*SIX, "--warmup=7"], "--warmup must be below --updates.* Received: --warmup=7 --updates=6"),
        ([*BANDS, "--vocabulary_size=1000"], OTHER_VOCABULARY),
        (["--input=char_cnn", "--cutoffs=20"], "pass --notie_words. Received: --input=char_cnn --output=adaptive"),
        (["--body=shortformer", "--batching=streams"], "--vary_bptt gives batches that are not the segments"),
        (
            ["--body=nplm", "--num_local=1", "--relu_dropout=0.5"],
            "--activation_dropout belongs to --body=transformer|shortformer. Received: --body=nplm",
        ),
    ],
)
def test_flags_that_make_no_sense_are_refused_and_those_of_other_parts_even_with_their_defaults(arguments, message):
    refused(when_all_is_made, arguments, match=message)


def test_a_factor_of_0_is_no_reduction_of_an_untied_output():
    bands = ["--output=adaptive", "--cutoffs=10,20", "--factor=0"]
    chosen = Experiment.of_arguments([*TINY, "--input=word", "--notie_words", "--embedding_dim=8", *bands])
    model = chosen.model(words(40))
    assert model.word_output.factor is None
    assert [tuple(table.shape) for table in model.word_output.tables] == [(40, 16)]


def test_the_rate_steps_down_after_given_updates():
    arguments = ["--schedule=step_decay", "--max_rate=0.002", "--updates=500"]
    schedule = Experiment.of_arguments([*arguments, "--decay_at=300,400"]).schedule()
    assert [schedule(done) for done in (0, 299, 300, 399, 400, 499)] == [0.002, 0.002, 2e-4, 2e-4, 2e-5, 2e-5]
    assert Experiment.of_arguments(arguments).schedule()(499) == 0.002
    halved = Experiment.of_arguments([*arguments, "--decay_at=1", "--decay_factor=2"]).schedule()
    assert (halved(0), halved(1)) == (0.002, 0.001)


def test_the_optimizers_of_recurrent_models_take_a_penalty():
    adam = ["--optimizer=adam", "--clip_norm=0.25", "--weight_decay=1.2e-6"]
    assert Experiment.of_arguments(adam[:2]).optimizer().__class__ is keras.optimizers.Adam().__class__
    chosen = Experiment.of_arguments(adam).optimizer()
    assert (type(chosen), chosen.l2, chosen.global_clipnorm) == (L2Adam, 1.2e-6, 0.25)
    averaged = ["--optimizer=averaged_sgd", "--max_rate=30", "--weight_decay=1.2e-6", "--average_after=3"]
    chosen = Experiment.of_arguments(averaged).optimizer()
    assert (type(chosen), chosen.l2, chosen.patience) == (AveragedSGD, 1.2e-6, 3)


def test_muon_updates_the_matrices_of_the_body_and_adam_the_rest():
    chosen = Experiment.of_arguments([*TINY, "--cutoffs=20", "--optimizer=muon", "--max_rate=0.01"])
    model, optimizer = chosen.model(words(40)), chosen.optimizer()
    optimizer.build(model.trainable_variables)
    moments = zip(model.trainable_variables, optimizer.adam_velocities, strict=True)
    by_muon = [id(variable) for variable, velocity in moments if velocity is None]
    assert by_muon and by_muon == [id(each) for each in model.body.trainable_variables if len(each.shape) == 2]


def test_a_flag_of_a_flagfile_counts_as_given(tmp_path):
    (tmp_path / "bands.flags").write_text("--cutoffs=10,20\n")
    (tmp_path / "plain.flags").write_text("--flagfile=bands.flags\n--input=word\n--output=softmax\n")
    refused(Experiment.of_arguments, [f"--flagfile={tmp_path}/plain.flags"], match="--cutoffs belongs to")


def test_several_experiments_live_in_one_process():
    adaptive = Experiment.of_arguments([*SIZES, "--cutoffs=20", "--output_dim=0"])
    plain = Experiment.of_arguments([*SIZES, *PLAIN, "--embedding_dim=4", "--output_dim=4"])
    characters = ["--input=char_cnn", "--notie_words", "--filters=2,3", "--char_dim=5", "--word_markers"]
    spelled = Experiment.of_arguments([*SIZES, "--cutoffs=20", *characters])
    models = [one.model(words(40)) for one in (adaptive, plain, spelled)]
    assert [type(model.word_input) for model in models] == [AdaptiveEmbedding, WordEmbedding, CharCNN]
    assert models[0].word_output.tied_to is models[0].word_input and models[1].word_output.tied_to is None
    assert models[0].word_output.boundaries == (0, 20, 40) and models[1].word_output.boundaries == (0, 40)
    assert [model.word_input.output_dim for model in models] == [16, 4, 16]
    assert models[1].word_output.tables[0].shape == (40, 4)
    assert models[2].word_input.filters == (2, 3) and models[2].word_input.table.shape == (259, 5)
    assert isinstance(adaptive.optimizer(), NAG) and isinstance(plain.optimizer(), keras.optimizers.Adam)
    assert [one.schedule()(0) for one in (adaptive, plain)] == [1.0, 1e-3]


def test_recurrent_bodies_are_those_of_the_settings():
    shared = ["--cutoffs=20", "--dim=16", "--num_layers=2", "--units=12", "--activation_penalty=2"]
    shared += ["--vector_dropout=0.1", "--hidden_dropout=0.2", "--output_dropout=0.3", "--weight_dropout=0.5"]
    lstm, qrnn = (
        Experiment.of_arguments([*shared, *own]).model(words(40)).body.get_config()
        for own in (
            ["--body=lstm", "--projection_dim=8", "--novariational_dropout"],
            ["--body=qrnn", "--window=2", "--zoneout=0.4"],
        )
    )
    for config in (lstm, qrnn):
        assert (config["num_layers"], config["units"], config["output_dim"]) == (2, 12, 16)
        assert config["dropout"] == (0.1, 0.2, 0.3) and config["weight_dropout"] == 0.5
        assert (config["activation_penalty"], config["temporal_penalty"]) == (2.0, 0.0)
    assert (lstm["variational"], qrnn["variational"]) == (False, True)
    assert lstm["projection_dim"] == 8 and (qrnn["window"], qrnn["zoneout"]) == (2, 0.4)
    plain = Experiment.of_arguments(["--body=lstm", "--cutoffs=20", "--units=12"]).model(words(40)).body
    assert plain.projection_dim is None and plain.dropout == (0.0, 0.0, 0.0, True)


def test_batches_are_those_of_the_settings():
    tokens = np.array([7, 8, 2, 9, 2] * 8)
    settings = ["--length=4", "--batch_size=2", "--seed=5"]
    blocks = Experiment.of_arguments(settings).batches(tokens)
    sentences = Experiment.of_arguments([*settings, "--batching=sentences"]).batches(tokens, shuffle=False)
    assert (blocks.length, blocks.batch_size, blocks.seed, blocks.shuffle) == (4, 2, 5, True)
    assert (sentences.tokens_per_batch, sentences.max_length, sentences.shuffle) == (8, 4, False)


def test_the_first_cycle_takes_what_the_warm_up_leaves():
    schedule = Experiment.of_arguments(["--updates=100", "--warmup=20"]).schedule()
    assert (schedule.period, schedule.warmup) == (80, 20)
    assert Experiment.of_arguments(["--period=30"]).schedule().period == 30


def test_former_names_of_flags_are_read():
    old = ["--input_dim=8", "--relu_dropout=0.25"]
    new = ["--embedding_dim=8", "--activation_dropout=0.25"]
    chosen = Experiment.of_arguments(new)
    assert Experiment.of_arguments(old) == Experiment.of_run(run_of("\n".join(old))) == chosen
    assert (chosen.settings["embedding_dim"], chosen.settings["activation_dropout"]) == (8, 0.25)
    assert not {line[2:].split("=")[0] for line in chosen.flags_text().splitlines()} & set(RENAMED)


@pytest.mark.parametrize("name, use_bias", [("adaptive", False), ("softmax", False), ("sampled", True)])
def test_an_output_has_the_biases_that_the_layer_has_by_default(name, use_bias):
    arguments = [*TINY, "--input=word", f"--output={name}"]
    arguments += {"adaptive": ["--cutoffs=20"], "sampled": ["--num_samples=4"]}.get(name, [])
    chosen = Experiment.of_arguments(arguments)
    default = inspect.signature(SampledSoftmax if name == "sampled" else AdaptiveSoftmax).parameters["use_bias"].default
    assert chosen.settings["use_bias"] is chosen.model(words(40)).word_output.use_bias is default is use_bias
    other = Experiment.of_arguments([*arguments, f"--use_bias={not use_bias}"])
    assert other.model(words(40)).word_output.use_bias is not use_bias
    assert Experiment.of_run(run_of(chosen.flags_text())) == chosen


def run_of(text):
    """A run folder of which only flags.txt is asked."""
    return SimpleNamespace(path="/run", flags=lambda: dict(line[2:].split("=", 1) for line in text.splitlines()))


@pytest.mark.parametrize(
    "arguments",
    [
        *([], PLAIN, ["--input=word"], ["--notie_projections"]),
        ["--input=char_cnn", "--notie_words", "--filters=1,2"],
        ["--input=word", "--notie_words", "--factor=2"],
    ],
    ids=str,
)
def test_a_run_holds_what_its_parts_take_and_gives_the_experiment_again(arguments):
    chosen = Experiment.of_arguments([*arguments, "--data_dir=/data", "--dim=32", "--min_rate=0.0001"])
    text = chosen.flags_text()
    assert Experiment.of_run(run_of(text)) == chosen
    assert Experiment.of_arguments(text.splitlines()) == chosen  # nothing in it that no part takes
    assert ("--momentum=" in text) == ("--optimizer=nag" in text)
    assert ("--filters=" in text) == ("--input=char_cnn" in text)
    assert ("--tie_projections=" in text) == ("--input=adaptive" in text and "--tie_words=True" in text)


@pytest.mark.parametrize("arguments", [["--notie_words"], ["--input=word"]], ids=str)
def test_a_run_holds_no_settings_that_its_ties_leave_unused(arguments):
    text = Experiment.of_arguments(arguments).flags_text()
    unused = run_of(text + "--tie_projections=True\n")
    refused(Experiment.of_run, unused, match="/run/flags.txt does not hold the flags of a run: --tie_projections is")
    sizes = [*SIZES, "--cutoffs=10,20"]
    assert Experiment.of_arguments([*arguments, *sizes]).model(words(40)).word_output.tie_projections


def test_experiments_differ_in_what_decides_a_run():
    one = Experiment.of_arguments(["--data_dir=a", "--dim=32", "--micro_batches=2"])
    other = Experiment.of_arguments(["--data_dir=b", "--dim=64", "--optimizer=adam", "--vocabulary_size=8"])
    assert one.differences(other) == {"dim": (32, 64), "optimizer": ("nag", "adam")}


def test_the_vocabulary_of_a_recipe_is_compared():
    sizes = [*SIZES, "--cutoffs=20"]
    assert Experiment.of_arguments([*sizes, "--vocabulary_size=40"]).model(words(40)).vocabulary_size == 40


def test_tied_words_of_one_table_and_biases():
    sizes = [*SIZES, "--use_bias", "--input=word"]
    adaptive = Experiment.of_arguments([*sizes, "--cutoffs=10,20"]).model(words(40))
    plain = Experiment.of_arguments([*sizes, "--output=softmax"]).model(words(40))
    for model in (adaptive, plain):
        assert model.word_output.tied_to is model.word_input
        assert summary.parameters(model)["input"] == 40 * 16
    assert summary.parameters(adaptive)["output"] == 40 + 2 * 16 + 2  # biases, class vectors and their biases
    assert summary.parameters(plain)["output"] == 40
    assert adaptive.word_output.logits_in_training(64) == 20 * default_chunk_rows(64, 20, 16)


@pytest.mark.parametrize("optimizer, slots", [("nag", 1), ("adam", 2), ("averaged_sgd", 1)])
def test_the_memory_of_an_optimizer_is_counted_from_its_variables(optimizer, slots):
    chosen = Experiment.of_arguments([*SIZES, "--cutoffs=20", f"--optimizer={optimizer}"])
    made = chosen.optimizer()
    model = unallocated(lambda: chosen.model(words(40)))
    found = summary.memory(model, made, tokens=64, length=8, micro_batches=2)
    assert found["optimizer"] == slots * found["weights"]
    assert found["gradients"] == 2 * found["weights"] == 8 * model.count_params()


def test_a_new_run_holds_the_settings_of_its_parts_only(corpus, tmp_path):
    call(train, *TINY, *LENGTHS, *PLAIN, f"--data_dir={corpus}", f"--run_dir={tmp_path}/run")
    found = set(RunFolder(tmp_path / "run").flags())
    assert not found & {"cutoffs", "factor", "momentum", "filters", "highways", "tail_dropout", "tie_projections"}
    assert {"input", "body", "schedule", "dim", "data_dir", "seed"} <= found


def test_training_does_without_tensorboard(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: None)
    command = [*TINY, "--updates=2", "--evaluate_every=2", *PLAIN, f"--data_dir={corpus}", f"--run_dir={tmp_path}/run"]
    refused(train, *command, "--tensorboard", match="--tensorboard needs a package: pip install tensorboard")
    assert not (tmp_path / "run").exists()
    call(train, *command)
    assert "tensorboard is not installed" in capsys.readouterr().err
    assert (tmp_path / "run" / "best.keras").exists() and not (tmp_path / "run" / "tensorboard").exists()
