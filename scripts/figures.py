"""Writes the tables of figures in README.md and docs/ from the files in scripts/results.

    python -m scripts.figures

A page marks the place of a table by `<!-- figures: NAME -->` and `<!-- /figures -->`; `scripts.tables` has a function
for every name. Run the program after a benchmark has written its results.
"""

import re
from pathlib import Path

from absl import app

from scripts.tables import TABLES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PLACE = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- /figures -->)", re.DOTALL)


def filled(text):
    """Returns a page with all of its tables made from the result files."""
    return PLACE.sub(lambda place: place[1] + TABLES[place[2]]() + place[3], text)


def main(_):
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if filled(text) != text:
            page.write_text(filled(text), encoding="utf-8")
            print(f"Wrote {page.relative_to(ROOT)}.")


if __name__ == "__main__":
    app.run(main)
