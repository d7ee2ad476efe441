"""The page of small runs in Chromium, driven by Playwright. scripts/test.sh has a stage of its own for these tests."""

import json
import os
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

from keras_adaptive.data import Vocabulary
from tests.support.browser import EXAMPLE
from tests.support.served import served, write_run
from tests.support.tiny import WORDS, language_model, system
from trainers.page.app import Page
from trainers.page.bodies import Limits
from trainers.page.served_run import ServedRun

COUNTS = [0] * 4 + [5000, 900, 800, 700, 90, 80, 70, 60, 9, 8, 7, 6, 5, 4, 3, 2]
CURVE = [{"update": 10, "loss": 3.0, "tokens": 80}, {"update": 20, "loss": 2.5, "tokens": 160}]
CURVE += [{"update": 20, "val_loss": 2.6, "tokens": 160}]
EVALUATION = {"split": "valid", "by_frequency": [{"low": 0, "high": 10, "tokens": 4, "nll": 5.0}]}
EVALUATION["by_frequency"] += [{"low": 10, "high": None, "tokens": 40, "nll": 2.0}]

expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The folder of the runs `words`, `tied` and `cnn`."""
    folder = tmp_path_factory.mktemp("runs")
    for name, model in {"words": language_model(), "tied": system("ASM-T"), "cnn": system("CNN")}.items():
        run = write_run(folder / name, model, Vocabulary(WORDS, COUNTS), flags="--dim=8\n--length=8\n--updates=100\n")
        (run.path / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in CURVE), encoding="utf-8")
        (run.path / "evaluation_valid.json").write_text(json.dumps(EVALUATION), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def address(folder):
    """The address of a server of the runs, for texts of 50 words at most."""
    page = Page([ServedRun(folder / name, name) for name in ("words", "tied", "cnn")], Limits(2000, 50, 30))
    page.runs["words"].example = EXAMPLE  # as from a corpus
    with served(page) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def browser():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium, which is not installed"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, address):
    """Function from a view, and options of the browser, to the page; in the end nothing may have gone wrong on it."""
    problems, contexts = [], []

    def is_ours(url):
        return url.startswith(f"{address}/")

    def open_page(view="read", shown=None, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.problems = problems
        page.on("console", lambda message: problems.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: None if is_ours(request.url) else problems.append(request.url))
        page.goto(f"{address}/#{view}")
        expect(page.locator(f"#{shown or view}")).to_be_visible()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
