"""The pages of the documentation and their Python examples, which run with smaller sizes."""

import re
from pathlib import Path

from scripts import figures

ROOT = Path(__file__).parents[2]
PAGES = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in figures.PAGES}
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
SIZES = {"1_000_000": "3_000", "100_000": "900", "50_000": "2_000", "16_000": "400", "10_000": "300", "4_000": "100"}
SIZES |= {"1_000": "40", "size=(256,": "size=(64,", "size=(64, 33)": "size=(16, 17)", "num_blocks=2": "num_blocks=1"}
SIZES |= {"262_144": "3_000", "count=500": "count=40", "(64, 32)": "(16, 16)", "512": "32"}


def examples(page):
    return PYTHON.findall(PAGES[page])


def run(page, number, folder, monkeypatch, names=None):
    """Runs an example of a page in a folder, with smaller sizes and the names of an earlier one; returns its names."""
    pattern = "|".join(re.escape(size) for size in sorted(SIZES, key=len, reverse=True))
    code = re.sub(pattern, lambda match: SIZES[match[0]], examples(page)[number])
    monkeypatch.chdir(folder)
    names = {} if names is None else names
    exec(compile(code, f"{page}, example {number + 1}", "exec"), names)
    return names
