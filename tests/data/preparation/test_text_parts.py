import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_adaptive.data import TOKENIZERS
from keras_adaptive.data.codecs.lines import split_lines
from keras_adaptive.data.preparation import text_parts

pytestmark = pytest.mark.once

MARKS = [" ", "  ", "\n", "\n\n", "\r\n", "\r\r\n", "\r", "\t", "\x0b", "\x0c", "\x85", "\u2028"]
PIECES = ["the", "naïve", "日本語", "x" * 9, "3.14", "don't", "....", *MARKS]
TEXT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=30).map("".join)


def whole(written, tokenize):
    lines = split_lines(written.removesuffix("\n"))
    return [word for line in lines for word in [*tokenize(line), "</s>"]]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("text") / "text.txt"


@given(written=TEXT, size=st.integers(1, 40), chunk=st.integers(1, 12), tokenizer=st.sampled_from(list(TOKENIZERS)))
def test_words_do_not_depend_on_where_a_text_is_cut(path, written, size, chunk, tokenizer):
    path.write_bytes(written.encode())
    tokenize = TOKENIZERS[tokenizer]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_parts, "_CHUNK", chunk)
        parts = text_parts.parts(path, size)
        words = [word for part in parts for words in text_parts.read_words(path, tokenize, *part) for word in words]
    assert words == whole(written, tokenize)
    assert [start for start, _ in parts[1:]] == [stop for _, stop in parts[:-1]]
    assert text_parts.text_size(path) == sum(len(line.encode()) + 1 for line in split_lines(written.removesuffix("\n")))
    assert parts[0][0] == 0 and parts[-1][1] == len(written.encode())


@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 20])
def test_the_size_of_a_text_has_a_byte_for_each_end_of_a_line(path, monkeypatch, chunk):
    monkeypatch.setattr(text_parts, "_CHUNK", chunk)
    returns = b"\r" * 100_000  # which a slower expression would read for minutes
    for written, size in {
        b"ab\r\nc\r\n": 5,
        b"ab\r\r\nc\r": 5,
        b"a\rb\n\r": 5,
        b"\xef\xbb\xbfa": 2,
        b"\r\n": 1,
        returns + b"a" + returns + b"\n" + returns: 100_003,
    }.items():
        path.write_bytes(written)
        assert text_parts.text_size(path) == size
    path.write_bytes(b"\xef\xbb\xbfa")
    assert text_parts.text_size(path, any_bytes=True) == 5


def test_parts_have_about_the_size_and_end_after_white_space(path):
    path.write_bytes(b"aa bb\ncccccccc dd ee")
    assert text_parts.parts(path, 4) == [(0, 6), (6, 15), (15, 18), (18, 20)]
    assert text_parts.parts(path, 20) == [(0, 20)]


@pytest.mark.parametrize("chunk", [1, 3, 7, 1 << 20])
def test_bytes_that_are_no_utf_8_are_found_wherever_the_text_is_cut(path, monkeypatch, chunk):
    monkeypatch.setattr(text_parts, "_CHUNK", chunk)
    for before in (b"", b"ab\n", b"\n\nab ", "ab\nnaïve ".encode()):
        for wrong in (b"\xff", b"\xc3 b", b"\xe6\x97"):
            path.write_bytes(before + wrong + b" c\n")
            place = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
            message = re.escape(f"{path}:{place[0]}, byte {place[1]} of the line: not valid UTF-8")
            for size in (1, 5, 100):
                with pytest.raises(ValueError, match=message):
                    for part in text_parts.parts(path, size):
                        list(text_parts.read_words(path, str.split, *part))


def test_a_long_line_is_not_held(path, monkeypatch):
    monkeypatch.setattr(text_parts, "_CHUNK", 1 << 13)
    path.write_bytes(b"the cat sat " * 100_000)
    tracemalloc.start()
    words = sum(map(len, text_parts.read_words(path, str.split)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words == 300_001 and peak < 400_000
