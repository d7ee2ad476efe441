"""The example is a passage of the run's own valid text, and the model knows all of its words."""

import numpy as np
import pytest

from keras_adaptive.data import TextCodec, Vocabulary
from tests.support.served import write_run
from tests.support.text import prepared
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
    texts = {"train": 3 * "a b c d e f\n", "valid": 3 * "b c new d a\n"}
    corpus = prepared(tmp_path, 3 * "f\n", **texts, min_count=3)
    model = language_model(len(corpus.vocabulary))
    flags = f"--data_dir={corpus.data_dir}\n--length=8\n"
    run = write_run(tmp_path / "run", model, corpus.vocabulary, flags=flags)
    served = ServedRun(run.path, "run")
    served.warm_up()
    corpus.data_dir.rename(tmp_path / "away")
    assert served.describe()["example"] is None
    again = ServedRun(run.path, "run")
    (tmp_path / "away").rename(corpus.data_dir)
    again.warm_up()
    facts = again.describe()
    assert facts["example"] == "b c" and facts["bands"] == [0, 5, len(corpus.vocabulary)] and not facts["reads_bytes"]
    np.testing.assert_array_equal(again.codec.vocabulary.unknown(facts["example"].split()), [])
