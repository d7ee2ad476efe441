"""The page, as people use it: by pointer, by keyboard, on a narrow screen, in light and in dark."""

import json
import re

import filelock
import pytest
from playwright.sync_api import expect

from tests.support.browser import TEXT, classes, read

HOSTILE = [
    "<img/src=x/onerror=alert(1)>",
    "<script>alert(2)</script>",
    "&lt;b&gt;",
    "'\"><svg/onload=alert(3)>",
    "javascript:alert(4)",
    "__proto__",
    "\u202eabc",
    "z" * 300,
]
VIEWS = ["read", "compare", "write", "learn", "neighbors"]


def luminance(color):
    """Returns the relative luminance of `rgb(…)`, as WCAG defines it."""
    values = [int(value) / 255 for value in re.findall(r"\d+", color)[:3]]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_read(open_page):
    """Every word has a color, and its card shows what the model expected."""
    page = open_page()
    words = read(page)
    expect(page.locator("#read .facts").first).to_contain_text("Perplexity per word")
    assert [bool(re.search(r"\bs[0-7]\b", name)) for name in classes(words)] == [True, True, False, True, True]
    expect(words.nth(2)).to_have_class(re.compile("unknown"))
    expect(page.locator("#read .legend")).to_contain_text("unknown")
    expect(page.locator("#read .facts").first).to_contain_text("Bits per known word")
    expect(page.locator("#read-bands rect")).to_have_count(2)
    card = page.locator("#read .card")
    words.nth(1).hover()
    expect(card.locator(".subject")).to_have_text("word2")
    expect(card.locator(".candidates li")).to_have_count(10)
    shares = [float(text.split()[0]) for text in card.locator(".candidates .number").all_inner_texts()]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 100.1
    words.nth(2).hover()
    expect(card).to_contain_text("Unknown: scored as <unk>")
    page.check("#read input[name=numbers]")
    assert float(words.nth(0).evaluate("word => getComputedStyle(word, '::after').content").strip('"')) > 0


def test_colors_on_choice(open_page):
    """Colors show ranks, entropies or bands, each with a legend and numbers; an unknown word keeps its look."""
    page = open_page()
    words = read(page)
    page.check("#read input[name=numbers]")
    seen = {}
    for name, title in {"bits": "Bits", "rank": "Rank", "entropy": "Entropy", "band": "Band"}.items():
        page.select_option("#read [name=color]", name)
        expect(page.locator("#read .legend")).to_contain_text(title)
        seen[name] = [word.get_attribute("data-number") for word in words.all()]
        expect(words.nth(2)).to_have_class(re.compile(r"word unknown"))
    assert len({tuple(numbers) for numbers in seen.values()}) == 4
    assert seen["band"] == [
        "0" if word in ("</s>", "<unk>") else "1" for word in "word1 word2 <unk> word3 </s>".split()
    ]
    assert all(number.isdecimal() for number in seen["rank"])
    expect(page.locator("#read .swatches li")).to_have_text(["0: 1–5", "1: 6–20"])
    assert classes(words)[0].split() == ["word", "s7"] and classes(words)[4].split() == ["word", "s0"]


def test_the_keyboard_is_enough(open_page):
    """The focus moves from the text area to the words, between the words, and out of the card."""
    page = open_page(viewport={"width": 360, "height": 700})
    page.focus("#read-text")
    page.keyboard.press("Control+a")
    page.keyboard.type("word1 word2 word3 word4 word5 word6 word7 word8")
    page.keyboard.press("Control+Enter")
    words, card = page.locator("#read .word"), page.locator("#read .card")
    expect(words).to_have_count(9)
    for _ in range(4):  # the button, the colors, the box, the words
        page.keyboard.press("Tab")
    expect(words.nth(0)).to_be_focused()
    for key, number in [("ArrowRight", 1), ("End", 8), ("ArrowLeft", 7), ("Home", 0)]:
        page.keyboard.press(key)
        expect(words.nth(number)).to_be_focused()
        expect(words.nth(number)).to_have_attribute("aria-describedby", "read-reading-card")
    first = words.nth(0).bounding_box()
    page.keyboard.press("ArrowDown")
    below = page.locator("#read .word:focus").bounding_box()
    assert below["y"] > first["y"] + 10 and below["x"] < first["x"] + first["width"]
    assert below["y"] + below["height"] <= card.bounding_box()["y"]  # the sheet does not cover the word
    page.keyboard.press("ArrowUp")
    expect(words.nth(0)).to_be_focused()
    expect(card).to_be_visible()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.keyboard.press("Enter")
    expect(card).to_be_visible()
    page.keyboard.press("Tab")
    assert page.locator("#read .word:focus").count() == 0  # one tab stop


