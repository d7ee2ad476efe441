import glob
import http.client
import json
import math
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from keras_adaptive.files import read_text, writing

_CHUNK = 1 << 20  # bytes in memory at a time
_TIMEOUT = 60  # seconds without an answer after which a server counts as down
_LEAST = 1000  # smallest average speed over these seconds, in bytes per second
_REPORT_EVERY = 5  # seconds between two lines of progress
_HEADERS = {"User-Agent": "keras-adaptive", "Accept-Encoding": "identity"}  # some servers refuse the name of urllib


def download(url, path, report=print, most=math.inf):
    """Downloads a file to `path`, which appears only when it is complete, and returns the path.

    Until then, its name ends in the name of the server and `.partial`, and a note in the same folder records its
    address, version and size. If the connection breaks, the next call requests only the rest. It starts again if the
    file has changed on the server, or if the server gives no version or cannot send parts. An OSError is raised if the
    server cannot be reached, refuses the request, stops before the end, sends less than a kilobyte per second, or sends
    more than `most` bytes. `report` gets a line of progress every few seconds.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{urlsplit(url).hostname}.partial")
    try:
        _transfer(url, partial, report, most)
    except http.client.HTTPException as error:
        raise OSError(f"not a usable answer: {error!r}") from error
    partial.replace(path)
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.partial*"):  # the note, and other servers' files
        left.unlink()
    return path


def _transfer(url, partial, report, most):
    """Completes the partial file, continuing at its end if that is safe."""
    note, have = _resumable(url, partial)
    if have and have == note["size"]:
        return
    part = {"Range": f"bytes={have}-", "If-Range": note["version"]} if have else {}
    request = urllib.request.Request(url, headers=_HEADERS | part)
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
        resumed = have and response.status == http.client.PARTIAL_CONTENT
        if resumed and not _continues(response.headers, note, have):
            partial.unlink()
            return _transfer(url, partial, report, most)
        if not resumed:
            note, have = _start(url, partial, response.headers), 0
        have = _append(response, partial, have, note["size"], report, most)
    if note["size"] not in (None, have):
        raise OSError(f"stopped after {have:,} of {note['size']:,} bytes; the next call resumes from there")


def _resumable(url, partial):
    """Returns the note and the size of a partial file that can be continued, else (None, 0)."""
    try:
        note = json.loads(read_text(_note_path(partial)))
        have = partial.stat().st_size
    except (OSError, ValueError):
        return None, 0
    safe = note["url"] == url and note["version"] and note["size"] and have <= note["size"]
    return (note, have) if safe else (None, 0)


def _continues(headers, note, have):
    """Returns whether an answer is the rest of the same version. Not every server supports If-Range."""
    rest = f"bytes {have}-{note['size'] - 1}/{note['size']}"
    return headers["Content-Range"] == rest and _version(headers) in (None, note["version"])


def _start(url, partial, headers):
    """Empties the partial file, and then writes the note about its contents."""
    partial.write_bytes(b"")
    size = headers["Content-Length"]
    note = {"url": url, "version": _version(headers), "size": int(size) if size else None}
    _note_path(partial).write_text(json.dumps(note), encoding="utf-8")
    return note


def _version(headers):
    """Returns the identifier of a version of a file, or None. A weak ETag does not identify the bytes."""
    etag = headers["ETag"]
    return etag if etag and not etag.startswith("W/") else headers["Last-Modified"]


def _append(response, partial, have, size, report, most):
    """Appends the bytes that the server sends to the partial file, and returns its new size."""
    reported = measured = time.monotonic()
    had = have
    with open(partial, "ab") as file:
        while chunk := response.read1(_CHUNK):
            with writing(partial):
                file.write(chunk)
                file.flush()
            have += len(chunk)
            if max(have, size or 0) > most:
                file.truncate(0)
                raise OSError(f"{max(have, size or 0):,} bytes, where at most {most:,} were expected")
            now = time.monotonic()
            if now - reported >= _REPORT_EVERY:
                reported = now
                report(f"{have / 1e6:,.1f} MB" + (f" of {size / 1e6:,.1f} MB" if size else ""))
            if now - measured >= _TIMEOUT:
                if have - had < _LEAST * (now - measured):
                    raise OSError(f"less than {_LEAST} bytes a second; the next call resumes after {have:,} bytes")
                measured, had = now, have
    return have


def _note_path(partial):
    return partial.with_name(f"{partial.name}.json")
