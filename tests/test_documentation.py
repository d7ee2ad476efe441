"""The README and the pages of docs/: examples run, commands parse, links lead somewhere, figures are current."""

import importlib
import re
import shlex
import shutil

import keras
import numpy as np
import pytest

from keras_adaptive.data import SPECIAL_WORDS, Vocabulary, prepare
from scripts import figures
from scripts.tables import TABLES
from tests.support.pages import PAGES, ROOT, examples, run
from tests.support.programs import parsed
from tests.support.served import write_run
from tests.support.text import write_splits
from tests.support.tiny import language_model
from trainers.experiments.parts import PARTS

pytestmark = pytest.mark.once

# Here, in test_readme and in hub.
TESTED = {
    "README.md": 4,
    "docs/layers.md": 4,
    "docs/from_dense.md": 3,
    "docs/which_loss.md": 2,
    "docs/cutoffs.md": 1,
    "docs/surprisal.md": 1,
    "docs/speech.md": 2,
}
TESTED |= {"docs/sampled_losses.md": 2, "docs/hybrids.md": 1, "docs/hub.md": 2}
SHELL = re.compile(r"```bash\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PROGRAM = re.compile(r"(?:-m ((?:trainers|scripts)\.\S+)|keras-adaptive (\w+))(?: (.*))?")


def test_every_example_is_tested():
    """Examples run here, in test_readme.py, or in a test that names the page."""
    tests = ROOT / "tests"
    others = {*tests.rglob("test_*.py")} - {tests / "test_documentation.py", tests / "test_readme.py"}
    named = "".join(path.read_text(encoding="utf-8") for path in others)
    found = {page: len(examples(page)) for page in PAGES if examples(page)}
    assert {page: count for page, count in found.items() if page in TESTED or page not in named} == TESTED


def test_text_in_and_text_out(tmp_path, monkeypatch):
    write_splits(tmp_path, "Return a list of all the names .\n" * 9)
    vocabulary = prepare(tmp_path, tmp_path / "data").vocabulary
    run_dir = tmp_path / "runs" / "quickstart"
    run_dir.mkdir(parents=True)
    for name in ("vocabulary.txt", "corpus.json"):
        shutil.copy(tmp_path / "data" / name, run_dir)
    language_model(vocabulary_size=len(vocabulary)).save(run_dir / "best.keras")
    lm = run("README.md", 3, tmp_path, monkeypatch)["lm"]
    assert lm.vocabulary.words == vocabulary.words


@pytest.mark.each_backend
def test_from_embedding_and_dense(tmp_path, monkeypatch):
    names = {}
    for number in range(3):
        run("docs/from_dense.md", number, tmp_path, monkeypatch, names)
    ours, of_keras = names["same_loss"]
    assert ours == pytest.approx(of_keras, rel=1e-4)
    assert names["small"].count_params() < names["after"].count_params() / 2


@pytest.mark.each_backend
def test_which_loss(tmp_path, monkeypatch):
    names = {}
    for number in range(2):
        run("docs/which_loss.md", number, tmp_path, monkeypatch, names)
    assert names["history"]["perplexity"][0] == pytest.approx(np.exp(names["history"]["loss"][0]), rel=1e-4)
    assert len(names["own"].trainable_variables) == 4


def test_chosen_cutoffs_save_products(tmp_path, monkeypatch):
    names = run("docs/cutoffs.md", 0, tmp_path, monkeypatch)
    assert names["cutoffs"] and names["saved"] > 1


def test_the_surprisal_of_words(tmp_path, monkeypatch):
    spelled = [*SPECIAL_WORDS, *"the cat sat dog a ran".split(), *(f"w{i}" for i in range(10))]
    words = Vocabulary(spelled, range(20, 0, -1))
    write_run(tmp_path / "runs/books", language_model(), words)
    names = run("docs/surprisal.md", 0, tmp_path, monkeypatch)
    assert [row["word"] for row in names["rows"]] == "the cat sat the dog sat".split()
    assert [row["word"] for row in names["after"]] == "the cat sat </s>".split() and names["total"] > 0
    names = run("docs/speech.md", 0, tmp_path, monkeypatch)
    assert names["best"] in (["utt1-1"], ["utt1-2"])
    assert run("docs/speech.md", 1, tmp_path, monkeypatch, names)["end"] < 0


def test_the_word_model_and_a_subclassed_model(tmp_path, monkeypatch):
    names = run("docs/layers.md", 0, tmp_path, monkeypatch)
    assert names["log_probs"].shape == (1, 16, 5)
    assert len(run("docs/layers.md", 1, tmp_path, monkeypatch, names)["model"].history.history["loss"]) == 1


def test_words_read_by_their_bytes(tmp_path, monkeypatch):
    names = run("docs/layers.md", 2, tmp_path, monkeypatch)
    assert names["vector"].shape == (1, 64) and len(names["nearest"]) == 2


def test_the_loss_alone(tmp_path, monkeypatch):
    names = run("docs/layers.md", 3, tmp_path, monkeypatch)
    logits = keras.ops.matmul(names["hidden"], keras.ops.transpose(names["table"]))
    loss = keras.losses.sparse_categorical_crossentropy(names["targets"], logits, from_logits=True)
    assert float(names["loss"]) == pytest.approx(float(keras.ops.mean(loss)), rel=1e-5)


def test_passages_are_drawn_as_in_the_documentation(tmp_path, monkeypatch):
    random, words = np.random.default_rng(0), [*(f"word{i}" for i in range(100)), *10 * ["."], "\n"]
    write_splits(tmp_path, " ".join(random.choice(words, 10_000)) + "\n")
    prepare(tmp_path, tmp_path / "data/books")
    names = run("docs/hybrids.md", 0, tmp_path, monkeypatch)
    assert len(names["control"]) == len(names["broad"]) == 40
    assert all(passage.count(passage[-1]) > 2 for passage in names["broad"])


def commands(text):
    """Yields `(module, arguments)` of every program that the shell examples of a page call."""
    for block in SHELL.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if call := PROGRAM.search(" ".join(line.split())):
                module, command, arguments = call.groups()
                yield module or f"trainers.{command}", shlex.split(arguments or "", comments=True)


def of_the_reader(argument):
    """Returns whether an argument is a flagfile of the reader's own, such as the one of a run, and no recipe."""
    name, _, path = argument.partition("=")
    return name == "--flagfile" and "." in path and not path.startswith("configs/")


@pytest.mark.parametrize("page", [page for page in PAGES if list(commands(PAGES[page]))])
def test_flags_of_commands_exist(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for module, arguments in commands(PAGES[page]):
        program = importlib.import_module(module)
        if not hasattr(program, "define_flags"):
            assert not arguments, f"{module} has no flags."
            continue
        given = [argument for argument in arguments if argument != "..." and not of_the_reader(argument)]
        with parsed(program, *given):
            pass


def test_wrong_flags_of_commands_are_noticed(monkeypatch):
    monkeypatch.setitem(PAGES, "wrong", "```bash\npython -m trainers.score --run_dir=a \\\n  --sentence=b\n```\n")
    with pytest.raises(Exception, match="sentence"):
        test_flags_of_commands_exist("wrong", monkeypatch)


def anchors(page):
    """Returns the anchors of the headings of a page, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in LINK.findall(PAGES[page]):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES)
def test_figures_are_those_of_the_result_files(page):
    assert PAGES[page] == figures.filled(PAGES[page]), "Run `python -m scripts.figures`."


def test_every_table_has_a_place_and_an_old_figure_is_noticed():
    places = [name for text in PAGES.values() for _, name, _ in figures.PLACE.findall(text)]
    assert sorted(places) == sorted(TABLES)
    page = PAGES["docs/benchmarks.md"]
    old = page.replace("float32 | 0.", "float32 | 1.")
    assert old != page == figures.filled(old)


def test_the_readme_is_short_and_names_every_page():
    readme = PAGES["README.md"]
    assert len(readme.splitlines()) <= 220
    assert [page for page in PAGES if page != "README.md" and f"({page})" not in readme] == []


def test_the_parts_of_an_experiment_are_those_of_the_programs():
    text = PAGES["docs/training.md"]
    for role, parts in PARTS.items():
        (row,) = re.findall(rf"^\| `--{role}` \| (.*) \|$", text, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == set(parts)
