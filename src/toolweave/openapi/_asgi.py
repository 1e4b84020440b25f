"""Requests to an ASGI application in this process, without a socket, and its lifespan around them."""

# One task, the owner, runs the lifespan from `start` to `stop`. Its inner task group runs each request, because work
# that an application does after its answer must end before the lifespan does. The caller of a request reads the answer
# from a bounded stream: an application that writes faster than its answer is read waits, as it would for a socket. If
# the caller stops reading, or is cancelled, the cancel scope of the request ends the application's work on it.

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import anyio
import anyio.abc

from toolweave.errors import ConfigError, ErrorKind, ToolError
from toolweave.http import TransportError, origin_of
from toolweave.openapi._sender import ApiAnswer, ApiRequest, redirected

_Message: TypeAlias = MutableMapping[str, Any]
AsgiApp: TypeAlias = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]],
    Awaitable[None],
]
"""An application of ASGI 3."""

_log = logging.getLogger("toolweave.openapi")
# The number of pieces of a body that wait to be read. The application waits when there are more.
_PIECES = 16
_SPEC = {"version": "3.0", "spec_version": "2.3"}
_LIFESPAN_SECONDS = 30.0
_END_SECONDS = 5.0


class AsgiSender:
    """Sends requests to an application, between `start` and `stop`."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._origin = ""
        self._state: dict[str, Any] = {}
        self._owner: asyncio.Task[None] | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._ending = anyio.Event()

    async def start(self) -> None:
        """Run the lifespan's startup.

        Raises:
            ConfigError: It fails, or takes too long.
        """
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ending = anyio.Event()
        # not a task group of the caller: the first to enter the toolset does not have to be the last to leave it
        self._owner = asyncio.get_running_loop().create_task(self._run(started), name="lifespan of an ASGI app")
        try:
            with anyio.fail_after(_LIFESPAN_SECONDS):
                await started
        except BaseException as exc:
            await self.stop()
            if isinstance(exc, TimeoutError):
                raise ConfigError(f"the application did not start within {_LIFESPAN_SECONDS:g} s") from None
            raise

    async def stop(self) -> None:
        """Run the lifespan's shutdown, within a bound."""
        owner = self._owner
        self._owner = None
        self._ending.set()
        if owner is not None:
            with anyio.CancelScope(shield=True):
                # Both waits are bounded: an application that ignores its cancellation must not keep the caller.
                await asyncio.wait([owner], timeout=_LIFESPAN_SECONDS)
                owner.cancel()
                await asyncio.wait([owner], timeout=_END_SECONDS)

    async def send(self, request: ApiRequest) -> tuple[ApiAnswer, str]:
        """Return the answer of the application, through redirects, and the URL that gave it."""
        return await redirected(self._once, request)

    def came_through(self, url: str) -> str:
        """Return nothing: no proxy is in a process."""
        return ""

    async def _once(self, request: ApiRequest) -> ApiAnswer:
        origin = origin_of(request.url)
        if not self._origin:
            self._origin = origin
        if self._group is None:
            raise ToolError("the application is not running", kind=ErrorKind.NOT_SENT)
        if origin != self._origin:
            raise ToolError("the application redirects to another server", kind=ErrorKind.NOT_SENT)
        exchange = _Exchange(request)
        # Each request gets a shallow copy of the lifespan's state, as ASGI requires.
        self._group.start_soon(exchange.run, self._app, dict(self._state))
        try:
            await exchange.begun.wait()
        except BaseException:
            # The caller was cancelled, which the application sees as the disconnection of a client.
            exchange.close()
            raise
        if exchange.failure is not None and not exchange.status:
            raise exchange.failure
        return exchange

    async def _run(self, started: asyncio.Future[None]) -> None:
        send, receive = anyio.create_memory_object_stream[_Message](math.inf)
        try:
            async with anyio.create_task_group() as life:
                shut = anyio.Event()
                life.start_soon(self._lifespan, receive, started, shut)
                async with anyio.create_task_group() as self._group:
                    await send.send({"type": "lifespan.startup"})
                    await self._ending.wait()
                    # work that the application does after its answers needs what the lifespan made
                    self._group.cancel_scope.deadline = anyio.current_time() + _END_SECONDS
                await send.send({"type": "lifespan.shutdown"})
                with anyio.move_on_after(_END_SECONDS):
                    await shut.wait()
                life.cancel_scope.cancel()
        finally:
            self._group = None
            send.close()
            receive.close()
            if not started.done():
                started.cancel()

    async def _lifespan(
        self, receive: anyio.abc.ObjectReceiveStream[_Message], started: asyncio.Future[None], shut: anyio.Event
    ) -> None:
        async def on_message(message: _Message) -> None:
            # `start` was cancelled, or has its result
            if started.done():
                return
            if message["type"] == "lifespan.startup.complete":
                started.set_result(None)
            elif message["type"] == "lifespan.startup.failed":
                started.set_exception(ConfigError(f"the application did not start: {message.get('message', '')}"))

        try:
            await self._app({"type": "lifespan", "asgi": _SPEC, "state": self._state}, receive.receive, on_message)
        except Exception as exc:
            # Boundary: an application without a lifespan raises, as the specification has it.
            _log.debug("the application has no lifespan: %s", exc)
        finally:
            if not started.done():
                started.set_result(None)
            shut.set()


