"""A text of one's own, divided into splits."""

import csv
import re

import pytest

from keras_adaptive.data import SPLITS, split_text
from keras_adaptive.data.sources import own_text
from tests.support.refusals import refused

pytestmark = pytest.mark.once

HELD_OUT = {1: ["5", "8", "11", "14"], 2: ["0", "6", "9", "13"]}  # documents of the test by seed


@pytest.fixture
def divide(tmp_path):
    """`divide(source, **arguments)` returns the unit and the three texts."""

    def divide(source, **arguments):
        folder = tmp_path / "splits"
        folder.mkdir(exist_ok=True)
        unit = split_text(source, folder, **arguments)
        return unit, {split: (folder / f"{split}.txt").read_bytes().decode() for split in SPLITS}

    return divide


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def novel(documents, lines=2, end="\n"):
    return [f"Document {i}{end}" + f"line of {i}{end}" * (lines - 1) for i in range(documents)]


def documents(text):
    return [document for document in re.split(r"(?:\r?\n){2,}", text) if document.strip()]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_documents_between_blank_lines(tmp_path, divide, end):
    wanted = novel(40, end=end)
    text = f"{end}{end}" + f"{end} \t{end}{end}".join(wanted).removesuffix(end)
    unit, texts = divide(write(tmp_path / "a.txt", text), valid_fraction=0.1, test_fraction=0.2)
    divided = {split: documents(re.sub(r"[ \t]+(?=\r?\n)", "", texts[split])) for split in SPLITS}
    assert unit == "documents" and [len(divided[split]) for split in SPLITS] == [28, 4, 8]
    expected = [document.strip() for document in wanted]
    assert sorted(d.strip() for split in SPLITS for d in divided[split]) == sorted(expected)
    for split in SPLITS:  # in the order of the text
        places = [expected.index(document.strip()) for document in divided[split]]
        assert places == sorted(places) and places != list(range(places[0], places[0] + len(places)))


def test_lines(tmp_path, divide):
    lines = [f"line {i}\n" for i in range(100)]
    unit, texts = divide(write(tmp_path / "a.txt", "".join(lines)), valid_fraction=0.1)
    assert unit == "lines"
    assert [len(texts[split].splitlines()) for split in SPLITS] == [85, 10, 5]
    assert sorted("".join(texts.values()).splitlines(True)) == sorted(lines)


def test_equal_lines_are_divided_and_equal_documents_are_not(tmp_path, divide):
    unit, texts = divide(write(tmp_path / "a.txt", "the cat\n" * 50))
    assert unit == "lines" and texts["test"] == 2 * "the cat\n"
    copies = ["copied \n", "copied\r\n", *(f"only {i}\n" for i in range(20)), "copied"]
    for seed in range(20):
        unit, texts = divide(write(tmp_path / "a.txt", "\n".join(copies)), seed=seed, test_fraction=0.3)
        assert unit == "documents" and sum("copied" in texts[split] for split in SPLITS) == 1


def test_a_text_that_is_hardly_one_of_documents_is_divided_by_lines(tmp_path, divide):
    title = "Title\n\nAuthor\n\n" + "".join(f"line {i}\n" for i in range(100))
    assert divide(write(tmp_path / "a.txt", title))[0] == "lines"
    assert divide(tmp_path / "a.txt", by="documents")[0] == "documents"
    assert divide(write(tmp_path / "a.txt", "one\n\ntwo\nthree\n"))[1].keys() == set(SPLITS)


def test_a_seed_gives_these_splits_everywhere(tmp_path, divide):
    """Every platform divides alike; another seed divides differently."""
    text = write(tmp_path / "a.txt", "\n".join(novel(20, lines=1)))
    held_out = {seed: re.findall(r"\d+", divide(text, test_fraction=0.2, seed=seed)[1]["test"]) for seed in (1, 2)}
    assert held_out == HELD_OUT
    other = write(tmp_path / "other" / "b.txt", "\r\n".join(novel(20, lines=1, end="\r\n")))  # the same documents
    assert re.findall(r"\d+", divide(other, test_fraction=0.2)[1]["test"]) == held_out[1]


