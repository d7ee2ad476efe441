"""What the tests of the page in a browser share."""

from playwright.sync_api import expect

EXAMPLE = "word1 word2 word3 word4 word5 word6 word7 word8 ."  # of the run `words`
TEXT = "word1 word2 never word3"


def read(page, text=TEXT):
    """Reads a text and returns the words of the page, after which `</s>` comes."""
    page.fill("#read-text", text)
    page.click("#read button[type=submit]")
    words = page.locator("#read .word")
    expect(words).to_have_count(len(text.split()) + 1)
    return words


def classes(words):
    return [word.get_attribute("class") for word in words.all()]
