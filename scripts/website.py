"""Hooks for MkDocs, which build the site of the documentation, and an extension for docstrings.

README.md is the home page. Files outside of docs/ that pages link to become part of the site. Every public sub-package
has a page with the docstrings of its public names. The sources are parsed, never imported.
"""

import ast
import re
from pathlib import Path

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
HOME = "README.md"
LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")
PROMPTS = re.compile(r"^( *)>>> .*(?:\n\1\S.*|\n\1 .*)*", re.MULTILINE)
CALL_ARGUMENTS = re.compile(r"^( *)Call arguments:$", re.MULTILINE)


def public_names(package):
    """Returns the functions and classes that the `__init__.py` of a package makes public, in their order."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [alias.asname for node in imports for alias in node.names if alias.asname and not alias.name.isupper()]


def linked_files(markdown, folder):
    """Yields the files that a page in `folder` links to."""
    for path, _ in LINK.findall(markdown):
        if (folder / path).is_file():
            yield (folder / path).resolve()


def on_files(files, config):
    """Adds the home page, the pages of the API, and what pages link to outside of docs/."""
    pages = {ROOT / HOME, *(Path(file.abs_src_path) for file in files.documentation_pages())}
    found = {file for page in pages for file in linked_files(page.read_text(encoding="utf-8"), page.parent)}
    for file in sorted(found - {ROOT / HOME}):
        if not file.is_relative_to(config.docs_dir):
            files.append(File.generated(config, file.relative_to(ROOT).as_posix(), abs_src_path=str(file)))
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / HOME)))
    for package in sorted((ROOT / "keras_adaptive").iterdir()):
        uri = f"api/{package.name}.md"
        if uri in str(config.nav):
            path = f"keras_adaptive.{package.name}"
            content = "".join(f"::: {path}.{name}\n\n" for name in public_names(package))
            files.append(File.generated(config, uri, content=f"# `{path}`\n\n{content}"))
    return files


def on_page_markdown(markdown, page, config, files):
    """Points links to the places of the files in the site."""
    folder = (ROOT / HOME).parent if page.file.src_uri == "index.md" else Path(page.file.abs_src_path or ROOT).parent
    return LINK.sub(lambda link: f"]({place(link[1], folder, Path(config.docs_dir))}{link[2] or ''})", markdown)


def place(path, folder, docs):
    """Returns where a link from a page in `folder` leads to in the site."""
    file = (folder / path).resolve()
    if not file.is_file():
        return path
    if file == ROOT / HOME:
        return "index.md"
    return file.relative_to(docs if file.is_relative_to(docs) else ROOT).as_posix()


class KerasDocstrings(griffe.Extension):
    """Turns what Keras' docstrings have and Google's lack into what griffe knows."""

    def on_object(self, *, obj, **kwargs):
        if obj.docstring:
            text = PROMPTS.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)
            obj.docstring.value = CALL_ARGUMENTS.sub(r"\1Other Parameters: Call arguments", text)
