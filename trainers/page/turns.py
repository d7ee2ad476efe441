"""Runs the computations of all requests in one thread, in turns."""

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

from starlette.exceptions import HTTPException

END = object()


class Turns:
    """Runs all computation in one thread, one step of a request at a time.

    A long request therefore delays a short one by a step only, and no two threads use a model. At most `most` requests
    take turns. More are refused with status 503.
    """

    def __init__(self, most):
        self.most = most
        self.requests = 0
        self._thread = ThreadPoolExecutor(1, "models")

    def wait_for(self, function, *arguments):
        """Runs a function in the thread for a caller outside of the event loop, and returns its result."""
        return self._thread.submit(function, *arguments).result()

    @contextlib.contextmanager
    def place(self):
        """Takes one of the places until the block ends."""
        if self.requests >= self.most:
            message = f"The server computes for {self.most} requests at once and takes no more. Try again in a moment."
            raise HTTPException(503, message, {"Retry-After": "1"})
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextlib.contextmanager
    def aside(self):
        """Frees the place of a request until the block ends."""
        self.requests -= 1
        try:
            yield
        finally:
            self.requests += 1

    async def run(self, function, *arguments):
        """Runs a function in a turn and returns its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def steps(self, iterator):
        """Yields the items of an iterator, each computed in a turn. Closing this generator closes the iterator."""
        try:
            while (item := await self.run(next, iterator, END)) is not END:
                yield item
        finally:
            self._thread.submit(iterator.close)  # after the step that may be running

    def close(self):
        """Ends the thread after its current step."""
        self._thread.shutdown(wait=False, cancel_futures=True)
