"""Which hosts may send requests, and what a browser may do with responses."""

import re

import pytest

pytestmark = pytest.mark.once

HOSTS = {
    "localhost": True,
    "localhost:8000": True,
    "LOCALHOST:1": True,
    "127.0.0.1:8000": True,
    "192.168.1.7": True,
    "[::1]:8000": True,
    "page.example": False,
    "localhost.evil.example": False,
    "evil.localhost": False,
    "evil.localhost:8000": False,
    "evil.example:8000": False,
    "127.0.0.1.evil.example": False,
    "localhost:8000@evil.example": False,
    "localhost/": False,
    "localhost:x": False,
    "[localhost]": False,
    "[::1": False,
    "": False,
}


@pytest.mark.parametrize("host", HOSTS)
def test_hosts(client, host):
    """Refuses a name that an attacker resolves to this machine."""
    answer = client.get("/api/runs", headers={"host": host})
    assert answer.status_code == (200 if HOSTS[host] else 400)
    assert "content-security-policy" in answer.headers


def test_named_hosts(page, client):
    other = type(client)(page.app({"page.example"}), client.base_url)
    statuses = [other.get("/api/runs", headers={"host": host}).status_code for host in ("Page.example:80", "example")]
    assert statuses == [200, 400]


OTHERS = ["http://evil.example", "null", "http://localhost:8001", "https://localhost", ""]


@pytest.mark.parametrize("origin", [*OTHERS, "http://localhost:8000"])
def test_other_sites_are_refused_and_the_page_itself_is_not(client, origin):
    answer = client.post("/api/score", json={"run": "words", "text": "a"}, headers={"origin": origin})
    assert answer.status_code == (403 if origin in OTHERS else 200)
    assert ("other sites" in answer.json().get("error", "")) == (origin in OTHERS)


def test_every_answer_has_the_headers(client):
    for answer in (client.get("/api/runs"), client.get("/nothing"), client.post("/api/score", content=b"")):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["referrer-policy"]
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["cache-control"] == "no-store" and answer.headers["content-type"] == "application/json"


def test_the_page_and_its_files_need_nothing_that_the_policy_forbids(client):
    html = client.get("/").text
    assert client.get("/").headers["content-type"].startswith("text/html") and "<style" not in html
    names = re.findall(r'(?:src|href)="(?!#)([^"]+)"', html)
    assert {name.partition("/")[0] for name in names} == {"static"}
    assert all(client.get(f"/{name}").status_code == 200 for name in names)
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|https?://", html)


OUTSIDE = ["/static/../app.py", "/static/%2e%2e/app.py", "/../../etc/passwd", "/static//etc/passwd", "/static/%00"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_files_outside_are_not_served(client, path):
    assert client.get(path).status_code in (400, 404)
