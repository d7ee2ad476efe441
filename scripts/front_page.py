"""Hooks for MkDocs, which put the reader on the front page: scripts, a runtime from npm's registry, an exported model.

A visitor's browser asks no other host for anything. The runtime and the model are kept in `.cache/front_page`. Without
a network, or without the packages of the export, they are left out, and the page says so in place of the reader.
"""

import base64
import gzip
import hashlib
import http.client
import io
import logging
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "front_page"
RUN = ROOT / "docs" / "models" / "books-small"
SHARED = ROOT / "trainers" / "page" / "static"  # with the local page
SHARED_NAMES = ("reading.css", "candidates.js", "dom.js", "scale.js", "tokens.js")
# Its program is the smallest: 2.8 MB as a gzip file. Those of later versions have up to 3.7 MB.
PACKAGE = "https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-1.21.1.tgz"
SHA512 = "be7zmmN9z8vCj7g6LISNGyeWH9pZjomDjBZ1PYtodoE5VCX7ebabVl3zJHTGjOABFsj2D+kNfy48L7NXNGGU4w=="
RUNTIME = {
    "ort.js": "ort.wasm.min.mjs",
    "glue.js": "ort-wasm-simd-threaded.mjs",
    "runtime.bin": "ort-wasm-simd-threaded.wasm",
}
LOG = logging.getLogger("mkdocs.front_page")


def on_files(files, config):
    """Adds the files of the reader to its scripts, which the theme has in its `custom_dir`."""
    for name, path in reader_files().items():
        files.append(File.generated(config, f"reader/{name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Gives the home page its template, which has room for the reader in place of the table of contents."""
    if page.file.src_uri == "index.md":
        page.meta |= {"template": "home.html", "hide": ["toc"]}


def on_page_content(html, page, config, files):
    """Lets the pictures of the home page, which are below the reader, wait until a visitor comes near them."""
    return html.replace("<img ", '<img loading="lazy" ') if page.file.src_uri == "index.md" else html


def reader_files(run=RUN, dtype="int8", cache=CACHE):
    """Returns the files of the reader, `{name: path}`, without those that cannot be made here."""
    found = {name: SHARED / name for name in SHARED_NAMES}
    for make, arguments in ((runtime, (cache,)), (model, (run, dtype, cache))):
        try:
            found |= make(*arguments)
        except (OSError, http.client.HTTPException, subprocess.CalledProcessError) as error:
            details = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
            LOG.info("The front page lacks its %s: %s", make.__name__, details[-1] if details else error)
    return found


def runtime(cache=CACHE):
    """Returns the files of ONNX Runtime, `{name: path}`, which the first call downloads.

    Raises:
        OSError: If the registry cannot be reached, or if the package is not the one with the known checksum.
    """
    paths = {name: cache / hashlib.sha256(SHA512.encode()).hexdigest()[:16] / name for name in RUNTIME}
    if not all(path.is_file() for path in paths.values()):
        with urllib.request.urlopen(PACKAGE, timeout=60) as response:
            content = response.read()
        if base64.b64encode(hashlib.sha512(content).digest()).decode() != SHA512:
            raise OSError(f"{PACKAGE} must have the SHA-512 of scripts/front_page.py. Received: {len(content)} bytes.")
        with tarfile.open(fileobj=io.BytesIO(content)) as package:
            for name, member in RUNTIME.items():
                write(paths[name], package.extractfile(f"package/dist/{member}").read())
    return paths


def model(run=RUN, dtype="int8", cache=CACHE):
    """Returns the files of the exported model of a run, `{name: path}`, which the first call exports.

    Raises:
        OSError: If there is no such run.
        subprocess.CalledProcessError: If the export fails, such as for the lack of a package.
    """
    sources = [run / "best.keras", run / "vocabulary.txt", *sorted((ROOT / "keras_adaptive" / "export").rglob("*.py"))]
    digest = hashlib.sha256(dtype.encode() + b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    paths = {name: cache / digest / name for name in ("model.bin", "words.bin")}
    if not all(path.is_file() for path in paths.values()):
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent, "export")
            options = [f"--run_dir={run}", f"--export_dir={folder}", "--format=onnx", f"--dtype={dtype}"]
            program = [sys.executable, "-m", "trainers.export", *options]
            subprocess.run(program, cwd=ROOT, check=True, capture_output=True)
            lines = (folder / "tokens.txt").read_text("utf-8").splitlines()
            write(paths["words.bin"], "\n".join(line.rsplit(maxsplit=1)[0] for line in lines).encode())
            write(paths["model.bin"], (folder / "log_probs.onnx").read_bytes())
    return paths


def write(path, content):
    """Writes a file; a `.bin` is a gzip file, under a name that no server takes for one and unpacks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".bin" else content)
    partial.replace(path)
