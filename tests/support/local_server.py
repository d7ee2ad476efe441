"""A web server on this machine whose files can go wrong in the ways that files on the web do."""

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class File:
    body: bytes
    etag: str | None = '"1"'
    modified: str | None = None
    stops_after: int | None = None  # bytes until the connection closes
    has_length: bool = True
    knows_ranges: bool = True
    heeds_if_range: bool = True
    hangs: bool = False
    talks_nonsense: bool = False
    drips: bool = False  # a few bytes at a time


class LocalServer:
    """`files` maps a path to a `File`; `requests` lists (path, headers) and `sent` the bytes of each body."""

    def __init__(self):
        self.files, self.requests, self.sent = {}, [], []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._closing = threading.Event()
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def add(self, path, body, **how):
        """Returns the address of a new file, or of a new version of it."""
        self.files[path] = File(body, **how)
        return self.address(path)

    def address(self, path):
        return f"http://127.0.0.1:{self._server.server_port}/{path}"

    def wait(self, seconds=10):
        return self._closing.wait(seconds)


def _handler(site):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.lstrip("/")
            site.requests.append((path, dict(self.headers)))
            if path not in site.files:
                self.send_error(404)
                return
            file = site.files[path]
            if file.hangs:
                site.wait()
            elif file.talks_nonsense:
                self.wfile.write(b"nonsense\r\n\r\n")
            else:
                self._send(file)

        def _send(self, file):
            start = self._start(file)
            if start >= len(file.body) > 0:
                self.send_error(416)
                return
            body = file.body[start:]
            self.send_response(206 if start else 200)
            for name, value in (("ETag", file.etag), ("Last-Modified", file.modified)):
                if value:
                    self.send_header(name, value)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(file.body) - 1}/{len(file.body)}")
            if file.has_length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            body = body[: file.stops_after]
            site.sent.append(len(body))
            for place in range(0, len(body), 10) if file.drips else ():
                self.wfile.write(body[place : place + 10])
                self.wfile.flush()
                if site.wait(0.05):
                    return
            if not file.drips:
                self.wfile.write(body)

        def _start(self, file):
            """The first byte to send: a part is sent only of the version that was asked for."""
            asked, version = self.headers["Range"], self.headers["If-Range"]
            same = version in (None, file.etag, file.modified) or not file.heeds_if_range
            return int(asked.removeprefix("bytes=").rstrip("-")) if asked and file.knows_ranges and same else 0

        def log_message(self, *_):
            pass

    return Handler
