"""What setup.cfg cannot say: the recipes of configs/ are data of the package `trainers`, and links of the README.

The README of a wheel is read where its relative links lead nowhere. They and the links to the project's pages start
from the address in the environment variable PROJECT_URL when the wheel is built. Without it, a link of the README
becomes its text, and a picture is left out.
"""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]*)\)")


def absolute(text, address):
    """Returns a text in Markdown whose relative links start from an address, or without them if there is none."""
    if address:
        return RELATIVE.sub(rf"\1[\2]({address.rstrip('/')}/\3)", text)
    return RELATIVE.sub(lambda link: "" if link[1] else link[2], text)


address = os.environ.get("PROJECT_URL", "").rstrip("/")
pages = {"Source": "", "Documentation": "/docs/layers.md", "Changelog": "/CHANGELOG.md"}

setup(
    project_urls={name: address + page for name, page in pages.items()} if address else {},
    long_description=absolute((Path(__file__).parent / "README.md").read_text(encoding="utf-8"), address),
    long_description_content_type="text/markdown",
    packages=[*find_packages(include=["keras_adaptive*", "trainers*"]), "trainers.configs"],
    package_dir={"trainers.configs": "configs"},
    package_data={
        "keras_adaptive": ["py.typed"],
        "trainers": ["page/static/*"],
        "trainers.configs": ["*.flags", "*/*.flags"],
    },
)
