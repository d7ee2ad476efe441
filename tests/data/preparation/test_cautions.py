"""What `prepare` warns of, and what it does not."""

import warnings
from pathlib import Path

import pytest

from tests.support.text import prepared

pytestmark = pytest.mark.once

CORPORA = Path(__file__).parents[4] / "shared" / "data"
PHRASES = {
    "Thai": "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอนหรือวรรณยุกต์เช่นเดียวกับภาษาจีน สวัสดี",
    "Khmer": "ភាសាខ្មែរគឺជាភាសាកំណើតរបស់ជនជាតិខ្មែរនិងជាភាសាផ្លូវការរបស់ប្រទេសកម្ពុជា។",
    "Chinese": "北京是中华人民共和国的首都,位于华北平原北部,是全国的政治中心和文化中心。",
    "Japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
}
WORDS = {
    "German": "Donaudampfschifffahrtsgesellschaft ist ein langes Wort , die anderen sind kurz .",
    "Korean": "한국어를 배우는 학생들이 많아지고 있습니다 .",
    "Malayalam": "മലയാളം സംസാരിക്കുന്നവരുടെ എണ്ണം കൂടിവരുന്നു .",
    "tokenized": "Mr. Smith 's dog did n't bark , they said . It was 3.5 % of all , and the others ' dogs slept . " * 3,
    "code": "x = f ( a , b ) ; return [ x , y ] ; if x . y : pass",
}


def warned(folder, text, **how):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        prepared(folder, f"{text}\n" * 40, **how)
    return [str(warning.message) for warning in found]


@pytest.mark.parametrize("language", PHRASES)
@pytest.mark.parametrize("tokenizer", ["words", "whitespace"])
def test_words_that_are_phrases(tmp_path, language, tokenizer):
    text = PHRASES[language]
    (message,) = warned(tmp_path, text, tokenizer=tokenizer)
    assert "Most letters are in words of more than 20 letters, such as" in message and "--unit=characters" in message


@pytest.mark.parametrize(
    "how", [{"tokenizer": "characters"}, {"tokenizer": "bytes"}, {"tokenizer": "words", "subwords": 9}]
)
def test_units_that_need_no_spaces(tmp_path, how):
    assert warned(tmp_path, PHRASES["Thai"], **how) == []


@pytest.mark.parametrize("text", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("tokenizer", ["words", "whitespace"])
def test_texts_of_words(tmp_path, text, tokenizer):
    assert warned(tmp_path, text, tokenizer=tokenizer) == []


@pytest.mark.parametrize(
    "text", ["Der Mann ging über die Brücke. Dann kam er zurück.", "हिन्दी भाषा सरल है। मराठी भी।", "«Oui, monsieur»"]
)
def test_raw_text_that_is_split_at_white_space(tmp_path, text):
    (message,) = warned(tmp_path, text)
    assert "% of the words end with a mark, such as" in message and "--tokenizer=words" in message


@pytest.mark.parametrize("name", ["books", "wikitext-2"])
def test_tokenized_corpora(tmp_path, name):
    path = CORPORA / name / "valid.txt"
    if path.is_file():
        assert warned(tmp_path, path.read_text(encoding="utf-8")[:100_000]) == []
