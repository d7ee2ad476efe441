"""The program that serves the page: a real server, on a real port, with several clients at once."""

import concurrent.futures
import contextlib
import http.client
import importlib
import json
import logging
import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tests.support.refusals import refused
from tests.support.served import served
from trainers import serve
from trainers.page import connection
from trainers.page.app import Page
from trainers.page.served_run import ServedRun

pytestmark = pytest.mark.once

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def page(folders):
    return Page([ServedRun(folders[name], name) for name in ("words", "letters", "cnn")])


@pytest.fixture(scope="module")
def port(page):
    with served(page) as port:
        yield port


@pytest.fixture(autouse=True, scope="module")
def no_rest():
    """Leaves out what a server compiles between requests, since the tests replace the functions of runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServedRun, "compile_rest", lambda run: (None for _ in ()))
        yield


def test_the_server_compiles_between_requests(folders, monkeypatch):
    steps, begun, goes_on = [], threading.Event(), threading.Event()

    def compile_rest(run):
        for step in range(3):
            steps.append(step)
            begun.set()
            assert goes_on.wait(60)
            yield
        steps.append("end")

    monkeypatch.setattr(ServedRun, "compile_rest", compile_rest)
    page = Page([ServedRun(folders["words"], "words")])
    with served(page) as port:
        assert begun.wait(60) and steps == [0]
        goes_on.set()
        assert answer(port, "score", run="words", text="word1")[0] == 200
        while steps[-1] != "end":
            time.sleep(0.01)
    assert steps == [0, 1, 2, "end"]


@contextlib.contextmanager
def asked(port, route, **body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", f"/api/{route}", json.dumps(body), JSON)
    with contextlib.closing(connection):
        yield connection.getresponse()


def answer(port, route, **body):
    with asked(port, route, **body) as answer:
        return answer.status, answer.read()


@pytest.mark.processes
def test_eight_clients_at_once(port):
    """Everybody is answered, and as if alone."""
    requests = [
        ("score", {"run": "words", "text": "word1 word2\nword3 " * 8}),
        ("generate", {"run": "words", "prompt": "word1", "length": 30, "seed": 1}),
        ("compare", {"runs": ["words", "letters"], "text": "word1 word2"}),
        ("neighbors", {"run": "cnn", "words": ["a", "b"]}),
    ]
    alone = [answer(port, route, **body) for route, body in requests]
    assert all(status == 200 for status, _ in alone)
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        together = [clients.submit(answer, port, route, **body) for _ in range(2) for route, body in requests]
        assert [one.result() for one in together] == 2 * alone


def test_words_are_sent_as_they_are_written(port, page, monkeypatch):
    """The second word is written only after the first has arrived."""
    arrived, waited = threading.Event(), []

    def words(*_, **__):
        yield {"token": "a"}
        waited.append(arrived.wait(20))
        yield {"token": "b"}

    monkeypatch.setattr(page.runs["words"], "generate", words)
    with asked(port, "generate", run="words") as answer:
        first = json.loads(answer.readline())
        arrived.set()
        second = json.loads(answer.readline())
    assert (first["token"], second["token"], waited) == ("a", "b", [True])


@pytest.mark.parametrize("route", ["generate", "score"])
def test_computation_ends_when_the_client_goes_away(port, page, monkeypatch, route):
    done, closed = [], threading.Event()

    def endless(*_, **__):
        try:
            while True:
                done.append(None)
                time.sleep(0.01)
                yield {"token": "a"}
        finally:
            closed.set()

    monkeypatch.setattr(page.runs["words"], route, endless)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"run": "words", **({"text": "a"} if route == "score" else {})}
    connection.request("POST", f"/api/{route}", json.dumps(body), JSON)
    while len(done) < 3:
        time.sleep(0.01)
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    assert closed.wait(30)
    while page.turns.requests:
        time.sleep(0.01)


HEADER = "POST /api/{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
SENT = [
    "",
    "GET / HT",
    "GET / HTTP/1.1\r\nHost: localhost\r\n",
    HEADER.format("score", 99) + "{",
    HEADER.format("none", 9),
    "GET /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\nGET /",  # an answer, and a second header that does not end
]


@contextlib.contextmanager
def connected(port, texts, receive=2**16):
    """Yields connections that have sent these texts."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in texts]
        for client, text in zip(clients, texts):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
            client.settimeout(30)
            client.connect(("127.0.0.1", port))
            client.sendall(text.encode())
        yield clients


def is_closed(client):
    """Returns whether the server closes a connection, after what it sends."""
    try:
        while client.recv(2**16):
            pass
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_silent_and_half_sent_connections_shut_nobody_out(port):
    with connected(port, SENT * 44):  # more than the server holds at once
        status, text = answer(port, "score", run="words", text="word1")
        assert status == 200, text


