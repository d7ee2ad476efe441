"""Learning curves of runs that train, that have trained and that never did."""

import json
import math

import filelock
import pytest
from starlette.testclient import TestClient

from keras_adaptive.data import Vocabulary
from tests.support.served import ADDRESS, write_run
from tests.support.tiny import WORDS, language_model
from trainers.page import learning
from trainers.page.app import Page
from trainers.page.served_run import ServedRun

pytestmark = pytest.mark.once

FLAGS = "--body=transformer\n--data_dir=/secret/place/books\n--length=8\n--updates=40\n"
LOG = [
    {"update": 10, "loss": 6.0},
    {"update": 20, "loss": None},
    {"update": 20, "val_loss": 4.5},
    {"update": 30, "loss": 5.0},
]


@pytest.fixture
def run(tmp_path):
    folder = write_run(tmp_path / "run", language_model(), Vocabulary(WORDS, range(20, 0, -1)), flags=FLAGS)
    write_log(folder, LOG)
    return folder


def write_log(folder, records, end=""):
    text = "".join(json.dumps(record) + "\n" for record in records) + end
    (folder.path / "log.jsonl").write_text(text, encoding="utf-8")


def learn(folder, after=0, status=200):
    client = TestClient(Page([ServedRun(folder.path, "run")]).app(), ADDRESS)
    answer = client.get("/api/runs/run/learning", params={"after": after})
    assert answer.status_code == status, answer.text
    return answer.json()


def test_the_curve_after_an_update(run):
    assert learn(run)["curve"] == LOG
    assert learn(run, 10)["curve"] == LOG[1:]
    assert learn(run, 20)["curve"] == LOG[2:]  # a validation is written after its update
    assert learn(run, 30)["curve"] == []


def test_a_log_that_grows_or_begins_again_is_read_again(run):
    served = ServedRun(run.path, "run")
    assert served.learn()["curve"] == LOG
    write_log(run, LOG, '{"update": 40, "lo')
    assert served.learn()["curve"] == LOG
    more = [*LOG, {"update": 40, "loss": 4.0}]
    write_log(run, more)
    assert served.learn(30)["curve"] == more[4:]
    write_log(run, LOG[:1])
    assert served.learn()["curve"] == LOG[:1]


def test_a_long_log_is_thinned(run, monkeypatch):
    monkeypatch.setattr(learning, "MOST", 10)
    validations = [{"update": 37, "val_loss": 1.0}, {"update": 73, "val_loss": 1.0}]
    write_log(run, [*({"update": update, "loss": 2.0} for update in range(1, 100)), *validations])
    curve = learn(run)["curve"]
    training = [line["update"] for line in curve if "loss" in line]
    assert training == list(range(9, 100, 10)) and curve[-2:] == validations


def test_losses_by_frequency_are_those_of_the_newest_evaluation(run):
    assert learn(run)["frequency"] == [] and learn(run)["split"] is None
    bins = [{"low": 0, "high": 10, "tokens": 5, "nll": math.log(8)}, {"low": 10, "high": None, "tokens": 2, "nll": 0.0}]
    (run.path / "evaluation_valid.json").write_text(json.dumps({"split": "valid", "by_frequency": bins}))
    found = learn(run)
    assert found["split"] == "valid"
    assert [(part["from"], part["to"], part["words"]) for part in found["frequency"]] == [(0, 10, 5), (10, None, 2)]
    assert [part["bits"] for part in found["frequency"]] == pytest.approx([3, 0])


@pytest.mark.parametrize("text", ["{", "[]", '{"split": "valid", "by_frequency": 3}', '{"by_frequency": [{}]}'])
def test_a_damaged_evaluation_is_named(run, text):
    (run.path / "evaluation_valid.json").write_text(text)
    assert "evaluation_valid.json is not a result" in learn(run, status=400)["error"]


def test_flags_hide_where_the_corpus_lies(run):
    assert learn(run)["flags"] == {"body": "transformer", "data_dir": "books", "length": "8", "updates": "40"}


