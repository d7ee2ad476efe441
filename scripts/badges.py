"""Draws docs/images/badges.svg from setup.cfg and the version of the package: python -m scripts.badges"""

import configparser
import html
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATH = ROOT / "docs" / "images" / "badges.svg"
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
LETTER, HEIGHT, MARGIN, GAP = 6.6, 20, 7, 6  # width of a letter; height, margins and distance of badges


def facts():
    """Returns pairs `(name, value)` of what the package needs and is."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    source = (ROOT / "keras_adaptive" / "__init__.py").read_text(encoding="utf-8")
    options, extras = config["options"], config["options.extras_require"]
    (keras,) = (line[5:].strip() for line in options["install_requires"].splitlines() if line.startswith("keras "))
    return [
        ("version", re.search(r'^__version__ = "(.+)"', source, re.MULTILINE)[1]),
        ("Python", options["python_requires"]),
        ("Keras", keras),
        ("backends", ", ".join(BACKENDS[name] for name in BACKENDS if name in extras)),
        ("license", config["metadata"]["license"]),
    ]


def drawn(pairs):
    """Returns an SVG of one badge for each pair, side by side."""
    parts, left = [], 0.0
    for pair in pairs:
        for text, color in zip(pair, ("#4a4a4a", "#1f6f8b")):
            text = re.sub(">= *", "≥ ", text)
            width = LETTER * len(text) + 2 * MARGIN
            parts.append(f'<rect x="{left:.1f}" width="{width:.1f}" height="{HEIGHT}" fill="{color}"/>')
            parts.append(f'<text fill="#fff" x="{left + width / 2:.1f}" y="14">{html.escape(text)}</text>')
            left += width
        left += GAP
    label = ", ".join(f"{name} {value}" for name, value in pairs)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{left - GAP:.0f}" height="{HEIGHT}" role="img"'
    style = 'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="11" text-anchor="middle"'
    return "\n".join([f'{head} aria-label="{html.escape(label)}" {style}>', *parts, "</svg>\n"])


if __name__ == "__main__":
    PATH.write_text(drawn(facts()), encoding="utf-8")