@pytest.mark.parametrize("sent", SENT)
def test_the_server_does_not_wait_for_ever(port, monkeypatch, sent):
    """It does not wait for a header, the rest of a body or another request."""
    monkeypatch.setattr(connection, "SECONDS", 0.3)
    monkeypatch.setattr("trainers.page.bodies.SECONDS", 0.2)
    with connected(port, [sent]) as (client,):
        assert is_closed(client)


def test_a_byte_at_a_time_is_late_too(port, monkeypatch):
    monkeypatch.setattr(connection, "SECONDS", 0.5)
    with connected(port, ["GET / HTTP/1.1\r\nHost: localhost\r\nX: "]) as (client,):
        with pytest.raises(OSError):
            for _ in range(300):
                client.sendall(b"x")
                time.sleep(0.05)


def test_streams_that_nobody_reads_hold_no_place(folders, monkeypatch):
    """Others are answered at once, and the streams end after some time."""
    page = Page([ServedRun(folders["words"], "words")], at_once=2)
    closed = []

    def endless(*_, **__):
        try:
            while True:
                yield {"token": "a" * 2**18}
        finally:
            closed.append(None)

    with served(page) as port:
        monkeypatch.setattr(page.runs["words"], "generate", endless)
        monkeypatch.setattr(connection, "SECONDS", 2)
        body = json.dumps({"run": "words"})
        with connected(port, [HEADER.format("generate", len(body)) + body] * 2, 4096) as clients:
            for client in clients:
                assert client.recv(12) == b"HTTP/1.1 200"
            while page.turns.requests:
                time.sleep(0.01)
            assert answer(port, "score", run="words", text="word1")[0] == 200
            assert not closed
            while len(closed) < 2:
                time.sleep(0.01)


def test_a_slow_client_gets_the_whole_answer(port, page, monkeypatch):
    """An answer may take long in total if the client keeps reading."""
    monkeypatch.setattr(connection, "SECONDS", 0.8)
    monkeypatch.setattr(page.runs["words"], "neighbors", lambda *_: ({"word": "a" * 2**22} for _ in range(3)))
    body, size = json.dumps({"run": "words", "words": ["a"]}), 0
    with connected(port, [HEADER.format("neighbors", len(body)) + body]) as (client,):
        while size < 3 * 2**22:
            part = client.recv(2**16)
            assert part, size
            size += len(part)
            time.sleep(0.01)


def test_a_client_that_leaves_in_its_body_is_no_error(folders, caplog):
    page = Page([ServedRun(folders["words"], "words")])
    with served(page) as port:
        with connected(port, [HEADER.format(route, 99) + "{" for route in ("score", "generate", "compare")]):
            pass
        assert answer(port, "score", run="words", text="word1")[0] == 200
    assert not caplog.records


@pytest.mark.parametrize("host", ["", "0", "0.0"])
def test_everybody_is_served_only_if_asked_for(folders, host):
    """An empty address is a variable that is not set."""
    refused(serve, f"--run_dir={folders['words']}", f"--host={host}", "--port=0", match="from any host")


def test_an_address_that_is_taken_and_other_folders_are_refused(port, folders, tmp_path):
    refused(serve, f"--run_dir={folders['words']}", f"--port={port}", match=f"Cannot listen on .*--port={port}")
    refused(serve, f"--run_dir={folders['words']}", "--host=no.such.host.invalid", match="Cannot listen on --host=no")
    refused(serve, f"--run_dir={folders['words']},{tmp_path}", "--port=0", match="holds no run")


def test_runs_of_one_name_get_different_names(folders, monkeypatch, tmp_path):
    (tmp_path / "words").symlink_to(folders["words"])

    runs = [str(folders["words"]), str(tmp_path / "words")]
    monkeypatch.setattr(serve, "FLAGS", SimpleNamespace(run_dir=runs, model="best"))
    assert [run.name for run in serve.runs()] == ["words", "words (2)"]


def test_the_server_leaves_other_logs_alone(tmp_path):
    """A configuration of logging by uvicorn would close the streams of all handlers."""
    with open(tmp_path / "log", "w") as stream:
        handler = logging.StreamHandler(stream)
        handler.close = stream.close
        serve.server(None)
        assert not stream.closed
        del handler.close


def test_packages_that_are_missing_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.delitem(sys.modules, "trainers.page")
    with pytest.raises(ModuleNotFoundError, match=r"pip install \"keras_adaptive\[serve\]\""):
        importlib.import_module("trainers.page")
