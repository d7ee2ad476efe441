"""What the programs refuse in one line: tables of attacks, a line each."""

import json
import shutil

import pytest
from absl import flags

from keras_adaptive.data import load_corpus
from tests.support.quickstart import SHRUNK
from tests.support.refusals import refused
from tests.support.tiny import language_model
from trainers import analyze, evaluate, generate, plot, prepare, score, train
from trainers.experiments.experiment import Experiment
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line

pytestmark = pytest.mark.once

HUGE = b"9" * 30
RECURRENT = ["--body=lstm", "--num_layers=1"]
STEPS = ["--schedule=step_decay"]
AVERAGED = ["--optimizer=averaged_sgd"]
CHAR_CNN = ["--input=char_cnn", "--notie_words"]


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """The folder of a run that was not trained, with what evaluation reads."""
    run = RunFolder(tmp_path_factory.mktemp("runs") / "run")
    experiment = Experiment.of_arguments([*SHRUNK[:1], "--length=8", "--warmup=0", f"--data_dir={corpus}"])
    with run.claimed(experiment, load_corpus(corpus)):
        language_model(vocabulary_size=80).save(run.path / "best.keras")
        (run.path / "log.jsonl").write_text('{"update": 1, "loss": 1.0}\n{"update": 1, "val_loss": 1.0}\n')
    return run.path


TRAINING = [
    (["--filters=", *CHAR_CNN], "`filters` must be numbers of filters"),
    (["--filters=0,0", *CHAR_CNN], "`filters` must be numbers of filters"),
    (["--filters=10000000", *CHAR_CNN], "The weights alone take .* GiB, but this machine has"),
    (["--dim=100000000"], "dim=100000000: 100000000 is not an integer in the range"),
    (["--dim=65536", "--ffn_dim=1000000", "--num_blocks=9"], "The weights alone take .* GiB"),
    (["--num_blocks=1000000"], "num_blocks=1000000: 1000000 is not"),
    (["--dim=" + "9" * 30], "dim=9+: 9+ is not an integer in the range"),
    (["--cutoffs=abc"], "cutoffs=abc: must be comma-separated integers"),
    (["--cutoffs=-5"], "cutoffs=-5: must be comma-separated integers"),
    (["--cutoffs=" + "9" * 30], "cutoffs=9+: must be comma-separated integers"),
    (["--num_heads=5"], "`num_heads` must divide"),
    (["--max_rate=1e6"], "max_rate=1e6: 1000000.0 is not a number in the range"),
    (["--warmup_rate=1e9"], "warmup_rate=1e9"),
    (["--min_rate=5"], "`min_rate` must be between"),
    (["--period_mult=0.5"], "period_mult=0.5"),
    (["--dtype=float7"], "float7"),
    (["--dtype="], "dtype|policy|DTypePolicy"),
    (["--batch_size=1000000000"], "batch_size=1000000000"),
    (["--seed=99999999999"], "seed=99999999999"),
    (["--updates=10000000000"], "updates=10000000000"),
    (["--timeout=100000000000"], "timeout=100000000000: 100000000000 is not an integer in the range"),
    ([*RECURRENT, "--activation_penalty=1e30"], "activation_penalty=1e30: 1e[+]30 is not a number in the range"),
    ([*RECURRENT, "--temporal_penalty=1e30"], "temporal_penalty=1e30: 1e[+]30 is not a number in the range"),
    (["--max_rate=0", "--min_rate=0"], "--max_rate must be above 0: no weight would change. Received: --max_rate=0."),
    (["--model_devices=3"], "--model_devices belongs to --strategy=model_parallel"),
    (["--momentum=1"], "`momentum` must be at least 0 and below 1"),
    (["--data_dir=/dev/zero"], "/dev/zero holds no corpus"),
    (["--flagfile=/dev/zero"], "flagfile /dev/zero is longer than"),
    (["--cutoffs=40,20"], "strictly increasing"),
    (["--factor=32"], "dimension of at least 1"),
    (["--length=100000"], "number of tokens"),
    (["--updates=7"], "multiple of --evaluate_every"),
    (
        ["--body=hybrid", "--num_local=2", "--attention_window=3", "--nokeep_attention"],
        "--attention_window belongs to the attention of the first block: omit it",
    ),
    (["--vocabulary_size=267744"], "needs a vocabulary of 267,744 ids"),
]