class _Exchange:
    """One request and its answer."""

    # `begun` is set when the head of the answer has arrived, or when there will be none. The body ends when `_send` is
    # closed: after the last piece, or when the application returns or raises. `failure` is set before that, so a reader
    # at the end of the stream knows whether the answer is whole.

    def __init__(self, request: ApiRequest) -> None:
        self.status = 0
        self.reason = ""
        self.encoding = ""
        self.headers: Mapping[str, str] = {}
        self.begun = anyio.Event()
        self.failure: ToolError | None = None
        self._request = request
        self._scope = anyio.CancelScope()
        self._asked = False
        self._complete = False
        self._disconnected = anyio.Event()
        self._send, self._receive = anyio.create_memory_object_stream[bytes](_PIECES)

    async def run(self, app: AsgiApp, state: dict[str, Any]) -> None:
        with self._scope:
            try:
                await app(self._request_scope(state), self._next, self._on_message)
            except Exception as exc:
                # Boundary: what an application raises is its answer to this request.
                self.failure = ToolError(f"the application raised {type(exc).__name__}", unexpected=True)
                self.failure.__cause__ = exc
            finally:
                if not self.status and self.failure is None:
                    self.failure = ToolError("the application sent no answer")
                self._send.close()
                self.begun.set()

    async def piece(self) -> bytes:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            if self.failure is not None:
                raise TransportError("ReadError", self.failure.message, got_bytes=True) from None
            return b""

    def close(self) -> None:
        """Stop reading, and end the application's work on an answer that is not complete."""
        self._receive.close()
        # after a complete answer it may continue, as behind a server: a background task
        if not self._complete:
            self._disconnected.set()
            self._scope.cancel()

    def _request_scope(self, state: dict[str, Any]) -> dict[str, Any]:
        request = self._request
        parts = urlsplit(request.url)
        query = "&".join(filter(None, (parts.query, request.private_query)))
        headers = {"host": parts.netloc, **request.headers, **request.private}
        if request.body:
            headers["content-length"] = str(len(request.body))
        return {
            "type": "http",
            "asgi": _SPEC,
            "http_version": "1.1",
            "method": request.method,
            "scheme": parts.scheme,
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode("latin-1", "replace"), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 0),
            "server": (parts.hostname or "localhost", parts.port or 80),
            "state": state,
        }

    async def _next(self) -> _Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _on_message(self, message: _Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = _joined_headers(message.get("headers", ()))
            self.encoding = self.headers.get("content-encoding", "")
            self.begun.set()
        elif message["type"] == "http.response.body":
            self._complete = not message.get("more_body", False)
            try:
                if body := message.get("body", b""):
                    await self._send.send(bytes(body))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                # nobody reads it any longer
                return
            if self._complete:
                self._send.close()


def _joined_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by their lower-case names, the values of one name in one text (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for name, value in pairs:
        key = bytes(name).decode("latin-1").lower()
        text = bytes(value).decode("latin-1")
        if key in found:
            text = f"{found[key]}, {text}"
        found[key] = text
    return found
