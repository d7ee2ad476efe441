import socket

import pytest

from keras_adaptive.data import PUBLIC_CORPORA
from keras_adaptive.data.sources.public_corpora import PublicCorpus
from tests.support.archives import MEMBERS, TOKENS
from tests.support.local_server import LocalServer


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with LocalServer() as site:
        yield site


@pytest.fixture
def down():
    """An address where nobody listens, nor can while the test runs."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{silent.getsockname()[1]}/archive.zip"


@pytest.fixture
def tiny(monkeypatch):
    """A public corpus of four words; `tiny(**fields)` changes what is published about it."""
    corpus = PublicCorpus((), MEMBERS, 1, TOKENS, types=7)

    def change(**fields):
        monkeypatch.setitem(PUBLIC_CORPORA, "tiny", corpus._replace(**fields))

    change()
    return change