@pytest.mark.parametrize("arguments, match", TRAINING, ids=lambda one: repr(one)[:40])
def test_flags_that_cannot_train_leave_no_run(corpus, tmp_path, arguments, match):
    arguments = [*SHRUNK, f"--data_dir={corpus}", f"--run_dir={tmp_path}/run", *arguments]
    refused(train, *arguments, match=match)
    assert not (tmp_path / "run").exists()


NEVER_REACHED = [
    ([*STEPS, "--max_rate=0"], "--max_rate must be above 0: no weight would change. Received: --max_rate=0."),
    ([*STEPS, "--decay_at=3,1000"], "--decay_at must be below --updates: .* --decay_at=3,1000 --updates=1000."),
    ([*AVERAGED, "--average_after=10"], "--average_after must be below the number of validations .10.: pass more"),
    ([*AVERAGED, "--updates=200"], "--average_after must be below .* .2.: .* Received: --average_after=5."),
    (["--warmup=1000"], "--warmup must be below --updates"),
]


@pytest.mark.parametrize("arguments, match", NEVER_REACHED, ids=lambda one: repr(one)[:40])
def test_flags_of_what_training_never_reaches_are_refused(tmp_path, arguments, match):
    refused(train, *arguments, "--notensorboard", f"--run_dir={tmp_path}/run", match=match)
    assert not (tmp_path / "run").exists()


def test_an_error_before_the_first_update_gives_the_folder_back(corpus, tmp_path, monkeypatch):
    arguments = [*SHRUNK, f"--data_dir={corpus}", f"--run_dir={tmp_path}/run"]

    def begins_and_fails(model, backup, batches, every, epochs, valid, callbacks):
        for callback in callbacks:
            callback.set_model(model)
            callback.on_train_begin()
        raise ValueError("shows only now")

    with monkeypatch.context() as patched:
        patched.setattr(train.resume, "fit", begins_and_fails)
        refused(train, *arguments, match="shows only now")
    assert not (tmp_path / "run").exists()
    run = RunFolder(tmp_path / "run")
    experiment = Experiment.of_arguments([SHRUNK[0], "--warmup=0", f"--data_dir={corpus}"])
    with pytest.raises(ValueError, match="diverged"), run.claimed(experiment, load_corpus(corpus)):
        (run.path / "log.jsonl").write_text("{}\n")
        raise ValueError("diverged")
    assert (run.path / "flags.txt").exists() and (run.path / "log.jsonl").exists()  # what was trained stays


def test_a_result_that_cannot_be_written_is_printed_first(finished, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "evaluation_valid.json").mkdir()
    refused(evaluate, f"--run_dir={run}", match="Is a directory.*evaluation_valid.json")
    printed = capsys.readouterr().out
    assert "valid perplexity" in printed and "Bits of the same text" in printed and "Written" not in printed


