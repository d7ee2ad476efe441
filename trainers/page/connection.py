"""Connections of the server, which close when clients are too slow."""

from uvicorn.protocols.http.h11_impl import H11Protocol

from trainers.page import bodies

SECONDS = bodies.SECONDS + 5  # that a client may take; a late body is refused earlier
PROGRESS = 2**16  # bytes of a long answer that a client must read in this time


class Connection(H11Protocol):
    """An HTTP/1.1 connection that closes when its client is too slow.

    uvicorn limits only the time between two requests. This class also limits the time in which a client reads a long
    answer or sends the header of a request, counted from the beginning of the connection or the end of the last
    answer. If `limit_concurrency` connections are open, a new one replaces the connection that has waited longest for
    its client, so that silent clients shut nobody out.
    """

    _timer = None
    _unsent = 0  # number of bytes when the timer was set

    @property
    def _waits(self):
        """Whether the server waits for the client: for a request, its body, or until an answer is read."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    def connection_made(self, transport):
        super().connection_made(transport)
        self._watch()
        if len(self.connections) >= self.limit_concurrency:
            others = [other for other in self.connections if other is not self and other._timer]
            if others:
                min(others, key=lambda other: other._timer.when())._end()

    def connection_lost(self, exc):
        self._stop()
        super().connection_lost(exc)

    def handle_events(self):
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._watch()
        elif not self._waits:
            self._stop()

    def on_response_complete(self):
        self._watch()
        super().on_response_complete()

    def pause_writing(self):
        super().pause_writing()
        self._watch()

    def resume_writing(self):
        super().resume_writing()
        self._watch()

    def _watch(self):
        self._stop()
        if self._waits:
            self._unsent = self.transport.get_write_buffer_size()
            self._timer = self.loop.call_later(SECONDS, self._late)

    def _late(self):
        if 0 < self.transport.get_write_buffer_size() <= self._unsent - PROGRESS:
            self._watch()
        else:
            self._end()

    def _end(self):
        self._stop()
        self.transport.abort()

    def _stop(self):
        if self._timer:
            self._timer.cancel()
            self._timer = None