def test_files_of_a_folder(tmp_path, divide):
    for i in range(30):
        write(tmp_path / "books" / f"{i % 3}" / f"{i}.TXT", f"\ufeffbook {i}\n\nchapter of {i}")
    write(tmp_path / "books" / "0" / "copy.txt", "book 3\n\nchapter of 3")
    for hidden in (".hidden.txt", ".git/a.txt", "notes.md"):
        write(tmp_path / "books" / hidden, "hidden")
    unit, texts = divide(tmp_path / "books", valid_fraction=0.1, test_fraction=0.1)
    numbers = [len(re.findall("book", texts[split])) for split in SPLITS]
    assert unit == "documents" and numbers in ([25, 3, 3], [24, 4, 3], [24, 3, 4])
    assert sum("book 3\n" in text for text in texts.values()) == 1
    for text in texts.values():
        assert re.fullmatch(r"(book (\d+)\n\nchapter of \2\n)+", text)
    unit, texts = divide(tmp_path / "books", by="lines")
    assert unit == "lines" and sum(text.count("\n") for text in texts.values()) == 62


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_column_of_a_table(tmp_path, divide, mark):
    with open(tmp_path / "a.csv", "w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file, delimiter=mark)
        rows.writerow(["id", "text", "stars"])
        rows.writerows([i, f'Row {i}, "é";\n\tsecond\r\n\r\nline\n', i % 5] for i in range(30))
        rows.writerow([30, "", 1])
        rows.writerow([31, "x" * 200_000, 1])
    limit = csv.field_size_limit()
    unit, texts = divide(tmp_path / "a.csv", column="text")
    lines = sorted("".join(texts.values()).splitlines())
    assert unit == "documents" and csv.field_size_limit() == limit
    assert lines == sorted(f'Row {i}, "é"; \tsecond line' for i in range(30)) + ["x" * 200_000]
    assert [text.count("\n") for text in texts.values()] == [27, 2, 2]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_that_is_not_utf_8(tmp_path, divide, encoding):
    text = "".join(f"Straße {i}\n" for i in range(20))
    path = write(tmp_path / "a.txt", text.encode(encoding))
    refused(divide, path, match=re.escape(f"{path}:1: not valid UTF-8. Convert the file"))
    split_text(path, tmp_path, any_bytes=True)
    written = b"".join((tmp_path / f"{split}.txt").read_bytes() for split in SPLITS)
    if encoding == "latin-1":
        assert sorted(written.decode(encoding).splitlines()) == sorted(text.splitlines())


@pytest.mark.parametrize(
    "name, contents, arguments, message",
    [
        ("a.txt", "", {}, "has 0 different lines, which cannot be divided"),
        ("a.txt", "\n \n\n", {}, "has 0 different lines"),
        ("a.txt", "one\ntwo\n", {}, "has 2 different lines"),
        ("a.txt", "one\n\none\n\ntwo\n", {"by": "documents"}, "has 2 different documents"),
        ("a.txt", "1\n2\n3\n4\n", {"valid_fraction": 0.5, "test_fraction": 0.45}, "has 4 different lines"),
        ("a.txt", "1\n2\n3\n", {"valid_fraction": 0.0}, "The fractions must be above 0"),
        ("a.txt", "1\n2\n3\n", {"valid_fraction": 0.5, "test_fraction": 0.5}, "The fractions must be above 0"),
        ("a.txt", "1\n2\n3\n", {"valid_fraction": float("nan")}, "The fractions must be above 0"),
        ("a.txt", "1\n2\n3\n", {"by": "words"}, "`by` must be one of lines, documents"),
        ("a.txt", "1\n" + "2" * 2000, {}, "a.txt:2: a line of more than 1,000 bytes"),
        ("a.csv", "id,text\n1,a\n", {}, "pass the name of a column of text. Received: columns id, text"),
        ("a.tsv", "id\ttext\n1\ta\n", {}, "Received: columns id, text"),
        ("a.csv", "id,text\n1,a\n", {"column": "body"}, "has no column 'body': pass one of id, text"),
        ("a.csv", "", {"column": "body"}, "has no column 'body'"),
        ("a.csv", "id,text\n1,a\n2,b,c\n", {"column": "text"}, "a.csv:3: expected 2 columns. Received: 3"),
        ("a.csv", 'id,text\n1,"a\n2,b\n', {"column": "text"}, "a.csv:3: not a table with quoted cells"),
        ("a.csv", b"id,text\n1,\xff\n", {"column": "text"}, "a.csv is not valid UTF-8"),
        ("a.csv", "id,text\n1," + "a" * 2000, {"column": "text"}, "a.csv:2: not a table with quoted cells"),
        ("b/c/a.md", "text", {}, "b/train.txt is missing, and there is no other .txt file"),
        ("b/a.txt", "text", {"column": "text"}, "`column` belongs to the file of a table"),
    ],
)
def test_what_cannot_be_divided_is_refused_in_one_line(tmp_path, monkeypatch, name, contents, arguments, message):
    monkeypatch.setattr(own_text, "_LONGEST", 1000)
    path = write(tmp_path / name, contents)
    source = tmp_path / "b" if name.startswith("b") else path
    refused(split_text, source, tmp_path, **arguments, match=re.escape(message))
    assert not (tmp_path / "train.txt").exists()
