"""Texts and results that last: examples, reloads, links and downloads."""

import csv
import json
import math
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browser import EXAMPLE, TEXT, classes, read


def test_the_example_is_the_runs_own(open_page):
    """The example follows the run until somebody changes the text; then it stays when another run is chosen."""
    page = open_page()
    for selector, text in {"#read-text": EXAMPLE, "#write-prompt": "word1 word2 word3 word4 word5 word6"}.items():
        expect(page.locator(selector)).to_have_value(text)
    page.select_option("#run", "tied")
    expect(page.locator("#read-text")).to_have_value(re.compile("^The old man"))
    page.select_option("#run", "words")
    expect(page.locator("#read-text")).to_have_value(EXAMPLE)
    page.fill("#read-text", TEXT)
    page.select_option("#run", "tied")
    expect(page.locator("#read-text")).to_have_value(TEXT)


def test_texts_survive_a_reload(open_page):
    page = open_page()
    page.select_option("#run", "cnn")
    page.select_option("#read [name=color]", "rank")
    read(page)
    for view, selector, text in (("write", "#write-prompt", "word3"), ("neighbors", "#neighbors-words", "wrod1")):
        page.click(f"nav a[href='#{view}']")
        page.fill(selector, text)
    page.click("nav a[href='#read']")
    page.reload()
    expect(page.locator("#run")).to_have_value("cnn")
    expect(page.locator("#read .word")).to_have_count(5)
    expect(page.locator("#read .legend")).to_contain_text("Rank")
    for selector, text in {"#read-text": TEXT, "#write-prompt": "word3", "#neighbors-words": "wrod1"}.items():
        expect(page.locator(selector)).to_have_value(text)


def test_a_link_to_a_result(open_page):
    """Another browser shows the same; what is typed afterwards is no longer what the link says."""
    page = open_page()
    page.select_option("#run", "tied")
    page.select_option("#read [name=color]", "entropy")
    text = "word1 & word2 = 100% #?\nword3 ünï word4"  # of another length than the example, which is shown at first
    page.fill("#read-text", text)
    page.click("#read button[type=submit]")
    expect(page.locator("#read .word")).to_have_count(11)
    link = page.locator("#read .take a").first.get_attribute("href")
    other = open_page(link.removeprefix("#"), shown="read")
    expect(other.locator("#read .word")).to_have_count(11)
    expect(other.locator("#read-text")).to_have_value(text)
    expect(other.locator("#run")).to_have_value("tied")
    expect(other.locator("#read .legend")).to_contain_text("Entropy")
    assert classes(other.locator("#read .word")) == classes(page.locator("#read .word"))
    other.fill("#read-text", TEXT)
    other.reload()
    expect(other.locator("#read-text")).to_have_value(TEXT)


@pytest.mark.parametrize(
    "link",
    [
        "read?run=none&text=word1&color=none&numbers=maybe&length=1&__proto__=x&constructor=y&submit=z",
        "compare?what=none&first=none&second=none&text=word1&other=a",
        "write?run=words&prompt=%3Cimg/src=x/onerror=alert(1)%3E&tokens=2&temperature=x&top_k=&seed=1",
        "neighbors?run=words&words=%00%F0%9F&k=2",
        "learn?run=tied&text=a",
    ],
)
def test_a_hostile_link_fills_fields_only(open_page, link):
    view = link.partition("?")[0]
    page = open_page(link, shown=view)
    expect(page.locator(f"#{view} .result:not([hidden])").first).to_be_visible()
    assert page.locator("main img, main script").count() == 0


def test_downloads(open_page):
    page = open_page()
    read(page, 'word1 , "a\tb" =word2')
    files = {}
    for kind in ("CSV", "JSON"):
        with page.expect_download() as download:
            page.click(f"#read .take a:has-text('{kind}')")
        assert download.value.suggested_filename == f"result.{kind.lower()}"
        files[kind] = Path(download.value.path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(files["CSV"].splitlines()))
    reply = json.loads(files["JSON"])
    (line,) = reply["lines"]
    assert [row["token"] for row in rows] == line["tokens"] == ["word1", ",", '"a', 'b"', "=word2", "</s>"]
    assert [float(row["bits"]) for row in rows] == pytest.approx([-value / math.log(2) for value in line["log_probs"]])
    assert [int(row["rank"]) for row in rows] == line["ranks"] and reply["run"] == "words"
    assert [row["unknown"] for row in rows] == ["false", "true", "true", "true", "true", "false"]