def test_compare(open_page):
    page = open_page("compare")
    page.fill("#compare-text", TEXT)
    page.click("#compare button[type=submit]")
    words = page.locator("#compare .word")
    expect(words).to_have_count(5)
    looks = [bool(re.search(r"\b([ab][1-3]|d0)\b", name)) for name in classes(words)]
    assert looks == [True, True, False, True, True] and "unknown" in classes(words)[2]
    words.nth(0).focus()
    expect(page.locator("#compare-reading .card")).to_contain_text("second − first")
    expect(page.locator("#compare-reading .how")).to_have_text("Each line is read as a whole.")
    expect(page.locator("#compare-frequency rect")).not_to_have_count(0)
    expect(page.locator("#compare-largest .pairs")).to_have_count(2)
    for first in ("tied", "cnn", "words"):  # never the same twice
        page.select_option("#compare [name=first]", first)
        second = page.locator("#compare [name=second]")
        assert second.input_value() != first
        assert set(second.locator("option").all_inner_texts()) == {"words", "tied", "cnn"} - {first}


def test_two_texts_on_one_run(open_page):
    page = open_page("compare")
    page.select_option("#compare [name=what]", "texts")
    expect(page.locator("#compare [name=second]")).to_be_hidden()
    page.select_option("#compare [name=first]", "tied")
    page.fill("#compare-text", "word1 word2 word3")
    page.fill("#compare-other", "word1 word4 word3")
    page.click("#compare button[type=submit]")
    for place in ("first", "second"):
        expect(page.locator(f"#compare-{place} .word")).to_have_count(4)
    expect(page.locator("#compare .result:not([hidden]) > .how")).to_have_text("Each line is read as a whole.")
    values = page.locator("#compare .result:not([hidden]) > .facts dd").all_inner_texts()
    bits = [float(value) for value in values[:2]]
    assert float(values[2].split()[0].replace("−", "-")) == pytest.approx(bits[1] - bits[0], abs=0.011)
    assert values[3] == ("the first" if bits[0] < bits[1] else "the second")
    first = [
        words.nth(0).get_attribute("class")
        for words in map(page.locator, ("#compare-first .word", "#compare-second .word"))
    ]
    assert first[0] == first[1]
    page.fill("#compare-other", "word1 " * 60)
    page.click("#compare button[type=submit]")
    expect(page.locator("#compare .status.error")).to_contain_text("at most 50 words")
    expect(page.locator("#compare .result:not([hidden])")).to_have_count(0)
    page.problems.clear()


def test_write(open_page):
    """A continuation of one seed is the same; another candidate takes a word's place, and what follows is new."""
    page = open_page("write")
    page.fill("#write-prompt", "word1 word2")
    page.fill("#write [name=tokens]", "12")
    page.fill("#write [name=temperature]", "0")
    page.click("#write button[type=submit]")
    words = page.locator("#write .word")
    expect(words).to_have_count(12)
    expect(page.locator("#write [name=more]")).to_be_visible()
    greedy = words.all_inner_texts()
    facts = page.locator("#write .facts").first
    expect(facts).to_contain_text("Perplexity per word")
    expect(facts).to_contain_text("Words per second")
    assert facts.locator("dd").nth(1).inner_text() == "12" and float(facts.locator("dd").nth(2).inner_text()) > 0
    page.click("#write button[type=submit]")
    expect(page.locator("#write [name=more]")).to_be_visible()
    assert words.all_inner_texts() == greedy
    words.nth(4).focus()
    page.keyboard.press("Enter")
    candidates = page.locator("#write .card .candidate")
    expect(candidates).to_have_count(10)
    expect(candidates.nth(0)).to_be_focused()
    names = candidates.locator(".name").all_inner_texts()
    place, other = next((place, name) for place, name in enumerate(names) if place and name != greedy[4])
    for step in range(1, place + 1):
        page.keyboard.press("ArrowDown")
        expect(candidates.nth(step)).to_be_focused()
    page.keyboard.press("Enter")
    expect(words).to_have_count(17)  # four, the candidate and twelve more
    expect(words.nth(4)).to_have_class(re.compile("chosen"))
    changed = words.all_inner_texts()
    assert changed[:4] == greedy[:4] and changed[4] == other != greedy[4]
    expect(page.locator("#write [name=more]")).to_be_visible()
    page.click("#write [name=more]")
    expect(words).to_have_count(29)


def test_learn(open_page, folder):
    """The curve of a run that trains grows while the page is open."""
    with filelock.FileLock(folder / "words" / "lock"):
        page = open_page("learn")
        facts = page.locator("#learn .facts").first
        expect(facts).to_contain_text("training")
        expect(page.locator("#learn-curve circle")).to_have_count(1)
        expect(page.locator("#learn-frequency rect")).to_have_count(2)
        expect(page.locator("#learn-parameters")).to_contain_text("input")
        expect(page.locator("#learn-flags")).to_contain_text("updates")
        with open(folder / "words" / "log.jsonl", "a", encoding="utf-8") as log:
            for line in ({"update": 30, "loss": 2.4}, {"update": 30, "val_loss": 2.2}):
                log.write(f"{json.dumps(line)}\n")
        expect(page.locator("#learn-curve circle")).to_have_count(2)
        expect(facts).to_contain_text("9.03")  # the perplexity


