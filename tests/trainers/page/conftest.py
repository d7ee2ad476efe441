"""A page of small runs of every unit, and its client."""

import json

import pytest
from starlette.testclient import TestClient

from tests.support.served import ADDRESS
from trainers.page.app import Page
from trainers.page.served_run import ServedRun


@pytest.fixture(scope="session")
def page(folders):
    return Page([ServedRun(path, name) for name, path in folders.items()])


@pytest.fixture(scope="session")
def client(page):
    return TestClient(page.app(), ADDRESS)


@pytest.fixture(scope="session")
def post(client):
    """Posts to a route of the API and returns the JSON of the answer, which must have this status."""

    def ask(route, status=200, **body):
        headers = {"content-type": "application/json"}
        answer = client.post(f"/api/{route}", content=json.dumps(body), headers=headers)  # which may hold surrogates
        assert answer.status_code == status, answer.text
        return answer.json() if route != "generate" or status != 200 else answer

    return ask
