"""Protects the page from other sites: which hosts may send requests, and what a browser may do with responses."""

import ipaddress
import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from keras_adaptive.files import json_text

HEADERS = {
    # Only the page's own files: no inline script, no other host, no frame around the page.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/?#@\s]+)(?::[0-9]{1,5})?")


class Guard:
    """ASGI middleware that refuses requests for other hosts and from other sites, and adds `HEADERS`.

    A hostile site whose name resolves to this machine's address (DNS rebinding) sends its own name as the host.
    Therefore only addresses, `localhost` and the names in `hosts`, in lower case, are allowed.
    """

    def __init__(self, app, hosts=()):
        self.app = app
        self.hosts = {"localhost", *hosts}

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def send_with_headers(message):
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self.is_allowed(host):
            message = "This host is not served: open the page by its address, or pass --host_names."
            return await refuse(400, message)(scope, receive, send_with_headers)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            message = "Requests from other sites are refused: open the page itself."
            return await refuse(403, message)(scope, receive, send_with_headers)
        await self.app(scope, receive, send_with_headers)

    def is_allowed(self, host):
        """Returns whether a `Host` header names this server."""
        if not (match := HOST.fullmatch(host)):
            return False
        name = match[1].strip("[]").lower()
        try:
            ipaddress.ip_address(name)
            return True
        except ValueError:
            return name in self.hosts


def refuse(status, message, headers=None):
    """Returns the response of an error."""
    return answer({"error": message}, status, headers)


def answer(value, status=200, headers=None):
    """Returns a JSON response, with null in place of numbers that are not finite."""
    return Response(json_text(value), status, {"cache-control": "no-store", **(headers or {})}, "application/json")
