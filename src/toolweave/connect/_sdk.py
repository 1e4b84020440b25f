"""The official SDK's client as a `Wire`: its dispatcher over our channels, its transports for HTTP.

The only module of the client side that imports `mcp`; its errors are mapped in `SdkWire._mapped`.
Imported while a server boots, never at `import toolweave`.
"""

from __future__ import annotations

import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Self

import anyio
import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.runner import modern_on_request
from mcp.shared import inbound
from mcp.shared.direct_dispatcher import DirectDispatcher, create_direct_dispatcher_pair
from mcp.shared.dispatcher import CallOptions, DispatchContext, Dispatcher
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from pydantic import ValidationError

from toolweave.connect._channel import Channel
from toolweave.connect._http_errors import HttpSettings, http_error, too_large
from toolweave.connect._sdk_http import HttpFaults, http_client, status_fault, transport_fault
from toolweave.connect._session import UNCANCELLABLE, ClientHandlers, Loss, OnNotification, Wire
from toolweave.errors import (
    ConnectionLostError,
    ProtocolError,
    ServerError,
)
from toolweave.protocol import methods
from toolweave.protocol.headers import NAME_PARAMETERS
from toolweave.protocol.json_types import as_array, as_object, as_text
from toolweave.protocol.jsonrpc import answer_id, own_id
from toolweave.protocol.meta import PROTOCOL_VERSION

_log = logging.getLogger("toolweave.connect")
_BAD_EVENT = "Failed to parse SSE message"
_PASSED_LIMIT = re.compile(r"SSE stream failed: Server-sent event exceeded the (\d+) byte limit")
_GONE_STREAM = ("SSE stream", "server answered a request with 202")


class _Received(ABC):
    """The SDK's read stream as an iteration; each kind of stream reads its next message."""

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> SessionMessage | Exception: ...


class _ReadStream(_Received):
    """A channel as the SDK's read stream, with no task and no queue between."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._pending: list[SessionMessage] = []

    async def aclose(self) -> None:
        """Nothing to do: the channel's owner closes it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._pending:
            try:
                line = await self._channel.receive()
            except EOFError:
                raise StopAsyncIteration from None
            self._pending.extend(self._parse(line))
        return self._pending.pop(0)

    def _parse(self, line: bytes) -> list[SessionMessage]:
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            pass
        else:
            if not _is_of_another(message):
                return [SessionMessage(message)]
            self._junk(line)
            return []
        try:
            value: Any = json.loads(line)
        except UnicodeDecodeError:
            return self._unreadable(line, "is not valid UTF-8")
        except RecursionError:
            return self._unreadable(line, "is nested too deeply")
        except ValueError:
            return self._unreadable(line, "is not valid JSON")
        items = as_array(value) or [value]
        return [SessionMessage(message) for item in items if (message := self._salvage(item, line)) is not None]

    def _unreadable(self, line: bytes, why: str) -> list[SessionMessage]:
        """Fail the call that an unreadable answer belongs to, if the answer still says which one that is."""
        self._junk(line)
        request_id = answer_id(line)
        if request_id is None:
            return []
        error = types.ErrorData(code=types.PARSE_ERROR, message=f"its answer {why}")
        answer = types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
        return [SessionMessage(answer)]

    def _salvage(self, item: Any, line: bytes) -> types.JSONRPCMessage | None:
        """Read one message leniently: a broken answer is an error for its call at once, not a call that hangs."""
        entry = as_object(item) or {}
        if isinstance(entry.get("id"), float):
            item = entry = {**entry, "id": own_id(entry["id"])}
        try:
            message = types.jsonrpc_message_adapter.validate_python(item, by_name=False)
        except ValidationError:
            pass
        else:
            return None if _is_of_another(message) else message
        request_id = entry.get("id")
        if "method" in entry or isinstance(request_id, bool) or not isinstance(request_id, (int, str)):
            self._junk(line)
            return None
        error = types.ErrorData(code=types.INTERNAL_ERROR, message=f"it sent an invalid answer: {str(entry)[:200]}")
        return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)

    def _junk(self, line: bytes) -> None:
        count = getattr(self._channel, "count_junk", None)
        if count is not None:
            count(line)
        _log.debug("a line that is no JSON-RPC message was skipped: %r", line[:200])


def _is_of_another(message: types.JSONRPCMessage) -> bool:
    """Whether an answer has an id that is none of ours, though the SDK would make a number of it: `004`, `٤`."""
    if not isinstance(message, (types.JSONRPCResponse, types.JSONRPCError)) or not isinstance(message.id, str):
        return False
    return message.id.strip().lstrip("+-").replace("_", "").isdecimal() and own_id(message.id) == message.id


class _Heard(_Received):
    """The read stream of an HTTP transport, without requests that must not be answered (`ClientHandlers.ignore`)."""

    def __init__(self, inner: Any, peer: ClientHandlers) -> None:
        self.stateless: Callable[[], bool] = lambda: False
        self._inner = inner
        self._peer = peer

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._inner.__aexit__(*exc)

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            item = await self._inner.__anext__()
            request = item.message if isinstance(item, SessionMessage) else None
            if not isinstance(request, types.JSONRPCRequest) or not self.stateless():
                return item
            self._peer.ignore(request.method)


