"""The dispatch of a server's notifications, in order, and of its requests, each in another task.

Each request is answered: 256 concurrently, those beyond that in order of arrival, and with an error when too many
wait. Only a request that the server cancels has no answer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
import msgspec

from toolweave._json import is_out_of_range
from toolweave._json_types import JsonObject, object_or_empty
from toolweave.connect._repairs import NOT_JSON
from toolweave.connect._session import ClientHandlers, OnNotification
from toolweave.errors import ProtocolError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.jsonrpc import ForeignId, encode_error, encode_result, value_of
from toolweave.protocol.lenient_messages import LenientMessage, MendedMessage

_log = logging.getLogger("toolweave.connect")
_AT_ONCE = 256
_MAX_WAITING = 10_000
_MAX_REFUSED = 100_000

_WaitingRequest = tuple[ForeignId, str, JsonObject, str]
"""An id, a method, parameters, and the repair of the text."""


class IncomingDispatcher:
    """The dispatcher of one server's messages; `reply` sends the answer to a request, or raises `OSError`."""

    def __init__(
        self,
        handlers: ClientHandlers,
        tasks: anyio.abc.TaskGroup,
        reply: Callable[[bytes], Awaitable[None]],
        *,
        server: str,
    ) -> None:
        self._handlers = handlers
        self._tasks = tasks
        self._reply = reply
        self._server = server
        # `_waiting` has the requests that have no task yet, `_serving` those that have one. `_unwanted` has the ids of
        # waiting requests that the server cancelled: they are dropped when their turn comes, since a search in a long
        # queue would cost a hostile server nothing and us everything.
        self._serving: dict[ForeignId, anyio.CancelScope] = {}
        self._running = 0
        self._waiting: deque[_WaitingRequest] = deque()
        self._unwanted: set[ForeignId] = set()
        self._refused: deque[ForeignId] = deque()
        self._refusing = False

    def dispatch(
        self, message: LenientMessage, *, answerable: bool = True, listener: OnNotification | None = None
    ) -> None:
        """Handle one notification or request; a request that is not `answerable` is reported and ignored.

        `listener` is that of the request on whose stream the message came.
        """
        params: JsonObject = {}
        is_mended = isinstance(message, MendedMessage)
        if message.params is not msgspec.UNSET:
            try:
                params = object_or_empty(value_of(message.params))
                # Numbers are read with the parameters, and not before.
                is_mended = is_mended or is_out_of_range(bytes(message.params))
            except ValueError:
                pass
        method = str(message.method)
        repaired = NOT_JSON.problem if is_mended else ""
        if message.id is msgspec.UNSET or message.id is None:
            if method == methods.NOTIFICATIONS_CANCELLED:
                self._stop_serving(params.get("requestId"))
            self._handlers.notification(method, params, listener, repaired=repaired)
        elif not answerable:
            self._handlers.ignore(method)
        elif len(self._waiting) >= _MAX_WAITING:
            self._refuse(message.id)
        else:
            self._waiting.append((message.id, method, params, repaired))
            self._serve_next()

    def _serve_next(self) -> None:
        """Start to answer the waiting requests, in order of arrival."""
        # counted before the task starts: many may come in one piece
        while self._waiting and self._running < _AT_ONCE and not self._tasks.cancel_scope.cancel_called:
            request = self._waiting.popleft()
            if request[0] in self._unwanted:
                self._unwanted.discard(request[0])
                continue
            self._running += 1
            scope = self._serving[request[0]] = anyio.CancelScope()
            self._tasks.start_soon(self._serve, scope, *request)
        if not self._waiting:
            self._unwanted.clear()

    async def _serve(
        self, scope: anyio.CancelScope, request_id: ForeignId, method: str, params: JsonObject, repaired: str
    ) -> None:
        try:
            with scope:
                await self._answer(scope, request_id, method, params, repaired)
        finally:
            self._running -= 1
            self._serve_next()

    async def _answer(
        self, scope: anyio.CancelScope, request_id: ForeignId, method: str, params: JsonObject, repaired: str
    ) -> None:
        try:
            if repaired:
                self._handlers.on_repair(repaired)
            answer = encode_result(request_id, await self._handlers.request(method, params))
        except ProtocolError as exc:
            answer = encode_error(request_id, exc.code, exc.message, exc.data)
        except Exception:  # boundary: a callback of the user
            _log.exception("server %r: its request %r could not be answered", self._server, method)
            answer = encode_error(request_id, INTERNAL_ERROR, "the client failed to answer")
        finally:
            # Compared: a server may use an id again while its first request with it is still answered.
            if self._serving.get(request_id) is scope:
                del self._serving[request_id]
        await self._send(answer)

    async def _send(self, answer: bytes) -> None:
        try:
            await self._reply(answer)
        except OSError:
            _log.debug("server %r: it is gone before a request of it was answered", self._server)

    def _refuse(self, request_id: ForeignId) -> None:
        """Answer a request beyond the queue's limit with an error; one task sends all of these."""
        if len(self._refused) >= _MAX_REFUSED:
            self._handlers.trouble(f"it sends requests and does not read the answers: {_MAX_REFUSED} wait to be sent")
            return
        self._refused.append(request_id)
        if not self._refusing and not self._tasks.cancel_scope.cancel_called:
            self._refusing = True
            self._tasks.start_soon(self._send_refusals)

    async def _send_refusals(self) -> None:
        while self._refused:
            text = f"too many requests at once: {_MAX_WAITING} wait; send it again later"
            await self._send(encode_error(self._refused.popleft(), INTERNAL_ERROR, text))
        self._refusing = False

    def _stop_serving(self, request_id: Any) -> None:
        if not isinstance(request_id, (int, str, float)):
            return
        scope = self._serving.get(request_id)
        if scope is not None:
            scope.cancel()
        elif self._waiting:
            self._unwanted.add(request_id)
