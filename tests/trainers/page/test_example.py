"""The example is a passage of the run's own valid text, and the model knows all of its words."""

import numpy as np
import pytest

from keras_adaptive.data import TextCodec, Vocabulary, prepare
from tests.support.served import write_run
from tests.support.tiny import language_model
from trainers.page.example import LONGEST, SHORTEST, example
from trainers.page.served_run import ServedRun

pytestmark = pytest.mark.once

CODEC = TextCodec(Vocabulary.from_counts({"word": 9, "other": 8, ".": 7}))
WORDS = TextCodec(Vocabulary.from_counts({letter: 9 for letter in " abcdefgh"}), "characters")


def ids(text, codec=CODEC):
    return codec.encode([token for line in text.split("\n") for token in (*codec.tokenize(line), "</s>")])


LINE = "word other word other word other word other ."
TEXTS = {
    "lines": ("\n".join([LINE] * 9), "\n".join([LINE] * 5)),
    "after an unknown word": ("\n".join([LINE, f"{LINE} never", *[LINE] * 9]), "\n".join([LINE] * 5)),
    "empty lines": ("\n\n".join(["word ."] * 99), "\n".join(["word ."] * 29)),
    "unknown words everywhere": (f"never word\n{LINE} never other\nnever", LINE),
    "few words": ("word .", "word ."),
    "nothing known": ("never never\nnever", ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_example_of_a_text(name):
    text, expected = TEXTS[name]
    assert example(CODEC, ids(text)) == expected
    assert len(expected) < SHORTEST or "never" not in expected


def test_a_long_line_is_cut_between_words():
    text = example(CODEC, ids("word " * 9000))
    assert set(text.split()) == {"word"} and LONGEST - 6 <= len(text) <= LONGEST
    assert example(WORDS, ids("abc " * 9000, WORDS)).endswith(" abc")


def test_the_example_of_a_run(tmp_path):
    """The words come from valid.txt; without the corpus there is no example."""
    for split, line in {"train": "a b c d e f", "valid": "b c new d a", "test": "f"}.items():
        (tmp_path / f"{split}.txt").write_text(f"{line}\n" * 3)
    corpus = prepare(tmp_path, tmp_path / "data")
    model = language_model(len(corpus.vocabulary))
    flags = f"--data_dir={tmp_path / 'data'}\n--length=8\n"
    run = write_run(tmp_path / "run", model, corpus.vocabulary, flags=flags)
    served = ServedRun(run.path, "run")
    served.warm_up()
    (tmp_path / "data").rename(tmp_path / "away")
    assert served.describe()["example"] is None
    again = ServedRun(run.path, "run")
    (tmp_path / "away").rename(tmp_path / "data")
    again.warm_up()
    facts = again.describe()
    assert facts["example"] == "b c" and facts["bands"] == [0, 5, len(corpus.vocabulary)] and not facts["reads_bytes"]
    np.testing.assert_array_equal(again.codec.vocabulary.unknown(facts["example"].split()), [])
