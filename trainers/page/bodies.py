"""Reads request bodies from untrusted clients and checks every field."""

import asyncio
import json
import reprlib
from typing import NamedTuple

from starlette.exceptions import HTTPException

from keras_adaptive.fields import Field, number, or_null, whole

SECONDS = 20  # that a client may take to send a body
TOKEN = 1000  # characters of a token or a word, at most
WORDS = 100  # words in a request for neighbors, at most
MOST = 100  # alternatives or neighbors of a word, at most
LARGEST_SEED = 2**53 - 1  # the largest integer that JavaScript represents exactly


class Limits(NamedTuple):
    """Limits of a request."""

    characters: int = 20_000  # in a text
    words: int = 2_000  # between white space in a text; ten times as many tokens are allowed
    length: int = 500  # number of tokens to generate


def text_of(most, least=1):
    """Returns the field of a text."""
    what = f"a text of {least:,} to {most:,} characters"
    return Field(what, lambda value: isinstance(value, str) and least <= len(value) <= most)


def list_of(what, most, default=..., least=0):
    """Returns the field of a list of short strings."""
    short = lambda value: isinstance(value, str) and 0 < len(value) <= TOKEN  # noqa: E731
    holds = lambda value: isinstance(value, list) and least <= len(value) <= most and all(map(short, value))  # noqa: E731
    return Field(f"a list of {least:,} to {most:,} {what}, each of up to {TOKEN:,} characters", holds, default)


RUN = Field("the name of a run", lambda value: isinstance(value, str))
RUNS = Field(
    "the names of two runs",
    lambda value: isinstance(value, list) and len(value) == 2 and all(isinstance(name, str) for name in value),
)
TEMPERATURE = number(0, 100, 1.0)
TOP_P = Field("a number above 0, at most 1", lambda value: number(0, 1).holds(value) and value > 0)
ALTERNATIVES = whole(0, MOST, 10)


def fields(limits):
    """Returns the fields of each route: `{route: {name: Field}}`."""
    text = text_of(limits.characters)
    return {
        "score": {"run": RUN, "text": text, "alternatives": ALTERNATIVES},
        "compare": {"runs": RUNS, "text": text},
        "generate": {
            "run": RUN,
            "prompt": text_of(limits.characters, 0)._replace(default=""),
            "prefix": list_of("tokens", limits.words, ()),
            "length": whole(1, limits.length, min(50, limits.length)),
            "temperature": TEMPERATURE,
            "top_k": or_null(whole(1, 10**9, None)),
            "top_p": or_null(TOP_P),
            "seed": or_null(whole(0, LARGEST_SEED, None)),
            "alternatives": ALTERNATIVES,
        },
        "neighbors": {"run": RUN, "words": list_of("words", WORDS, least=1), "k": whole(1, MOST, 3)},
    }


def largest(limits):
    """Returns the maximum number of bytes in a body. JSON takes up to 12 for a character."""
    return 12 * (limits.characters + TOKEN * WORDS + 20 * limits.words) + 4096


async def read_body(request, most):
    """Returns the bytes of the body of a request, which must be declared as JSON, arrive in time and be short."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # forms of other sites cannot send this type
        raise HTTPException(400, f"`Content-Type` must be application/json. Received: Content-Type={kind[:80]!r}.")
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise HTTPException(413, f"The body must have at most {most:,} bytes: send a shorter text.")
    except TimeoutError:
        raise HTTPException(408, f"The body must arrive within {SECONDS} seconds: send it again.") from None
    return bytes(body)


def parse(body, expected):
    """Returns the fields of a JSON object, `{name: value}`, with defaults for missing fields.

    Lone surrogates become U+FFFD. An `HTTPException` names the field that is missing or wrong.
    """
    try:
        values = json.loads(body.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        reason = "too deep" if isinstance(error, RecursionError) else " ".join(str(error).split())[:200]
        raise HTTPException(400, f"The body must be JSON in UTF-8. Received: {reason}.") from None
    if not isinstance(values, dict):
        raise HTTPException(400, f"The body must be a JSON object. Received: a {type(values).__name__}.")
    if unknown := sorted(values.keys() - expected.keys()):
        raise HTTPException(400, f"Unknown field {reprlib.repr(unknown[0])}: leave it out.")
    return {name: _checked(name, values.get(name, field.default), field) for name, field in expected.items()}


def _checked(name, value, field):
    if value is ...:
        raise HTTPException(400, f"`{name}` is missing: it must be {field.expected}.")
    if not (field.holds(value) or value is field.default):
        status = 413 if isinstance(value, str) and field.holds(value[:1]) else 400
        raise HTTPException(status, f"`{name}` must be {field.expected}. Received: {name}={reprlib.repr(value)}.")
    return _clean(value)


def _clean(value):
    if isinstance(value, (list, tuple)):
        return [_clean(one) for one in value]
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def _refuse(constant):
    raise ValueError(f"{constant} is no number of JSON")


def check_after(text):
    """Returns the number of the query parameter `after`."""
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise HTTPException(400, f"`after` must be a whole number of updates. Received: after={reprlib.repr(text)}.")
    return int(text)
