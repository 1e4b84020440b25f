"""One client's conversation with a server: JSON-RPC in both eras over a duplex of whole messages.

The first request determines the era: `initialize`, or one without an envelope, the legacy era, an envelope in
`_meta` the modern one. Requests are answered concurrently, by the endpoint. Independent of pipes,
processes and the SDK: messages are passed to `take`, answers are written to a sink.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias
from uuid import uuid4

import anyio
import msgspec

from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from toolweave.protocol.jsonrpc import (
    MalformedMessage,
    RequestId,
    StrictMessage,
    decode_strict,
    encode_batch,
    encode_error,
    encode_notification,
    encode_result,
)
from toolweave.protocol.versions import BATCHING_VERSION, MODERN_VERSION, MODERN_VERSIONS
from toolweave.serve._envelope import (
    checked_envelope,
    client_of,
    client_of_handshake,
    has_envelope,
    unsupported_version,
)
from toolweave.serve._messages import answerable_id, cancelled_id, fault_of, is_notification
from toolweave.serve._pending_requests import PendingRequests
from toolweave.serve._plain_calls import ENVELOPE
from toolweave.serve.request import ChangeSubscriptions, Client, Json, Request, Responder

_log = logging.getLogger("toolweave.serve")
_Reply: TypeAlias = Callable[[bytes | None], None]
"""Receives the answer to a request, or None for no answer."""

MAX_REQUESTS = 4096
"""Maximum concurrent requests of one client; further ones are refused, except pings."""
_UNGATED = frozenset({methods.INITIALIZE, methods.PING})


class MessageWriter(Protocol):
    """The sink for a conversation's outgoing messages."""

    def write(self, message: bytes) -> None:
        """Queue one message; never waits and never raises: without a reader it is dropped."""
        ...

    async def room(self) -> None:
        """Wait until the output buffer has room; returns at once when the client is gone."""
        ...