@pytest.mark.parametrize(
    "path", ["../secret/x", "secret/x/", "~/secret/x", "C:\\secret\\x", "gs://secret/x", "secret/y,secret/x"]
)
def test_other_paths_are_hidden_too(run, path):
    (run.path / "flags.txt").write_text(f"--init_from={path}\n--updates=40\n")
    assert learn(run)["flags"] == {"init_from": "x", "updates": "40"}


FOLDER = "a folder"
DAMAGE = [("flags.txt", None), ("flags.txt", b"\xff"), ("log.jsonl", b"\xff\n"), ("log.jsonl", FOLDER)]


@pytest.mark.parametrize("name, content", [*DAMAGE, ("vocabulary.txt", b"a 1\n")])
def test_a_damaged_run_is_listed_beside_the_others(run, tmp_path, name, content):
    """The list shows the problem without the path of the run."""
    is_served = name != "vocabulary.txt"
    write_run(tmp_path / "other", language_model(), Vocabulary(WORDS, range(20, 0, -1)))
    page = Page([ServedRun(path, path.name) for path in (run.path, tmp_path / "other")])
    if is_served:
        page.warm_up()
    (run.path / name).unlink()
    if content == FOLDER:
        (run.path / name).mkdir()
    elif content is not None:
        (run.path / name).write_bytes(content)
    client = TestClient(page.app(), ADDRESS)
    score = client.post("/api/score", json={"run": "run", "text": "word1"})
    assert score.status_code == (200 if is_served else 400)
    assert client.post("/api/score", json={"run": "other", "text": "word1"}).status_code == 200
    answers = [score, client.get("/api/runs"), client.get("/api/runs/run/learning")]
    assert answers[1].status_code == 200 and not any(str(tmp_path) in answer.text for answer in answers)
    damaged, other = answers[1].json()["runs"]
    assert other["unit"] == "word" and other["problem"] is None
    if is_served:
        assert damaged["unit"] == "word" and damaged["problem"] and "\n" not in damaged["problem"]
        assert "error" in answers[2].json()


def test_parameters_by_part_are_known_with_the_model(run):
    served = ServedRun(run.path, "run")
    assert served.learn()["parameters"] == {}
    served.warm_up()
    assert len(list(served.compile_rest())) == 22
    parameters = served.learn()["parameters"]
    assert sum(parameters.values()) == run.model().count_params() and len(parameters) == 3


def test_whether_a_run_trains(run):
    assert not learn(run)["training"]
    with filelock.FileLock(run.path / "lock"):
        assert learn(run)["training"]
        write_log(run, [*LOG, {"update": 40, "val_loss": 4.0}])
        assert not learn(run)["training"]  # its last validation is written
    write_log(run, LOG)
    assert not learn(run)["training"]


def test_a_run_without_a_model_is_served_while_it_trains(run):
    (run.path / "best.keras").rename(run.path / "away")
    with pytest.raises(ValueError, match="holds no best.keras yet"):
        Page([ServedRun(run.path, "run")]).warm_up()
    with filelock.FileLock(run.path / "lock"):
        page = Page([ServedRun(run.path, "run")])
        page.warm_up()
        client = TestClient(page.app(), ADDRESS)
        (described,) = client.get("/api/runs").json()["runs"]
        assert described["training"] and described["unit"] is None
        assert client.get("/api/runs/run/learning").json()["curve"] == LOG
        answer = client.post("/api/score", json={"run": "run", "text": "word1"})
        assert answer.status_code == 503 and "no model yet" in answer.json()["error"]
        (run.path / "away").rename(run.path / "best.keras")
        assert client.post("/api/score", json={"run": "run", "text": "word1"}).status_code == 200
        assert client.get("/api/runs").json()["runs"][0]["unit"] == "word"


def test_a_run_without_a_log_has_no_curve(run):
    (run.path / "log.jsonl").unlink()
    assert learn(run)["curve"] == [] and not learn(run)["training"]
