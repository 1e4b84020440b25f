"""One conversation with a server in memory: the handshake of every era, requests, cancellation, subscriptions.

Speaks JSON-RPC as bytes over a `Channel`; knows nothing of what is offered, which `Offer` answers for.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream

from toolweave.connect import Channel, memory_channels
from toolweave.errors import ConnectionLostError, ProtocolError
from toolweave.protocol import methods
from toolweave.protocol.codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
)
from toolweave.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION, SERVER_INFO, SUBSCRIPTION_ID
from toolweave.protocol.subscriptions import FILTERS
from toolweave.protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSION
from toolweave.testing.offer import Offer, refuse
from toolweave.testing.script import Reaction, Received
from toolweave.testing.shapes import Json, as_object
from toolweave.tools import CallContext, Progress

__all__ = ["Conversation", "Identity"]

_KEPT_MS = 300_000
_ANSWERED_EMPTY = (
    methods.PING,
    methods.LOGGING_SET_LEVEL,
    methods.RESOURCES_SUBSCRIBE,
    methods.RESOURCES_UNSUBSCRIBE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a server says it is.

    Attributes:
        versions: The revisions it speaks, oldest first.
    """

    info: Mapping[str, Any]
    versions: tuple[str, ...]
    capabilities: Mapping[str, Any]
    instructions: str | None = None

    @property
    def legacy(self) -> tuple[str, ...]:
        """The revisions it speaks that begin with `initialize`."""
        return tuple(version for version in self.versions if version in HANDSHAKE_VERSIONS)


@dataclass(slots=True)
class _ClientEnd:
    """What the client is given: a `Channel` whose other end is the conversation."""

    outgoing: Channel
    incoming: MemoryObjectReceiveStream[bytes]

    async def send(self, message: bytes) -> None:
        await self.outgoing.send(message)

    async def receive(self) -> bytes:
        try:
            return await self.incoming.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise EOFError("the server in memory is gone") from None