class _WriteStream:
    """A channel as the SDK's write stream."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def send(self, item: SessionMessage) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await self._channel.send(text.encode())
        except OSError:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Nothing to do: the channel's owner closes it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        return None


class SdkWire:
    """The SDK's dispatcher as a `Wire`.

    Attributes:
        stateless: Whether the conversation is one of the stateless revisions over HTTP.
    """

    def __init__(
        self,
        dispatcher: Dispatcher[TransportContext],
        peer: ClientHandlers,
        *,
        server: str,
        loss: Loss,
        faults: HttpFaults | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._peer = peer
        self._server = server
        self._loss = loss
        self._faults = faults
        self._over = anyio.Event()
        self._revision: str | None = None
        self.stateless = False
        self._mirrors: dict[int, tuple[Mapping[str, Any], dict[tuple[str, ...], str]]] = {}

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        schema: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        on_notification: OnNotification | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result as it came; see `Wire.request`. It reports no stream of its own."""
        if self._over.is_set():
            raise self._loss(False)
        opts: CallOptions = {"cancel_on_abandon": method not in UNCANCELLABLE}
        if request_id is not None:
            opts["request_id"] = request_id
        if isinstance(self._dispatcher, DirectDispatcher) and (token := _progress_token(params)) is not None:
            opts["on_progress"] = partial(self._progressed, token)  # it sends no notifications
        if self._faults is not None:
            opts["headers"] = self._headers(method, params, schema)
        try:
            result = await self._dispatcher.send_raw_request(method, params, opts)
        except MCPError as exc:
            raise self._mapped(exc) from None
        if method == methods.INITIALIZE:
            self._revision, self.stateless = as_text(result.get("protocolVersion")), False
        return result

    async def _progressed(self, token: Any, progress: float, total: float | None, message: str | None) -> None:
        values = {"progressToken": token, "progress": progress, "total": total, "message": message}
        said = {name: value for name, value in values.items() if value is not None}
        self._peer.notification(methods.NOTIFICATIONS_PROGRESS, said)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; nothing is raised when the server is gone."""
        opts: CallOptions = {"headers": self._headers(method, params, None)} if self._faults is not None else {}
        await self._dispatcher.notify(method, params or None, opts)

    @property
    def over(self) -> bool:
        """Whether the conversation is over."""
        return self._over.is_set()

    async def ended(self) -> None:
        """Wait until the conversation ends otherwise than by our own closing."""
        await self._over.wait()

    def end(self) -> None:
        """Mark the conversation as over."""
        self._over.set()

    def refusal(self, schema: Mapping[str, Any]) -> str | None:
        """Return why a tool with this input schema must not be offered over HTTP (SEP-2243), or None."""
        return inbound.find_invalid_x_mcp_header(schema) if self._faults is not None else None

    def _headers(self, method: str, params: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, str]:
        meta = as_object(params.get("_meta"))
        revision = meta.get(PROTOCOL_VERSION) if meta is not None else None
        if not isinstance(revision, str):  # a legacy revision is named from the handshake on
            return {inbound.MCP_PROTOCOL_VERSION_HEADER: self._revision} if self._revision is not None else {}
        self.stateless = True
        headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: revision, inbound.MCP_METHOD_HEADER: method}
        name = params.get(NAME_PARAMETERS.get(method, ""))
        if isinstance(name, str):
            headers[inbound.MCP_NAME_HEADER] = inbound.encode_header_value(name)
        if schema is not None:
            headers.update(inbound.mcp_param_headers(self._mirror(schema), params.get("arguments") or {}))
        return headers

    def _mirror(self, schema: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
        known = self._mirrors.get(id(schema))
        if known is None or known[0] is not schema:
            known = self._mirrors[id(schema)] = (schema, inbound.x_mcp_header_map(schema))
        return known[1]

    def _mapped(self, exc: MCPError) -> ServerError:
        """Turn the SDK's error into ours: the one line that foreign errors cross."""
        code, message, data = exc.error.code, exc.error.message, exc.error.data
        fault = self._faults.take(data) if self._faults is not None else None
        if fault is not None:
            if fault.session_gone:
                self.end()
            return http_error(fault, server=self._server)
        if code == types.CONNECTION_CLOSED and message == "Connection closed":
            self.end()  # the dispatcher itself reports it only after all waiters
            return self._loss(True)
        if code == types.CONNECTION_CLOSED and (passed := _PASSED_LIMIT.match(message)) is not None:
            return http_error(too_large(int(passed[1])), server=self._server)
        if code in (types.CONNECTION_CLOSED, types.INVALID_REQUEST) and message.startswith(_GONE_STREAM):
            return ConnectionLostError(f"the answer did not come: {message}", server=self._server, sent=True)
        if code == types.PARSE_ERROR and message.startswith(_BAD_EVENT):
            message = "its event stream holds an event that is no JSON-RPC message"
        return ProtocolError(message, server=self._server, code=code, data=data)


