"""The page as an ASGI application: its files, and the JSON API that docs/page.md describes."""

import asyncio
import contextlib
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from keras_adaptive.files import json_text
from trainers.page import bodies, comparison
from trainers.page.guard import Guard, answer, refuse
from trainers.page.served_run import summed
from trainers.page.turns import Turns

STATIC = Path(__file__).parent / "static"
LIMITS, AT_ONCE = bodies.Limits(), 32


class Page:
    """The routes of the page for `ServedRun` objects of different names. At most `at_once` requests compute at once."""

    def __init__(self, runs, limits=LIMITS, at_once=AT_ONCE):
        self.runs = {run.name: run for run in runs}
        self.limits = limits
        self.turns = Turns(at_once)
        self._fields = bodies.fields(limits)

    def app(self, hosts=()):
        """Returns the ASGI application, which accepts requests for this machine and for the names in `hosts`."""
        posts = {"score": self.score, "compare": self.compare, "generate": self.generate, "neighbors": self.neighbors}
        app = Starlette(
            routes=[
                Route("/api/runs", self.list_runs),
                Route("/api/runs/{name}/learning", self.learning),
                *(Route(f"/api/{name}", endpoint, methods=["POST"]) for name, endpoint in posts.items()),
                Route("/", self.index),
                Mount("/static", StaticFiles(directory=STATIC)),
            ],
            exception_handlers={
                HTTPException: _refused,
                ClientDisconnect: _left,
                **dict.fromkeys((ValueError, NotImplementedError, OSError), self._wrong),
                500: _failed,
            },
            lifespan=self._lifespan,
        )
        return Guard(app, hosts)

    def say(self, error):
        """Returns the message of an error in one line, with the names of runs in place of their paths."""
        message = " ".join(str(error).split())
        for run in self.runs.values():
            message = message.replace(str(run.folder.path), run.name)
        return message

    def warm_up(self):
        """Reads all models and runs every computation once, before the first request."""
        for run in self.runs.values():
            self.turns.wait_for(run.warm_up)

    async def _compile_rest(self):
        """Compiles, in turns between requests, what later requests may need."""
        for run in self.runs.values():
            async for _ in self.turns.steps(run.compile_rest()):
                pass

    async def index(self, request):
        return FileResponse(STATIC / "index.html")

    async def list_runs(self, request):
        runs = [await run_in_threadpool(run.describe) for run in self.runs.values()]
        for facts in runs:
            facts["problem"] = facts["problem"] and self.say(facts["problem"])
        return answer({"runs": runs, "limits": self.limits._asdict()})

    async def learning(self, request):
        run = self._run(request.path_params["name"])
        after = bodies.check_after(request.query_params.get("after", "0"))
        return answer(await run_in_threadpool(run.learn, after))

    async def score(self, request):
        values = await self._body(request, "score")
        run = self._run(values["run"])
        with self.turns.place():
            records = await self._all(request, run.score(values["text"], self.limits.words, values["alternatives"]))
        return answer(summed(records))

    async def compare(self, request):
        values = await self._body(request, "compare")
        runs = [self._run(name) for name in values["runs"]]
        with self.turns.place():
            records = [await self._all(request, run.score(values["text"], self.limits.words)) for run in runs]
            table = await self.turns.run(comparison.compare, runs, values["text"], records)
        return answer({"runs": values["runs"], **table})

    async def generate(self, request):
        values = await self._body(request, "generate")
        run = self._run(values.pop("run"))
        with contextlib.ExitStack() as place:
            place.enter_context(self.turns.place())
            tokens = self.turns.steps(run.generate(**values, most=self.limits.words))
            first = await anext(tokens)  # raises here, before a stream begins, if the request is refused
            return Lines(first, tokens, place.pop_all(), self)

    async def neighbors(self, request):
        values = await self._body(request, "neighbors")
        run = self._run(values["run"])
        with self.turns.place():
            found = await self._all(request, run.neighbors(values["words"], values["k"]))
        return answer({"neighbors": found})

    async def _body(self, request, route):
        body = await bodies.read_body(request, bodies.largest(self.limits))
        return bodies.parse(body, self._fields[route])

    async def _all(self, request, iterator):
        """Returns the items of an iterator, computed in turns, and stops if the client disconnects."""
        items = []
        async with contextlib.aclosing(self.turns.steps(iterator)) as steps:
            async for item in steps:
                items.append(item)
                if await request.is_disconnected():
                    raise ClientDisconnect
        return items

    def _run(self, name):
        if name not in self.runs:
            names = ", ".join(map(repr, self.runs))
            raise HTTPException(404, f"There is no run {name[:80]!r}: take one of {names}.")
        return self.runs[name]

    async def _wrong(self, request, error):
        return refuse(500 if isinstance(error, OSError) else 400, self.say(error))

    @contextlib.asynccontextmanager
    async def _lifespan(self, app):
        rest = asyncio.create_task(self._compile_rest())
        yield
        rest.cancel()
        await asyncio.wait([rest])
        self.turns.close()


class Lines(StreamingResponse):
    """A stream of JSON lines, which ends when the client disconnects.

    `others` is an asynchronous generator of the values after `first`; the context `place` is exited at the end.
    """

    media_type = "application/x-ndjson"

    def __init__(self, first, others, place, page):
        super().__init__(self._lines(first, others), headers={"cache-control": "no-store"})
        self.others = others
        self.place = place
        self.page = page

    async def _lines(self, first, others):
        yield json_text(first) + "\n"
        try:
            async for value in others:
                yield json_text(value) + "\n"
            yield json_text({"end": True}) + "\n"
        except Exception as error:  # the status was sent before
            yield json_text({"error": self.page.say(error)}) + "\n"

    async def __call__(self, scope, receive, send):
        async def send_aside(message):
            with self.page.turns.aside():  # a client that reads slowly must not hold a place
                await send(message)

        with self.place:
            try:
                await super().__call__(scope, receive, send_aside)
            finally:
                await self.others.aclose()


async def _refused(request, error):
    return refuse(error.status_code, error.detail, error.headers)


async def _left(request, error):
    return refuse(499, "The client has disconnected.")


async def _failed(request, error):
    return refuse(500, f"The server failed ({type(error).__name__}): see its output.")
