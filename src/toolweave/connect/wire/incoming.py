"""What a server sends by itself: notifications to the peer in order, requests answered by tasks of their own."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.abc
import msgspec

from toolweave.connect.codes import INTERNAL_ERROR
from toolweave.connect.session import Peer
from toolweave.connect.shapes import as_object
from toolweave.connect.wire.jsonrpc import Message, encode_error, encode_result, payload
from toolweave.errors import ProtocolError

__all__ = ["Incoming"]

_log = logging.getLogger("toolweave.connect")
_MAX_SERVER_REQUESTS = 256


class Incoming:
    """Takes the calls of one server; `reply` sends the answer to a request of it, or raises `OSError`."""

    def __init__(
        self,
        peer: Peer,
        tasks: anyio.abc.TaskGroup,
        reply: Callable[[bytes], Awaitable[None]],
        *,
        server: str,
    ) -> None:
        self._peer = peer
        self._tasks = tasks
        self._reply = reply
        self._server = server
        self._serving: dict[int | str, anyio.CancelScope] = {}

    def take(self, message: Message) -> None:
        """Take one notification or request."""
        try:
            params = as_object(payload(message.params)) if message.params is not msgspec.UNSET else None
        except ValueError:
            params = None
        method = str(message.method)
        if message.id is msgspec.UNSET or message.id is None:
            if method == "notifications/cancelled":
                self._stop_serving((params or {}).get("requestId"))
            self._peer.notification(method, params or {})
        elif len(self._serving) < _MAX_SERVER_REQUESTS and not self._tasks.cancel_scope.cancel_called:
            # counted from here on: many may come in one piece, before the first task has run
            scope = self._serving[message.id] = anyio.CancelScope()
            self._tasks.start_soon(self._serve, scope, message.id, method, params or {})

    async def _serve(
        self, scope: anyio.CancelScope, request_id: int | str, method: str, params: Mapping[str, Any]
    ) -> None:
        with scope:
            try:
                answer = encode_result(request_id, await self._peer.request(method, params))
            except ProtocolError as exc:
                answer = encode_error(request_id, exc.code, exc.message)
            except Exception:  # boundary: a callback of the user
                _log.exception("server %r: its request %r could not be answered", self._server, method)
                answer = encode_error(request_id, INTERNAL_ERROR, "the client failed to answer")
            finally:
                if self._serving.get(request_id) is scope:
                    del self._serving[request_id]
            try:
                await self._reply(answer)
            except OSError:
                _log.debug("server %r: it is gone before its request %r was answered", self._server, method)

    def _stop_serving(self, request_id: Any) -> None:
        scope = self._serving.get(request_id) if isinstance(request_id, (int, str)) else None
        if scope is not None:
            scope.cancel()
