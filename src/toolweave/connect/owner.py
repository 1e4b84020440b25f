"""The life of one connection: one task opens it, holds it, restarts it and closes it.

The only place in Toolweave that creates tasks. Scopes are entered and left in the owner's task;
everybody else only signals (PROTOCOL 3, "Connect"). Knows nothing of tools.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import anyio
import anyio.lowlevel

from toolweave.config import ServerConfig
from toolweave.connect.dial import Attempt, Line, Redial, open_session
from toolweave.connect.report import Report
from toolweave.connect.restart import RestartPolicy
from toolweave.connect.session import Peer
from toolweave.connect.shapes import as_object
from toolweave.connect.state import ConnectionState, StateChanged
from toolweave.errors import (
    AuthRequiredError,
    ConfigError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    ProtocolError,
    RequestTimeoutError,
    ServerError,
)

__all__ = ["Owner"]

_log = logging.getLogger("toolweave.connect")
_TEARDOWN_SECONDS = 6.0
_MAX_REDIALS = 3
_OVER = frozenset({ConnectionState.FAILED, ConnectionState.AUTH_REQUIRED, ConnectionState.CLOSED})


class Owner:
    """Owns one connection from the first dial to the last goodbye.

    `settle(line)` is awaited on every new line before it is offered; `attend(line)` runs beside it
    for as long as the line holds.
    """

    def __init__(
        self,
        config: ServerConfig,
        peer: Peer,
        *,
        settle: Callable[[Line], Awaitable[None]],
        attend: Callable[[Line], Coroutine[Any, Any, None]],
        on_state: Callable[[StateChanged], None],
        policy: RestartPolicy | None = None,
    ) -> None:
        self.config = config
        self.state = ConnectionState.IDLE
        self.error: Exception | None = None
        self.line: Line | None = None
        self.report = Report()
        self.restarts = 0
        self.peer = peer
        self._settle = settle
        self._attend = attend
        self._on_state = on_state
        self._policy = policy or RestartPolicy()
        self._attempt = _first_attempt(config)
        self._task: asyncio.Task[None] | None = None
        self._scope: anyio.CancelScope | None = None
        self._stopping = False
        self._opened: float | None = None
        self._ever_ready = False
        self._wake = anyio.Event()
        self._changed = anyio.Event()

    def start(self) -> None:
        """Begin to connect, in a task of its own; does nothing when it has begun."""
        if self._task is None and not self._stopping:
            self._set(ConnectionState.CONNECTING)
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"toolweave {self.config.name}")

    async def stop(self) -> None:
        """Close the connection, from any task; returns when it is closed, within a bound."""
        self._stopping = True
        task = self._task
        if task is None:
            self._set(ConnectionState.CLOSED)
            return
        self._wake.set()
        if self.line is None and self._scope is not None:
            self._scope.cancel()
        if task is asyncio.current_task():
            return
        with anyio.CancelScope(shield=True):
            _, pending = await asyncio.wait({task}, timeout=self.config.timeout.close + _TEARDOWN_SECONDS)
            if pending:
                task.cancel()
                await asyncio.wait({task}, timeout=_TEARDOWN_SECONDS)
        self._set(ConnectionState.CLOSED, self.error)

    async def usable(self, seconds: float) -> Line:
        """Return the open line, waiting at most `seconds` for it; a line that has just ended is not returned.

        Raises:
            ConnectionClosedError: It was closed.
            ServerError: It was given up; the cause as it was first met.
            RequestTimeoutError: It is still not there.
        """
        if self.line is not None and not self.line.session.wire.over:
            return self.line
        self.start()
        with anyio.move_on_after(seconds):
            while self.state not in _OVER:
                if self.line is not None and not self.line.session.wire.over:
                    return self.line
                await self._changed.wait()
            raise self._refusal()
        raise RequestTimeoutError(
            f"it is not connected after {seconds:g} s (state {self.state.value}"
            f"{f': {self.error}' if self.error else ''})",
            server=self.config.name,
            seconds=seconds,
        )

    def degrade(self, error: Exception) -> None:
        """Say that the line holds but its tools could not be listed."""
        self._set(ConnectionState.DEGRADED, error)

    def recover(self) -> None:
        """Say that a degraded line is whole again."""
        if self.state is ConnectionState.DEGRADED:
            self._set(ConnectionState.READY)

    def _refusal(self) -> Exception:
        if self.state is ConnectionState.CLOSED:
            return ConnectionClosedError("the connection is closed; connect again", server=self.config.name)
        return _again(self.error, self.config.name)

    async def _run(self) -> None:
        failures = 0
        try:
            while not self._stopping:
                held, error = await self._hold()
                self._wake = anyio.Event()  # the loss set the old one
                if self._stopping:
                    break
                self.error = error
                failures = self._policy.failures_after(failures, held) if held is not None else failures + 1
                delay = self._next_delay(failures, error)
                if delay is None:
                    state = ConnectionState.AUTH_REQUIRED if isinstance(error, AuthRequiredError) else None
                    self._set(state or ConnectionState.FAILED, error)
                    return
                self._set(ConnectionState.BACKOFF, error, retry_in=delay)
                with anyio.move_on_after(delay):
                    await self._wake.wait()
                if self._stopping:
                    break
                self.restarts += 1
                self._set(ConnectionState.CONNECTING, error)
        finally:
            self.line = None
            if self.state not in _OVER or self._stopping:
                self._set(ConnectionState.CLOSED, self.error)

    def _next_delay(self, failures: int, error: Exception) -> float | None:
        # a server that never came up is not tried for ever behind its user's back
        if (
            self.config.restart == "never"
            or not self._ever_ready
            or isinstance(error, (AuthRequiredError, ConfigError))
        ):
            return None
        return self._policy.delay(failures, random.random())  # noqa: S311 - spreads retries, guards nothing

    async def _hold(self) -> tuple[float | None, Exception]:
        """Connect and hold; return how many seconds it was ready, None for never, and why it ended."""
        deadline = anyio.current_time() + self.config.connect_timeout
        self.report = Report()
        self._opened = None
        attempt, refused = self._attempt, ""
        for _ in range(_MAX_REDIALS):
            try:
                await self._dial(attempt, deadline)
            except Exception as exc:  # boundary: whatever ends a connection is told to its users
                error = _sole_cause(exc)
                if isinstance(error, Redial):
                    _log.info("server %r: dialling again: %s", self.config.name, error)
                    refused = str(error) if error.attempt.transport != attempt.transport else ""
                    attempt = error.attempt
                    continue
                held = None if self._opened is None else time.monotonic() - self._opened
                return held, await self._explained(error, refused)
            break
        return None, ConnectError("it refused every way to connect", server=self.config.name)

    async def _dial(self, attempt: Attempt, deadline: float) -> None:
        seconds = self.config.connect_timeout
        with anyio.CancelScope(deadline=deadline) as self._scope:
            async with open_session(self.config, attempt, self.peer, self.report) as line:
                self._scope.deadline = math.inf
                self._attempt = _learned(attempt, line)
                await self._use(line)
                self._scope.deadline = anyio.current_time() + self.config.timeout.close + _TEARDOWN_SECONDS
        if self._scope.cancelled_caught and not self._stopping and self._opened is None:
            raise RequestTimeoutError(
                f"it did not finish connecting within {seconds:g} s; "
                f"raise timeout.connect if it is only slow{self._said()}",
                server=self.config.name,
                seconds=seconds,
            )

    def _said(self) -> str:
        """Return what the process said instead of speaking MCP, for the end of an error message."""
        process = self.report.process
        if process is None:
            return ""
        said = ""
        if process.junk_lines:
            said = f"; {process.junk_lines} lines of its output were no MCP, the last {process.last_junk!r}"
        if stderr := process.stderr_tail(5):
            said += f"; its last words on standard error:\n{stderr}"
        return self.config.redact(said)

    async def _use(self, line: Line) -> None:
        self._wake = anyio.Event()
        lost = False

        async def watch() -> None:
            nonlocal lost
            await line.session.wire.ended()
            lost = True
            self.line = None
            self._wake.set()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                tasks.start_soon(self._attend, line)
                await anyio.lowlevel.checkpoint()
                await self._settle(line)
                if not lost and not self._stopping:
                    self._opened, self._ever_ready = time.monotonic(), True
                    self.line = line
                    if self.state is not ConnectionState.DEGRADED:
                        self._set(ConnectionState.READY)
                    await self._wake.wait()
                tasks.cancel_scope.cancel()
        finally:
            self.line = None
        if lost and not self._stopping:
            raise ConnectionLostError("the connection ended", server=self.config.name, sent=False)

    async def _explained(self, error: Exception, refused: str) -> Exception:
        """Add to the error that ended the connection what the process left behind, or what was refused before."""
        name = self.config.name
        if isinstance(error, ConnectionLostError) and self.report.process is not None:
            code, stderr = await self.report.process.last_words()
            stderr = self.config.redact(stderr)
            if self._opened is None:
                text = f"its process ended while connecting; run {self.config.endpoint} by hand to see why"
                if not stderr:
                    text += self._said()
                return ConnectError(text, server=name, exit_code=code, stderr=stderr)
            text = "its process ended" if code is not None else error.message
            return ConnectionLostError(text, server=name, sent=False, exit_code=code, stderr=stderr)
        if isinstance(error, (ConnectError, TimeoutError, ConfigError)) or (
            self._opened is not None and isinstance(error, ServerError)
        ):
            return error
        text = error.message if isinstance(error, ServerError) else f"{type(error).__name__}: {error}"
        if refused:
            text = f"{refused}; nor does it answer as a server of the older HTTP+SSE transport: {text}"
        return ConnectError(text, server=name, status=_http_status(error))

    def _set(self, state: ConnectionState, error: Exception | None = None, *, retry_in: float | None = None) -> None:
        previous, self.state = self.state, state
        self.error = error
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        if state is not previous:
            self._on_state(
                StateChanged(server=self.config.name, state=state, previous=previous, error=error, retry_in=retry_in)
            )


def _first_attempt(config: ServerConfig) -> Attempt:
    if config.transport == "http" and config.legacy_sse == "only":
        return Attempt(transport="sse", era="legacy")
    return Attempt(transport=config.transport, era="legacy" if config.transport == "sse" else config.protocol)


def _learned(attempt: Attempt, line: Line) -> Attempt:
    """Return the attempt for the next time: a server keeps its era, so the probe is spared (PROTOCOL 1.3)."""
    if attempt.era != "auto" or line.session.agreement.modern:
        return attempt
    return Attempt(transport=attempt.transport, era="legacy")


def _http_status(error: Exception) -> int | None:
    data = as_object(error.data) if isinstance(error, ProtocolError) else None
    return data.get("http_status") if data is not None else None


def _sole_cause(exc: BaseException) -> Exception:
    """Return the first real error of the groups that task groups wrap it in."""
    while isinstance(exc, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", exc)
        leaves = [leaf for leaf in group.exceptions if not isinstance(leaf, asyncio.CancelledError)]
        exc = leaves[0] if leaves else group.exceptions[0]
    return exc if isinstance(exc, Exception) else ConnectionError(str(exc))


def _again(error: Exception | None, server: str) -> Exception:
    """Return the error of a connection that was given up, as a fresh exception for each caller."""
    if isinstance(error, (ConnectionLostError, ConnectError)):
        copy = type(error).__new__(type(error))
        copy.__dict__.update(error.__dict__)
        copy.args = error.args
        return copy
    if error is not None:
        return error
    return ConnectError("it is not connected", server=server)
