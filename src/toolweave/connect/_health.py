"""Liveness checks after an unanswered call: a ping, and the end of a dead session.

Runs beside the calls of one connection. Adds no cost to a call: it reads the timeouts that calls have anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import anyio

from toolweave._value import Value
from toolweave.config import ServerConfig
from toolweave.connect._transports import OpenSession
from toolweave.errors import ConnectionLostError, ServerError
from toolweave.protocol import methods

_PING_SECONDS = 10.0
_TICK_SECONDS = 5.0


class PendingRequest(Protocol):
    """A request under way, with the time of its last sign of life."""

    @property
    def since(self) -> float:
        """The time of its last sign of life, or of sending, on the event loop's clock."""
        ...


class Silent(Value, frozen=True, kw_only=True):
    """The event `"silence"`: a request waits, and nothing has been received from its server for some time.

    Attributes:
        server: The connection's name.
        seconds: The time since anything was received; the event repeats every 5 s.
        waiting: The number of waiting requests.
    """

    server: str
    seconds: float
    waiting: int


class Health:
    """The liveness check of one connection; `run_background` runs while its session is open.

    A call that timed out calls `suspect`. Then the server is pinged, and when that stays unanswered too the
    conversation is ended as lost, so that the connection is restarted. Two things prevent that: any bytes received
    since, and calls that were under way when the ping was sent and whose own bound has not passed, since a server
    that does one thing at a time may be busy with them.
    """

    def __init__(
        self,
        config: ServerConfig,
        waits: Callable[[], Collection[PendingRequest]],
        on_silence: Callable[[Silent], None],
    ) -> None:
        self._config = config
        self._waits = waits
        self._on_silence = on_silence
        self._suspected = anyio.Event()
        self._received = (0, 0.0)
        self.ping_seconds = min(_PING_SECONDS, config.timeout.read)

    def suspect(self) -> None:
        """Report that a call timed out."""
        if self._config.restart != "never":
            self._suspected.set()

    def silent_for(self, session: OpenSession) -> float:
        """Return the seconds a request has waited without anything received; 0 when none waits."""
        # The number of received pieces is compared at each look, which costs a message nothing.
        now = anyio.current_time()
        pieces = _pieces(session)
        if pieces != self._received[0]:
            self._received = (pieces, now)
        since = min((one.since for one in self._waits()), default=now)
        return max(0.0, now - max(since, self._received[1]))

    async def run_background(self, session: OpenSession) -> None:
        """Ping after a suspected failure; report silence.

        Raises:
            ConnectionLostError: The server does not answer any more.
        """
        self._received = (_pieces(session), 0.0)
        while True:
            # A call that times out during the ping below sets the old event: the ping has its answer already.
            self._suspected = anyio.Event()
            while not self._suspected.is_set():
                with anyio.move_on_after(_TICK_SECONDS):
                    await self._suspected.wait()
                self._report_silence(session)
            if not await self._answers(session):
                raise ConnectionLostError(
                    f"it answered neither a call within its bound nor a ping within {self.ping_seconds:g} s",
                    server=self._config.name,
                    sent=False,
                )

    def _report_silence(self, session: OpenSession) -> None:
        seconds = self.silent_for(session)
        if seconds >= _TICK_SECONDS:
            self._on_silence(Silent(server=self._config.name, seconds=seconds, waiting=len(self._waits())))

    async def _answers(self, session: OpenSession) -> bool:
        """Ping; return whether anything is received, waiting for other calls that the server may be busy with."""
        before = _pieces(session)
        others = set(self._waits())
        answered = anyio.Event()

        async def ping() -> None:
            try:  # the stateless revisions have no ping; every server answers this
                await session.conversation.request(
                    methods.SERVER_DISCOVER if session.conversation.agreement.modern else methods.PING
                )
            except ServerError:
                pass  # a refusal is an answer, and the end is noticed by itself
            answered.set()

        alive = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ping)
            while True:
                with anyio.move_on_after(self.ping_seconds):
                    await answered.wait()
                alive = answered.is_set() or _pieces(session) != before
                # Each of the other calls ends by its own bound, and so does this loop.
                is_excused = not others.isdisjoint(self._waits())
                if alive or not is_excused:
                    tasks.cancel_scope.cancel()
                    break
        return alive


def _pieces(session: OpenSession) -> int:
    if session.process is not None:
        return session.process.pieces
    return 0