def test_a_folder_of_an_analysis_that_cannot_be_made_is_refused_before_the_work(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(analyze, "analyze", lambda *_: pytest.fail("The work began."))
    refused(analyze, finished, "--output_dir=/dev/null", match="File exists: '/dev/null'")
    (tmp_path / "file").write_text("")
    refused(analyze, finished, f"--output_dir={tmp_path}/file/new", match="Not a directory: .*file/new'")


OTHERS = [
    (generate, ["--length=0"], "length=0: 0 is not"),
    (generate, ["--input=/dev/zero"], "Line 1 of /dev/zero is longer than"),
    (generate, ["--prompt=the \udcff"], "--prompt must be UTF-8: convert it, or pass a file by --input"),
    (generate, ["--prompt=" + "x" * 20_000], "A word of a prompt must have at most 1,000 characters. Received: 20,000"),
    (generate, ["--input=/nowhere"], "No such file or directory: '/nowhere'"),
    (generate, ["--temperature=nan"], "temperature=nan: must be a finite number"),
    (generate, ["--run_dir=/dev/null"], "/dev/null holds no run"),
    (generate, ["--model=last"], "holds no last.keras"),
    (score, ["--input=/dev/zero"], "Line 1 of /dev/zero is longer than"),
    (score, ["--input=/"], "Is a directory: '/'"),
    (evaluate, ["--data_dir=/nowhere"], "/nowhere holds no corpus"),
    (evaluate, ["--block=0"], "block=0: 0 is not"),
    (evaluate, ["--block=" + "9" * 30], "block=9+: 9+ is not an integer in the range"),
    (evaluate, ["--context=" + "9" * 30], "context=9+: 9+ is not an integer in the range"),
    (evaluate, ["--batch_size=" + "9" * 30], "batch_size=9+: 9+ is not an integer in the range"),
    (score, ["--batch_size=" + "9" * 30], "batch_size=9+: 9+ is not an integer in the range"),
    (score, ["--alternatives=" + "9" * 30], "--alternatives must be at most 80"),
    (generate, ["--batch_size=" + "9" * 30], "batch_size=9+: 9+ is not an integer in the range"),
    (analyze, ["--batch_size=" + "9" * 30], "batch_size=9+: 9+ is not an integer in the range"),
    (analyze, ["--lengths=" + "9" * 30], "--lengths must be numbers of tokens, such as .* Received: --lengths=9+.$"),
    (analyze, ["--contexts=0," + "9" * 5000], "--contexts must be numbers of tokens, .* Received: --contexts=0,9+.$"),
]


@pytest.mark.parametrize("program, arguments, match", OTHERS, ids=lambda one: repr(one)[:40])
def test_bad_flags_of_the_other_programs(finished, program, arguments, match):
    refused(program, finished if program is analyze else f"--run_dir={finished}", *arguments, match=match)


DICTIONARIES = {
    "a count of 30 digits": b"the " + b"9" * 30 + b"\n",
    "a count of 5000 digits": b"the " + b"9" * 5000 + b"\n",
    "counts that add up to too much": b"the 9007199254740992\na 1\n",
    "a negative count": b"the -1\n",
    "no count": b"the\n",
    "no text": b"\xff\xfe 3\n",
    "no lines": b"",
    "a word twice": b"the 1\nthe 1\n",
    "a line without end": b"a" * (1 << 20),
    "other words": b"qqq 3\n",
}


PREPARING = [
    (["--min_count=" + "9" * 20], "No word of .*train.txt is in the vocabulary: pass a smaller `min_count`"),
    (["--mirrors=http://nowhere"], "--mirrors belongs to --source=wikitext-103"),
    (["--subwords=1000000000000"], "subwords=1000000000000"),
    (["--processes=100000"], "processes=100000"),
    (["--dictionary=/dev/zero"], "/dev/zero:1: expected a word and its count"),
    (["--source=/dev/zero"], "/dev/zero must be a file of text or a folder"),
    *(
        (["--dictionary=FOLDER/" + kind], f"{kind}|No word of .*train.txt is in the vocabulary")
        for kind in DICTIONARIES
    ),
]


@pytest.mark.parametrize("arguments, match", PREPARING, ids=lambda one: repr(one)[:40])
def test_bad_flags_of_prepare(corpus, tmp_path, arguments, match):
    for kind, contents in DICTIONARIES.items():
        (tmp_path / kind).write_bytes(contents)
    arguments = [argument.replace("FOLDER", str(tmp_path)) for argument in arguments]
    source = f"--source={corpus.parent}"
    refused(prepare, source, "--processes=1", f"--data_dir={tmp_path}/new", *arguments, match=match)
    assert not (tmp_path / "new").exists()


DEVICE = "/dev/zero"
DAMAGE = {  # of a file: its contents, a replacement in them, a model of so many words, or a device
    "flags.txt": [
        (b"", evaluate, "flags.txt must hold --NAME=VALUE lines only"),
        (b"\xff\n", evaluate, "flags.txt is not a text in UTF-8"),
        ((b"--length=8\n", b""), evaluate, "must hold --length=NUMBER"),
        ((b"--length=8", b"--length=a"), evaluate, "flags.txt must hold --length"),
        ((b"--length=8", b"--flagfile=/a"), evaluate, "Received: '--flagfile=/a'"),
        ((b"--length=", b"--width=1\n--length="), analyze, "Unknown command .* 'width'"),
        ((b"--dim=", b"--dim=" + HUGE), analyze, "does not hold the flags of a run: flag --dim=9"),
        (DEVICE, evaluate, "holds no run .flags.txt is missing"),
    ],
    "vocabulary.txt": [
        (b"", generate, "vocabulary.txt: the vocabulary is empty"),
        ((b"w1 ", b"w1 " + HUGE), generate, "vocabulary.txt:1: expected"),
        (DEVICE, generate, "holds no run .vocabulary.txt is missing"),
    ],
    "corpus.json": [(DEVICE, generate, "holds no run .corpus.json is missing")],
    "best.keras": [
        (b"PK\3\4", generate, "best.keras is not a saved LanguageModel, or is damaged"),
        (16, generate, "is the model of another run: it has 16 words, and vocabulary.txt of this run 80"),
        (160, evaluate, "best.keras is the model of another run: it has 160 words"),
        (DEVICE, generate, "best.keras is not a saved .* a folder or a device"),
    ],
    "log.jsonl": [
        (b"[]\n", plot, "log.jsonl:1: not a JSON object"),
        (b'{"update": 10}\n{"update" 20}\n', plot, "log.jsonl:2: not a JSON object"),
        ((b"loss", b"\0\0\0\0"), plot, "log.jsonl:1: not a JSON object"),
        (b"\xff\n", plot, "log.jsonl is not a file of JSON lines"),
        (b'{"loss": [], "update": {}}\n', plot, "log.jsonl is not a result"),
        (DEVICE, plot, "log.jsonl is not a .* a folder or a device"),
    ],
    "evaluation_valid.json": [
        (b"[]", plot, "evaluation_valid.json is not a result"),
        (b'{"by_frequency": 3}', plot, "evaluation_valid.json is"),
    ],
    "score.jsonl": [(b'{"tokens": 3}\n', plot, "score.jsonl is not a result")],
    "losses_valid_8_context_0.npz": [(b"none", analyze, "losses_valid.* is not a file of losses")],
}
DAMAGED = [(name, *case) for name, cases in DAMAGE.items() for case in cases]


def damage(path, change):
    if change == DEVICE:
        path.unlink()
        path.symlink_to(DEVICE)
    elif isinstance(change, int):
        language_model(vocabulary_size=change).save(path)
    else:
        path.write_bytes(path.read_bytes().replace(*change) if isinstance(change, tuple) else change)


@pytest.mark.parametrize("name, change, program, match", DAMAGED, ids=lambda one: repr(one)[:40])
def test_a_damaged_run_is_named(finished, tmp_path, name, change, program, match):
    run = shutil.copytree(finished, tmp_path / "run")
    damage(run / name, change)
    arguments = {analyze: [run, f"--output_dir={tmp_path}/analysis"], plot: [run]}.get(program, [f"--run_dir={run}"])
    refused(program, *arguments, match=match)


def test_a_log_that_has_lost_its_validations_does_not_say_that_training_diverged(finished, tmp_path):
    (tmp_path / "log.jsonl").write_text(json.dumps({"loss": 1.0}) + "\n")
    complete = Experiment.of_run(RunFolder(finished)), RunFolder(tmp_path)
    refused(train.print_result, *complete, match="log.jsonl contains no validation, but the run is complete")


COMMANDS = [
    (["--dims=3"], "Unknown command line flag 'dims'"),
    (["--count=3"], "count=3: 3 is not"),
    (["--count=" + "9" * 5000], "count=9+"),
    (["--count="], "count="),
    (["--name"], "name"),
    (["--kind=c"], "kind=c: value should be one of <a|b>"),
    (["stray"], r"Unknown arguments: \['stray'\]. Flags look like --name=value."),
    (["--count=1", "--", "stray", "more"], "Unknown arguments"),
    ([], "must have a value"),
]


@pytest.mark.parametrize("arguments, match", COMMANDS, ids=lambda one: repr(one)[:40])
def test_a_command_that_is_refused_points_to_help(arguments, match):
    before = set(flags.FLAGS)
    flags.DEFINE_integer("count", 1, "A number.", 1, 2)
    flags.DEFINE_enum("kind", "a", ["a", "b"], "A kind.")
    flags.DEFINE_string("name", None, "A name.", required=True)
    try:
        with pytest.raises(SystemExit, match=match) as ended:
            command_line.parse(["program", *([] if not arguments else ["--name=x"]), *arguments])
    finally:
        for name in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()
    message = str(ended.value.code)
    assert message.endswith(". Pass --help to see the flags.")
    assert len(message) < 500 and len(message.splitlines()) == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 745. GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.\nmore"),
        RuntimeError("CUDA out of memory. Tried to allocate 9 GiB"),
    ],
)
def test_a_memory_that_is_too_small_is_one_line(error):
    def fail():
        raise error

    with pytest.raises(SystemExit, match="The memory is too small .*Use smaller batches or a smaller model"):
        command_line.in_one_line(fail)
    with pytest.raises(RuntimeError, match="a defect"):
        command_line.in_one_line(lambda: (_ for _ in ()).throw(RuntimeError("a defect")))
