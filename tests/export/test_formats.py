"""The table of formats and parts in the documentation."""

import re
from pathlib import Path

import pytest

from tests.support.exported_models import REFUSED, REFUSED_BY_LITERT
from trainers.experiments.parts import PARTS

pytestmark = pytest.mark.once

TABLE = Path(__file__).parents[2] / "docs" / "exports.md"


def test_the_table_of_the_documentation_lists_every_part():
    pattern = r"^\| `--(input|body|output)=(\w+)` \| (\w+) \| (\w+).*? \| (\w+).*? \| (\w+)"
    rows = re.findall(pattern, TABLE.read_text(encoding="utf-8"), re.M)
    parts = [(role, name) for role in ("input", "body", "output") for name in PARTS[role]]
    of_layers = ["no" if " ".join(part) in REFUSED else "yes" for part in parts]
    of_steps = ["no" if " ".join(part) in REFUSED_BY_LITERT else "yes" for part in parts]
    assert rows == [(*part, "yes", works, works, steps) for part, works, steps in zip(parts, of_layers, of_steps)]