def test_neighbors(open_page):
    page = open_page("neighbors")
    page.fill("#neighbors-words", "word2 wrod1")
    page.click("#neighbors button[type=submit]")
    columns = page.locator("#neighbors .columns > div")
    expect(columns).to_have_count(2)
    expect(columns.nth(0).locator("li")).to_have_count(8)
    expect(columns.nth(1)).to_contain_text("has no vector")
    page.select_option("#run", "cnn")
    page.fill("#neighbors-words", "wrod1 word2")
    page.fill("#neighbors [name=k]", "3")
    page.click("#neighbors button[type=submit]")
    expect(columns.nth(0)).to_contain_text("not in the vocabulary")
    expect(columns.nth(1).locator("li")).to_have_count(3)


@pytest.mark.parametrize("view", ["read", "compare"])
def test_hostile_text_is_text(open_page, view):
    """Markup is shown as it is; the fixture finds dialogs, errors and requests."""
    page = open_page(view)
    page.fill(f"#{view}-text", " ".join(HOSTILE))
    page.click(f"#{view} button[type=submit]")
    words = page.locator(f"#{view} .word")
    expect(words).to_have_count(len(HOSTILE) + 1)
    assert [word.text_content() for word in words.all()][:-1] == HOSTILE
    for word in words.all():
        word.focus()
    assert page.locator("main img, main script, main svg:not(.chart svg)").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hostile_prompts_and_strings_are_text(open_page):
    page = open_page("write")
    page.fill("#write-prompt", " ".join(HOSTILE))
    page.click("#write button[type=submit]")
    expect(page.locator("#write .prompt")).to_have_text(" ".join(HOSTILE))
    expect(page.locator("#write .word")).to_have_count(30)
    page.select_option("#run", "cnn")
    page.click("nav a[href='#neighbors']")
    page.fill("#neighbors-words", " ".join(HOSTILE))
    page.click("#neighbors button[type=submit]")
    expect(page.locator("#neighbors .columns > div")).to_have_count(len(HOSTILE))
    assert page.locator("main img, main script").count() == 0


def test_an_error_of_the_server_is_shown(open_page):
    """No result stays under the error."""
    page = open_page()
    read(page)
    page.fill("#read-text", "word1 " * 60)
    page.click("#read button[type=submit]")
    expect(page.locator("#read .status.error")).to_contain_text("at most 50 words")
    expect(page.locator("#read .result")).to_be_hidden()
    read(page)
    expect(page.locator("#read .status")).to_have_text("")
    page.click("nav a[href='#write']")
    page.click("#write button[type=submit]")
    expect(page.locator("#write .word")).to_have_count(30)
    page.fill("#write-prompt", "word1 " * 60)
    page.click("#write button[type=submit]")
    expect(page.locator("#write .status.error")).to_contain_text("at most 50 words")
    expect(page.locator("#write .result")).to_be_hidden()
    assert len(page.problems) == 2 and "413" in page.problems.pop() + page.problems.pop()  # the browser reports them


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors(open_page, scheme):
    """Text has a contrast of 4.5:1 on every color, and the lightness of the scale of surprisal is monotonic."""
    page = open_page(color_scheme=scheme)
    colors = """names => names.map(name => {
        const part = document.querySelector("#read .legend").appendChild(document.createElement("span"));
        part.className = name;
        const { color, backgroundColor } = getComputedStyle(part);
        part.remove();
        return [color, backgroundColor];
    })"""
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    scale = [f"s{step}" for step in range(8)]
    names = [*scale, *"a1 a2 a3 d0 b1 b2 b3 note status lead unknown".split()]
    levels = []
    for name, (color, ground) in zip(names, page.evaluate(colors, names)):
        dark, bright = sorted(luminance(paper if part == "rgba(0, 0, 0, 0)" else part) for part in (color, ground))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, name
        levels.append(luminance(paper if ground == "rgba(0, 0, 0, 0)" else ground))
    steps = [(other - one) * (-1 if scheme == "light" else 1) for one, other in zip(levels, levels[1:8])]
    assert min(steps) > 0


def test_the_theme_is_kept(open_page):
    page = open_page(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.click("#theme")
    dark = page.evaluate(ground)
    assert luminance(dark) < 0.05 < luminance(light)
    page.reload()
    assert page.evaluate(ground) == dark
    expect(page.locator("#theme")).to_have_text("Light")


def test_a_narrow_screen(open_page):
    """No view is wider than 360 pixels."""
    page = open_page(viewport={"width": 360, "height": 700})
    for view in VIEWS:
        page.click(f"nav a[href='#{view}']")
        button = page.locator(f"#{view} button[type=submit]")
        if button.count() and button.is_enabled():
            button.click()
            expect(page.locator(f"#{view} .result:visible")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
