"""What is refused of requests from outside: a table of attacks, a line each."""

import json

import pytest

pytestmark = pytest.mark.once

BIG = 10**30
VALID = {
    "score": {"run": "words", "text": "word1"},
    "compare": {"runs": ["words", "others"], "text": "word1"},
    "generate": {"run": "words", "prompt": "word1", "length": 1},
    "neighbors": {"run": "cnn", "words": ["word1"]},
}
ATTACKS = [
    (route, name, value)
    for route, fields in {
        "score": {
            "run": [None, 3, [], {}, ...],
            "text": [None, "", 3, ["a"], {}, True, ...],
            "alternatives": [-1, 101, 1.5, True, None, "3", BIG],
            "other": [1],
        },
        "compare": {"runs": [None, "words", [], ["words"], ["words", 3], ["words"] * 3, ...], "text": [None, ""]},
        "generate": {
            "prompt": [None, 3, []],
            "prefix": [None, "word1", [3], [""], ["x" * 1001], ["word1"] * 2001, {"a": 1}],
            "length": [0, -1, 501, 1.5, True, None, "3"],
            "temperature": [-0.1, 101, True, None, "1", BIG],
            "top_k": [0, -1, 1.5, True, "3", BIG],
            "top_p": [0, -0.1, 1.1, True, "1"],
            "seed": [-1, 1.5, True, "3", 2**53],
        },
        "neighbors": {"words": [None, "word1", [], [""], [3], ["x" * 1001], ["x"] * 101, ...], "k": [0, 101, None]},
    }.items()
    for name, values in fields.items()
    for value in values
]


@pytest.mark.parametrize("route", VALID)
def test_valid_bodies_pass(client, route):
    assert client.post(f"/api/{route}", json=VALID[route]).status_code == 200


@pytest.mark.parametrize("route, name, value", ATTACKS, ids=lambda value: str(value)[:20])
def test_attacks_are_refused_in_one_line(client, route, name, value):
    body = {key: one for key, one in {**VALID[route], name: value}.items() if one is not ...}
    answer = client.post(f"/api/{route}", json=body)
    message = answer.json()["error"]
    assert answer.status_code == 400 and name in message and len(message) < 300 and "\n" not in message


RAW = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "a number": b"3",
    "no UTF-8": b'{"run": "\xff"}',
    "UTF-16": json.dumps(VALID["score"]).encode("utf-16"),
    "NaN": b'{"run": "words", "text": "a", "alternatives": NaN}',
    "infinity": b'{"run": "words", "temperature": 1e999}',
    "too deep": b"[" * 100_000,
    "a long number": b'{"run": "words", "text": "a", "alternatives": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("name", RAW)
def test_other_bodies_are_refused(client, name):
    headers = {"content-type": "application/json; charset=utf-8"}
    for route in VALID:
        answer = client.post(f"/api/{route}", content=RAW[name], headers=headers)
        assert answer.status_code == 400 and len(answer.json()["error"]) < 400, answer.text


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", None])
def test_what_a_form_of_another_site_can_send_is_refused(client, kind):
    content = json.dumps(VALID["score"]).encode()
    headers = {} if kind is None else {"content-type": kind}
    answer = client.post("/api/score", content=content, headers=headers)
    assert answer.status_code == 400 and "application/json" in answer.json()["error"]


def test_unknown_runs_and_paths(client):
    for name in ("x", "..", "../words", "words/../words", "", "w" * 5000):
        answer = client.post("/api/score", json={**VALID["score"], "run": name})
        assert answer.status_code == 404 and "There is no run" in answer.json()["error"]
    for path in ("/api/runs/x/learning", "/api/runs/..%2f..%2fetc/learning", "/api/nothing", "/nothing", "/static/no"):
        answer = client.get(path)
        assert answer.status_code == 404 and isinstance(answer.json()["error"], str), path
    for method, path in (("GET", "/api/score"), ("POST", "/api/runs"), ("PUT", "/api/score"), ("DELETE", "/")):
        assert client.request(method, path).status_code == 405


@pytest.mark.parametrize("after", ["-1", "1.5", "x", "", "9" * 30, "²", "1e3"])
def test_a_bad_update_is_refused(client, after):
    answer = client.get("/api/runs/words/learning", params={"after": after})
    assert answer.status_code == 400 and "`after` must be" in answer.json()["error"]