@asynccontextmanager
async def _running(
    dispatcher: Dispatcher[TransportContext],
    peer: ClientHandlers,
    *,
    server: str,
    loss: Loss,
    faults: HttpFaults | None = None,
) -> AsyncGenerator[SdkWire, None]:
    """Run a dispatcher for as long as the block lasts."""
    wire = SdkWire(dispatcher, peer, server=server, loss=loss, faults=faults)

    async def on_request(
        _ctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        try:
            return await peer.request(method, params or {})
        except ProtocolError as exc:
            raise MCPError(code=exc.code, message=exc.message, data=exc.data) from None

    def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
        peer.notification(method, params or {})
        return True

    async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            await dispatcher.run(on_request, _drop, intercept, task_status=task_status)
        finally:
            wire.end()

    async with anyio.create_task_group() as tasks:
        await tasks.start(run)
        try:
            yield wire
        finally:
            tasks.cancel_scope.cancel()


def channel_wire(
    channel: Channel, peer: ClientHandlers, *, server: str, loss: Loss
) -> AbstractAsyncContextManager[Wire]:
    """Open a wire over a channel."""
    read: Any = _ReadStream(channel)
    write: Any = _WriteStream(channel)
    return _running(JSONRPCDispatcher(read, write), peer, server=server, loss=loss)


@asynccontextmanager
async def streams_wire(
    transport: AbstractAsyncContextManager[Any], peer: ClientHandlers, *, server: str, loss: Loss
) -> AsyncGenerator[Wire, None]:
    """Open a wire over one of the SDK's transports: an async context manager that yields `(read, write)`."""
    async with (
        transport as streams,
        _running(JSONRPCDispatcher(*streams), peer, server=server, loss=loss) as wire,
    ):
        yield wire


@asynccontextmanager
async def http_wire(
    settings: HttpSettings, peer: ClientHandlers, *, server: str, loss: Loss
) -> AsyncGenerator[Wire, None]:
    """Open a wire over Streamable HTTP."""
    faults = HttpFaults()
    async with (
        http_client(settings, faults) as client,
        streamable_http_client(settings.public_url, http_client=client, max_sse_event_size=settings.max_bytes) as (
            read,
            write,
        ),
    ):
        heard: Any = _Heard(read, peer)
        async with _running(JSONRPCDispatcher(heard, write), peer, server=server, loss=loss, faults=faults) as wire:
            heard.stateless = lambda: wire.stateless
            yield wire


@asynccontextmanager
async def sse_wire(
    settings: HttpSettings, peer: ClientHandlers, *, server: str, loss: Loss
) -> AsyncGenerator[Wire, None]:
    """Open a wire over the HTTP+SSE transport of revision 2024-11-05."""
    faults = HttpFaults()

    def factory(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        return http_client(settings, faults, answers=False)

    async with AsyncExitStack() as stack:
        try:
            streams = await stack.enter_async_context(sse_client(settings.public_url, httpx_client_factory=factory))
        except httpx2.HTTPStatusError as exc:
            raise http_error(status_fault(settings, exc.request, exc.response, b""), server=server) from exc
        except httpx2.TransportError as exc:
            raise http_error(transport_fault(exc.request, exc), server=server) from exc
        yield await stack.enter_async_context(
            _running(JSONRPCDispatcher(*streams), peer, server=server, loss=loss, faults=faults)
        )


@asynccontextmanager
async def in_process_wire(
    server: Any, peer: ClientHandlers, *, name: str, loss: Loss, legacy: bool
) -> AsyncGenerator[Wire, None]:
    """Open a wire to an SDK server object, or to a wrapper of one, in this process.

    A modern conversation passes objects, not text; a legacy one needs the handshake of a stream.
    """
    # MCPServer and FastMCP keep the low-level server under these names and offer no public one
    inner = getattr(server, "_lowlevel_server", None) or getattr(server, "_mcp_server", None) or server
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        if legacy:
            ours, theirs = await stack.enter_async_context(create_client_server_memory_streams())
            tasks.start_soon(inner.run, *theirs, inner.create_initialization_options())
            client: Dispatcher[TransportContext] = JSONRPCDispatcher(*ours)
        else:
            state = await stack.enter_async_context(inner.lifespan(inner))
            client, served = create_direct_dispatcher_pair(raise_handler_exceptions=False)
            await tasks.start(served.run, modern_on_request(inner, state), _drop)
        yield await stack.enter_async_context(_running(client, peer, server=name, loss=loss))


async def _drop(_ctx: object, _method: str, _params: Mapping[str, Any] | None) -> None:
    """Ignore a notification: none is needed in this process."""


def _progress_token(params: Mapping[str, Any]) -> Any:
    return (as_object(params.get("_meta")) or {}).get("progressToken")
