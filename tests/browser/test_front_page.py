"""The front page of the site: its reader computes what Python computes, is small, and needs no pointer."""

import functools
import gzip
import http.server
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

import keras_adaptive
from keras_adaptive.data import tokenize
from scripts import front_page

ROOT = Path(__file__).parents[2]
LARGEST = 5_000_000  # bytes
COMPRESSED = {".html", ".css", ".js", ".json", ".svg"}  # by servers, on the way to a browser
TEXT = "The old man zzyzx looked out over the sea ; he had waited for many years , and in all that time"
ANSWERS = """async ([address, texts, context]) => {
    const worker = new Worker(address, { type: "module" });
    const read = (tokens, job) => new Promise((resolve, reject) => {
        const answers = [];
        worker.onerror = (event) => reject(event.message);
        worker.onmessage = ({ data }) => {
            if (data.problem) reject(data.problem);
            if (data.answers) answers.push(...data.answers);
            if (data.isDone) resolve(answers);
        };
        worker.postMessage({ job, tokens, context });
    });
    const all = [];
    for (const [number, tokens] of texts.entries()) all.push(await read(tokens, number + 1));
    worker.terminate();
    return all;
}"""


@pytest.fixture(scope="module")
def lm():
    return keras_adaptive.load("books-small")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, with another reader in `exact`, whose model has float32 weights."""
    try:
        front_page.runtime()
    except OSError as error:
        pytest.skip(f"npm's registry is out of reach: {error}")
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    subprocess.run(build, cwd=ROOT, env=environment, check=True, capture_output=True)
    shutil.copytree(folder / "reader", folder / "exact")
    for name, path in front_page.model(dtype="float32").items():
        shutil.copy(path, folder / "exact" / name)
    return folder


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Handler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def visit(browser, address):
    """Function that opens a page of the site; its `problems` are messages, errors and requests to another host."""
    contexts = []

    def note(page, url):
        (page.loaded if url.startswith(address) else page.problems).append(url)

    def visit(path="", before=lambda page: None, **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.problems, page.loaded = [], []
        page.on("console", lambda message: page.problems.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: note(page, request.url))
        before(page)
        page.goto(address + path)
        return page

    yield visit
    for context in contexts:
        context.close()


def answers(page, folder, texts, context=64):
    """Returns the answers of the reader of a folder about texts (lists of tokens); the last is about what follows."""
    return page.evaluate(ANSWERS, [f"/{folder}/worker.js", texts, context])


def log_probs_of(answers):
    return np.array([answer["logProb"] for answer in answers[:-1]])


def test_the_float_model_is_pythons(visit, lm):
    """To 1e-4, for whole texts and for windows of six words, with the same ranks and alternatives."""
    page, tokens = visit("archives/"), TEXT.split()
    (found,) = answers(page, "exact", [tokens])
    record = lm.score(TEXT, alternatives=11)
    np.testing.assert_allclose(log_probs_of(found), record["log_probs"][:-1], atol=1e-4)
    assert [answer["rank"] for answer in found[:-1]] == list(record["ranks"][:-1])
    assert [answer["isUnknown"] for answer in found[:-1]] == [token == "zzyzx" for token in tokens]
    for answer, expected in zip(found, record["alternatives"]):
        words, shares = zip(*answer["alternatives"])
        expected = dict([pair for pair in expected if pair[0] != "<unk>"][:10])
        assert set(words) == set(expected)
        np.testing.assert_allclose(shares, [expected[word] for word in words], atol=1e-5)
    ids = lm.codec.encode(["</s>", *tokens])
    windows = [ids[max(0, end - 6) : end] for end in range(1, len(ids))]
    expected = [lm.trained.log_probs(window[None])[0, -1, target] for window, target in zip(windows, ids[1:])]
    (windowed,) = answers(page, "exact", [tokens], 6)
    np.testing.assert_allclose(log_probs_of(windowed)[7:], expected[7:], atol=1e-4)
    np.testing.assert_allclose(log_probs_of(windowed)[:7], log_probs_of(found)[:7], atol=1e-5)


def test_the_model_of_bytes_costs_little(visit, lm):
    """Its perplexity on hundreds of words is at most 1 % larger."""
    page = visit("archives/")
    texts = [lm.generate("", length=60, seed=seed).replace("\n", " </s> ").split() for seed in range(5)]
    exact, of_bytes = (np.concatenate([*map(log_probs_of, answers(page, name, texts))]) for name in ("exact", "reader"))
    ratio = math.exp(exact.mean() - of_bytes.mean())
    print(f"perplexity of {len(exact)} words: {math.exp(-exact.mean()):.2f}, times {ratio:.4f} with bytes")
    assert len(exact) > 250 and 0.98 < ratio < 1.01


def test_words_are_cut_as_in_python(visit):
    page = visit("archives/")
    split = "async (text) => (await import('/reader/split.js')).split(text).map((word) => word.token)"
    for text in ("Don't panic: it's 3.50 ('cheap')... well-known -- é_1", '1,000 words,and "so" on!?'):
        assert page.evaluate(split, text) == tokenize(text)
    assert page.evaluate(split, "“It’s” — so…\nNo") == ['"', "It's", '"', "--", "so", "...", "</s>", "No"]


def sent(path):
    """Returns the number of bytes that a server sends for a file. Servers compress text."""
    content = path.read_bytes()
    return len(gzip.compress(content)) if path.suffix in COMPRESSED else len(content)


def test_a_visit(visit, site):
    """The first text is colored at once, from few bytes and one host, and nothing moves when the answer comes."""
    shift = """window.shift = 0;
        new PerformanceObserver((list) => list.getEntries().forEach((entry) => (window.shift += entry.value)))
            .observe({ type: "layout-shift", buffered: true });"""
    page = visit(before=lambda page: page.add_init_script(shift))
    words, card = page.locator("#reader .word"), page.locator("#reader .card")
    expect(words.first).to_have_class(re.compile(r"\bs[0-7]\b"))
    print(f"first answer after {page.evaluate('performance.now()'):.0f} ms")
    expect(card.locator(".candidates li")).to_have_count(10)
    expect(card.locator(".subject")).to_have_text("piano")
    assert page.evaluate("window.shift") < 0.01 and page.problems == []
    paths = [site / (url.split("/", 3)[3].split("?")[0] or "index.html") for url in set(page.loaded)]
    loaded = sum(sent(path) for path in paths)
    of_reader = sum(path.stat().st_size for path in (site / "reader").iterdir())
    print(f"bytes: {of_reader:,} of the reader, {loaded:,} in all")
    assert of_reader <= LARGEST and loaded <= LARGEST
    sizes = {
        path: len(gzip.compress(path.read_bytes())) if path.suffix in COMPRESSED else path.stat().st_size
        for path in paths
    }
    assert (
        sum(sizes.values()) <= LARGEST and sum(path.stat().st_size for path in (site / "reader").iterdir()) <= LARGEST
    )


def test_typing_choosing_and_the_slider(visit):
    page = visit(viewport={"width": 360, "height": 700})
    text, words, subject = (
        page.locator("#reader textarea"),
        page.locator("#reader .word"),
        page.locator("#reader .subject"),
    )
    expect(words.first).to_have_class(re.compile(r"\bs[0-7]\b"))
    text.fill("")
    text.type("The old man qqqq")
    expect(words.last).to_have_class(re.compile("unknown"))
    expect(subject).to_have_text("qqqq")
    page.keyboard.press("Home")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    expect(subject).to_have_text("old")
    page.keyboard.press("Tab")
    chosen = page.locator("#reader .candidate:focus .name").text_content()
    page.keyboard.press("Enter")
    expect(text).to_have_value(f"The {chosen} man qqqq")
    expect(text).to_be_focused()
    text.press("End")
    text.type(" ")
    expect(subject).to_have_text("What comes next?")
    text.fill("It was the best of times, it was the worst of times")
    expect(words.last).to_have_class(re.compile(r"\bs[0-7]\b"))
    perplexity = page.locator("#reader .below dd").first
    before = perplexity.text_content()
    page.focus("#reader input")
    page.keyboard.press("Home")
    expect(page.locator("#reader output")).to_have_text("one word before it")
    expect(perplexity).not_to_have_text(before)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(
        "(([a, b]) => a.clientHeight === b.scrollHeight)([...document.querySelectorAll('#reader .editor > *')])"
    )
    assert page.problems == []


@pytest.mark.parametrize("missing", ["model.bin", "ort.js", "WebAssembly"])
def test_without_a_file_or_webassembly_one_line_says_so(visit, missing):
    def remove(page):
        page.add_init_script("delete window.WebAssembly") if missing == "WebAssembly" else None
        page.route(f"**/{missing}", lambda route: route.fulfill(status=404))

    page = visit(before=remove)
    expect(page.locator("#reader .problem:visible")).to_contain_text(missing)
    expect(page.locator("#reader textarea")).to_be_hidden()
    expect(page.locator("article h1")).to_be_visible()
