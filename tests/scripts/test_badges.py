import pytest

from scripts import badges


@pytest.mark.once
def test_the_badges_are_true():
    assert badges.PATH.read_text(encoding="utf-8") == badges.drawn(badges.facts()), "Run python -m scripts.badges."