class Conversation:
    """Handles the messages of one client; also the reply channel to it. Entered by the task that calls `take`.

    Leaving it ends the conversation, cancels the requests that still run, and waits for their end.

    Args:
        responder: Answers the requests.
        outlet: Where answers go.
        conversations: Notified when a handshake-era conversation begins; None pushes nothing.

    Attributes:
        name: A globally unique name of the conversation.
    """

    def __init__(
        self,
        responder: Responder,
        outlet: MessageWriter,
        *,
        conversations: ChangeSubscriptions | None = None,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        self.name = uuid4().hex
        self._responder = responder
        self._outlet = outlet
        # Everything below is read and changed in the event loop only, by the task that calls `take` and by the requests
        # that it started. A request is in `_running` until its answer is written, so its id cannot be used twice.
        # For each task, anyio's group makes a scope, a handle and an event: that costs more than answering the request.
        # What it adds is done here: each request has a scope, and the end cancels these.
        self._tasks = asyncio.TaskGroup()
        self._conversations = conversations
        self._max_requests = max_requests
        self._modern: bool | None = None  # until the first request
        self._client: Client | None = None  # of the handshake
        # an envelope, and its client
        self._known: tuple[Mapping[str, Any], Client] | None = None
        self._leave: Callable[[], None] | None = None
        self._running: dict[RequestId, anyio.CancelScope] = {}
        self._unwanted: set[RequestId] = set()
        self._idle = anyio.Event()
        self._pending = PendingRequests()
        self._over = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.end()
        for scope in self._running.values():
            scope.cancel()
        # as in a task group of anyio, whose end is that of its last task
        with anyio.CancelScope(shield=True):
            # an exception of the block is raised as it is
            await self._tasks.__aexit__(None, None, None)

    async def take(self, text: bytes) -> None:
        """Handle one JSON text of the client; returns once it is started and the output buffer has room."""
        try:
            messages = decode_strict(text)
        except MalformedMessage as exc:
            self._refuse_broken(exc, self._write)
        else:
            if isinstance(messages, list):
                await self._take_batch(messages)
            else:
                await self._take(messages, self._write)
        await self._outlet.room()

    async def drain(self) -> None:
        """Wait until every request is answered; the caller bounds the wait."""
        while self._running:
            self._idle = anyio.Event()
            await self._idle.wait()

    def end(self) -> None:
        """End the conversation: notifications stop, and pending requests to the client fail."""
        self._over = True
        if self._leave is not None:
            self._leave()
            self._leave = None
        self._pending.fail()

    def _push(self, method: str, params: Mapping[str, Any]) -> None:
        if not self._over:
            self._outlet.write(encode_notification(method, params))

    # the reply channel

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; nothing is raised when the client is gone."""
        self._push(method, params)
        await self._outlet.room()

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Send the client a request and return its result.

        Raises:
            RequestError: The client refused, is gone, or speaks a revision without such requests.
        """
        if self._modern:
            raise RequestError("the client cannot be asked in this protocol revision", code=INTERNAL_ERROR)
        return await self._pending.ask(method, params, self._send)

    async def _send(self, message: bytes) -> None:
        self._outlet.write(message)
        await self._outlet.room()

    async def release(self) -> None:
        """Do nothing: no stream can be closed and resumed."""

    def _write(self, answer: bytes | None) -> None:
        if answer is not None:
            self._outlet.write(answer)

    # messages of the client

    async def _take(self, message: StrictMessage, reply: _Reply, *, alone: bool = True) -> None:
        if message.is_answer:
            self._pending.take(message)
        elif message.method is msgspec.UNSET or message.id is None:
            reply(encode_error(answerable_id(message), INVALID_REQUEST, f"Invalid request: {fault_of(message)}"))
        elif message.id is msgspec.UNSET:
            self._take_notification(message.method, message.params or {})
        else:
            params = message.params or {}
            try:
                client = self._admit(message.id, message.method, params, alone=alone)
            except RequestError as exc:
                reply(encode_error(message.id, exc.code, exc.message, exc.data))
                return
            request = Request(method=message.method, params=params, client=client, reply_channel=self, id=message.id)
            if message.method == methods.INITIALIZE:
                # in line: later messages find the handshake made
                await self._initialize(request, reply)
                return
            scope = self._running[message.id] = anyio.CancelScope()
            self._tasks.create_task(self._answer(request, scope, reply))

    async def _take_batch(self, members: list[StrictMessage | MalformedMessage]) -> None:
        # Earlier and later revisions have no batches, and a client of theirs would not understand an array as an
        # answer.
        if self._client is None or self._client.version != BATCHING_VERSION:
            refusal = "Invalid request: batches are of revision 2025-03-26 only"
            self._outlet.write(encode_error(None, INVALID_REQUEST, refusal))
            return
        batch = _Batch(self._outlet.write)
        for member in members:
            if isinstance(member, MalformedMessage):
                self._refuse_broken(member, batch.place())
            else:
                # These get no answer, so the batch must not wait for one.
                is_silent = member.is_answer or is_notification(member)
                reply = self._write if is_silent else batch.place()
                await self._take(member, reply, alone=False)
        batch.take(None)

    def _refuse_broken(self, broken: MalformedMessage, reply: _Reply) -> None:
        if broken.answerable:
            reply(encode_error(broken.id, broken.code, broken.message))
        else:
            reply(None)
            _log.debug("conversation %s: a message without a pending request is dropped: %s", self.name, broken.message)

    def _take_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if method == methods.NOTIFICATIONS_CANCELLED:
            self._cancel(cancelled_id(params))
        elif method == methods.NOTIFICATIONS_INITIALIZED:
            self._join()
        elif self._client is not None and self._conversations is not None:
            self._conversations.note_from_client(method, self._client)

    def _cancel(self, key: RequestId | None) -> None:
        if key is None:
            return
        scope = self._running.get(key)
        if scope is not None:
            self._unwanted.add(key)
            scope.cancel()

    def _join(self) -> None:
        """Subscribe to changes, once: clients send `notifications/initialized` again after a second handshake."""
        if self._over or self._leave is not None:
            return
        if self._client is not None and self._conversations is not None:
            self._leave = self._conversations.join(self._push, conversation=self.name)

    # requests

    def _admit(self, key: RequestId, method: str, params: Mapping[str, Any], *, alone: bool) -> Client:
        """Return the client that sent a request.

        Raises:
            RequestError: The request is not acceptable in the present state of the conversation.
        """
        if key in self._running:
            raise RequestError("Invalid request: a request with this id is still running", code=INVALID_REQUEST)
        # A client that gets no answer to a ping would take the server for dead, and start another.
        if len(self._running) >= self._max_requests and method != methods.PING:
            refused = f"too many requests at once: {self._max_requests} are running; wait for answers"
            raise RequestError(refused, code=INTERNAL_ERROR, data={"retryable": True})
        versions = self._responder.versions
        is_handshake = method == methods.INITIALIZE
        enveloped = not is_handshake and MODERN_VERSION in versions and has_envelope(params)
        # The first request decides the era for the whole conversation, so that a later one cannot change the rules for
        # those that still run.
        if self._modern is None:
            self._modern = enveloped or versions == MODERN_VERSIONS
        if self._modern:
            if is_handshake:
                raise unsupported_version(params.get("protocolVersion"), versions)
            return self._sender(params, versions)
        if enveloped:
            raise RequestError("this conversation began with the handshake; send no envelope", code=INVALID_REQUEST)
        if is_handshake and not alone:
            raise RequestError("Invalid request: initialize must not be in a batch", code=INVALID_REQUEST)
        return self._client or self._client_before_handshake(method)

    def _client_before_handshake(self, method: str) -> Client:
        """Return a client for the few methods that need no handshake.

        Raises:
            RequestError: The method needs one.
        """
        if method not in _UNGATED and self._responder.serves(method, modern=False):
            raise RequestError(f"{method} before initialize", code=INVALID_PARAMS)
        return Client(version=self._responder.negotiate(None), conversation=self.name)

    def _sender(self, params: Mapping[str, Any], versions: Sequence[str]) -> Client:
        """Return the client of a request of the modern era, which sends the same envelope with each."""
        known = self._known
        if known is not None and params.get("_meta") == known[0]:
            return known[1]
        envelope = checked_envelope(params, versions)
        client = client_of(envelope, conversation=self.name)
        if ENVELOPE.issuperset(envelope):  # others differ from request to request
            self._known = (envelope, client)
        return client

    async def _initialize(self, request: Request, reply: _Reply) -> None:
        try:
            result = await self._responder.answer(request)
            text = encode_result(request.id, result)
        except RequestError as exc:
            reply(encode_error(request.id, exc.code, exc.message, exc.data))
            return
        except Exception:  # boundary: a result that is not JSON
            reply(self._unwritable(request))
            return
        self._client = client_of_handshake(request.params, result, conversation=self.name)
        reply(text)

    async def _answer(self, request: Request, scope: anyio.CancelScope, reply: _Reply) -> None:
        text: bytes | None = None
        try:
            with scope:
                text = await self._result(request)
        finally:
            del self._running[request.id]
            self._idle.set()
            if request.id in self._unwanted:
                self._unwanted.discard(request.id)
                reply(None)  # a request that its client cancelled gets no answer
            else:
                # A client waits for each request. Without an answer it would wait for its timeout, after the server has
                # ended.
                reply(text or encode_error(request.id, CONNECTION_CLOSED, "the server is shutting down"))

    async def _result(self, request: Request) -> bytes:
        try:
            return encode_result(request.id, await self._responder.answer(request))
        except RequestError as exc:
            return encode_error(request.id, exc.code, exc.message, exc.data)
        except Exception:  # boundary: a result that is not JSON
            return self._unwritable(request)

    def _unwritable(self, request: Request) -> bytes:
        _log.exception("the result of %s cannot be written", request.method)
        return encode_error(request.id, INTERNAL_ERROR, "Internal error")


class _Batch:
    """Collects the answers to one batch, which are sent together."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._answers: list[bytes] = []
        self._open = 1  # until the whole batch was read

    def place(self) -> _Reply:
        """Return the receiver of the answer to one more request."""
        self._open += 1
        return self.take

    def take(self, answer: bytes | None) -> None:
        """Record one answer, or None for no answer; write all of them with the last."""
        if answer is not None:
            self._answers.append(answer)
        self._open -= 1
        if not self._open and self._answers:
            self._write(encode_batch(self._answers))