@dataclass(slots=True)
class _Running:
    """A request that is being answered."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    listens_to: Mapping[str, Any] | None = None


class Conversation:
    """One client's conversation with the server.

    `on_message` is told of every message with a method and returns what the test wants to happen to it.
    """

    def __init__(
        self, number: int, identity: Identity, offer: Offer, on_message: Callable[[Received], Reaction | None]
    ) -> None:
        self.number = number
        self.version: str | None = None
        self._identity = identity
        self._offer = offer
        self._on_message = on_message
        self._running: dict[int | str, _Running] = {}
        self._asked: dict[str, asyncio.Future[Json]] = {}
        self._ids = itertools.count(1)
        self._over = False
        self._loop = asyncio.get_running_loop()
        # a stream of our own to the client: what a test sends goes out at once, without an await
        self._outgoing, self._to_client = anyio.create_memory_object_stream[bytes](math.inf)
        self._from_client, self._incoming = memory_channels()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Channel, None]:
        """Serve for the block; yield the client's end."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, tasks)
                yield _ClientEnd(self._from_client, self._to_client)
                tasks.cancel_scope.cancel()
        finally:
            self.hang_up()
            self._from_client.close()
            self._to_client.close()

    def hang_up(self) -> None:
        """End the conversation as a server does that crashes: at once, whatever runs."""
        self._over = True
        self._outgoing.close()
        self._incoming.close()
        for running in self._running.values():
            running.scope.cancel()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(_gone())

    # what the server sends by itself

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification in the way of the era: to subscribers where the era has subscriptions."""
        message: Json = {"jsonrpc": "2.0", "method": method}
        if self.version is not None or method not in FILTERS:
            self._send(message | ({"params": dict(params)} if params else {}))
            return
        for request_id, running in self._running.items():
            wanted = (running.listens_to or {}).get(FILTERS[method])
            if wanted is True or (isinstance(wanted, list) and params.get("uri") in wanted):
                stamp = {SUBSCRIPTION_ID: request_id}
                self._send({**message, "params": {**params, "_meta": stamp}})

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Send a request to the client and return its result.

        Raises:
            ProtocolError: The client refused.
            ConnectionLostError: The conversation ended before it answered.
        """
        if self._over:
            raise _gone()
        key = f"server-{next(self._ids)}"
        answer = self._asked[key] = self._loop.create_future()
        try:
            self._send({"jsonrpc": "2.0", "id": key, "method": method, "params": dict(params)})
            message = await answer
        finally:
            del self._asked[key]
        if "error" in message:
            error = cast("Json", message["error"])
            raise refuse(int(error.get("code", 0)), str(error.get("message", "")), error.get("data"))
        return cast("Json", message.get("result"))

    def _send(self, message: Json) -> None:
        data = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:  # a plain function's worker thread
            here = False
        if here:
            self._write(data)
        else:
            self._loop.call_soon_threadsafe(self._write, data)

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # nobody is there any more
            self._outgoing.send_nowait(data)

    # what the client sends

    async def _read(self, tasks: anyio.abc.TaskGroup) -> None:
        with contextlib.suppress(EOFError):
            while True:
                message: Any = json.loads(await self._incoming.receive())
                for one in cast("list[Json]", message) if isinstance(message, list) else [cast("Json", message)]:
                    self._take(one, tasks)

    def _take(self, message: Json, tasks: anyio.abc.TaskGroup) -> None:
        if "method" not in message:
            asked = self._asked.get(str(message.get("id")))
            if asked is not None and not asked.done():
                asked.set_result(message)
            return
        received = Received(
            method=str(message["method"]),
            params=as_object(message.get("params")),
            id=message.get("id"),
            conversation=self.number,
        )
        reaction = self._on_message(received)
        if received.id is not None:
            running = self._running[received.id] = _Running()
            tasks.start_soon(self._serve, received, received.id, running, reaction)
        elif received.method == methods.NOTIFICATIONS_CANCELLED:
            running = self._running.get(received.params.get("requestId", ""))
            if running is not None:
                running.scope.cancel()

    async def _serve(
        self, received: Received, request_id: int | str, running: _Running, reaction: Reaction | None
    ) -> None:
        answer: Json = {"jsonrpc": "2.0", "id": request_id}
        with running.scope:
            try:
                answer["result"] = await self._result(received, running, reaction)
            except ProtocolError as exc:
                answer["error"] = _error(exc.code, exc.message, exc.data)
            except Exception as exc:  # boundary: user code
                answer["error"] = _error(INTERNAL_ERROR, f"{type(exc).__name__}: {exc}")
            try:
                self._send(answer)
            except (TypeError, ValueError) as exc:
                self._send(
                    {"jsonrpc": "2.0", "id": request_id, "error": _error(INTERNAL_ERROR, f"this is no JSON: {exc}")}
                )
        self._running.pop(request_id, None)

    async def _result(self, received: Received, running: _Running, reaction: Reaction | None) -> Json:
        modern = PROTOCOL_VERSION in as_object(received.params.get("_meta"))
        if reaction is None:
            return self._stamped(received.method, await self._answer(received, running, modern), modern)
        match reaction.how:
            case "refuse":
                raise refuse(reaction.error["code"], reaction.error["message"], reaction.error["data"])
            case "crash":
                self.hang_up()
                await anyio.sleep_forever()
            case "hang":
                await anyio.sleep_forever()
            case "answer":
                pass
        made = reaction.answer(received.params) if callable(reaction.answer) else reaction.answer
        made = await cast("Awaitable[Any]", made) if inspect.isawaitable(made) else made
        return self._stamped(received.method, dict(cast("Mapping[str, Any]", made)), modern)

    def _stamped(self, method: str, result: Json, modern: bool) -> Json:
        if not modern:
            return result
        kept = {"ttlMs": _KEPT_MS, "cacheScope": "private"} if method in methods.CACHEABLE else {}
        meta = {SERVER_INFO: self._identity.info, **as_object(result.get("_meta"))}
        return {"resultType": "complete", **kept, **result, "_meta": meta}

    async def _answer(self, received: Received, running: _Running, modern: bool) -> Json:
        if modern:
            return await self._answer_modern(received, running)
        if received.method == methods.SERVER_DISCOVER:
            raise refuse(METHOD_NOT_FOUND, "Method not found: server/discover")
        if received.method == methods.INITIALIZE:
            return self._initialize(received.params)
        if received.method in _ANSWERED_EMPTY:
            return {}
        if self.version is None:
            raise refuse(INVALID_REQUEST, f"{received.method} before initialize")
        return await self._offer.answer(received.method, received.params, self._context(received), modern=False)

    def _initialize(self, params: Mapping[str, Any]) -> Json:
        spoken = self._identity.legacy
        wanted = params.get("protocolVersion")
        if not spoken:
            raise _unsupported(wanted)
        self.version = wanted if wanted in spoken else spoken[-1]
        return {"protocolVersion": self.version, "serverInfo": self._identity.info, **self._described()}

    async def _answer_modern(self, received: Received, running: _Running) -> Json:
        if MODERN_VERSION not in self._identity.versions:
            raise refuse(METHOD_NOT_FOUND, f"Method not found: {received.method}")
        wanted = received.params["_meta"][PROTOCOL_VERSION]
        if wanted != MODERN_VERSION:
            raise _unsupported(wanted)
        if not isinstance(received.params["_meta"].get(CLIENT_CAPABILITIES), dict):
            raise refuse(INVALID_PARAMS, f"_meta has no {CLIENT_CAPABILITIES}")
        if received.method == methods.SERVER_DISCOVER:
            return {"supportedVersions": list(self._identity.versions), **self._described()}
        if received.method == methods.SUBSCRIPTIONS_LISTEN:
            running.listens_to = as_object(received.params.get("notifications"))
            stamp = {"notifications": running.listens_to, "_meta": {SUBSCRIPTION_ID: received.id}}
            self.notify(methods.NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED, stamp)
            await anyio.sleep_forever()
        return await self._offer.answer(received.method, received.params, self._context(received), modern=True)

    def _described(self) -> Json:
        described: Json = {"capabilities": self._identity.capabilities}
        return described | ({"instructions": self._identity.instructions} if self._identity.instructions else {})

    def _context(self, received: Received) -> CallContext:
        meta = as_object(received.params.get("_meta"))
        token = meta.get("progressToken")

        def report(progress: Progress) -> None:
            told: Json = {"progressToken": token, "progress": progress.progress}
            told |= {} if progress.total is None else {"total": progress.total}
            told |= {} if progress.message is None else {"message": progress.message}
            self.notify(methods.NOTIFICATIONS_PROGRESS, told)

        return CallContext(on_progress=None if token is None else report, meta=meta)


def _gone() -> ConnectionLostError:
    return ConnectionLostError("the conversation ended before the client answered", server="in memory", sent=True)


def _error(code: int, message: str, data: Any = None) -> Json:
    return {"code": code, "message": message} | ({} if data is None else {"data": data})


def _unsupported(wanted: object) -> ProtocolError:
    supported = {"supported": [MODERN_VERSION], "requested": wanted}
    return refuse(UNSUPPORTED_VERSION, "Unsupported protocol version", supported)
