"""The official SDK's low-level `Server` in front of one of ours: the reference for our loops.

One middleware passes every request to our endpoint before the SDK parses it, so results are sent as they were made.
What differs in a transcript is then the loop's.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import uuid4

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError

from toolweave import McpServer
from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.jsonrpc import decoded, writable
from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._http.asgi import VisibleHeaders
from toolweave.serve._task_spawner import SpawnsTasks, TaskSpawner
from toolweave.serve.request import ChangeSubscriptions, Client, Json, Request, principal_of

_log = logging.getLogger("tests.serve")

_DECLARED = "toolweave.declared"
_JOINED = "toolweave.joined"
_CONVERSATION = "toolweave.conversation"
_UNGATED = frozenset({methods.INITIALIZE, methods.PING})


def sdk_server(served: McpServer) -> Server[Any]:
    """Return an SDK server that answers with the endpoint of a server of ours."""

    @asynccontextmanager
    async def living(_: object) -> AsyncGenerator[TaskSpawner]:
        async with served.running() as tasks:
            yield TaskSpawner(tasks)

    info = served.endpoint.info
    server: Server[Any] = Server(
        str(info["name"]),
        version=str(info["version"]),
        lifespan=living,
        get_tool_input_schema=served.tool_schema,
    )
    server.middleware[:] = [_EndpointMiddleware(served.endpoint, served.changes)]
    return server


class _EndpointMiddleware:
    """The middleware that passes every request to the endpoint, and none to the SDK's own handlers."""

    def __init__(self, endpoint: Endpoint, conversations: ChangeSubscriptions | None) -> None:
        self._endpoint = endpoint
        self._conversations = conversations

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        outbound, connection = _parts(ctx)
        if ctx.request_id is None:
            if ctx.method == methods.NOTIFICATIONS_INITIALIZED:
                self._join(connection, ctx.lifespan_context)
            return await call_next(ctx)
        if ctx.protocol_version != MODERN_VERSION:
            if ctx.method == methods.INITIALIZE:
                connection.state[_DECLARED] = dict(ctx.params or {})
            elif ctx.method not in _UNGATED and not connection.initialize_accepted:
                raise MCPError(code=INVALID_PARAMS, message=f"{ctx.method} before initialize")
        request = Request(
            method=ctx.method,
            params=ctx.params or {},
            client=_client(ctx, connection),
            reply_channel=_SdkReplyChannel(outbound, ctx),
            id=ctx.request_id,
            headers={} if ctx.request is None else VisibleHeaders(ctx.request.scope["headers"]),
        )
        try:
            return writable(decoded(await self._endpoint.answer(request)))
        except RequestError as exc:
            raise _refusal(exc) from None
        except (TypeError, ValueError):  # boundary: a result that is not JSON, which the SDK fails to send
            _log.exception("the result of %s cannot be written", ctx.method)
            raise MCPError(code=INTERNAL_ERROR, message="Internal error") from None

    def _join(self, connection: Connection, tasks: SpawnsTasks) -> None:
        if self._conversations is None or not connection.has_standalone_channel or _JOINED in connection.state:
            return
        connection.state[_JOINED] = True

        pushes = _QueuedNotifications(connection, tasks)
        connection.exit_stack.callback(self._conversations.join(pushes.put, conversation=_conversation(connection)))


class _QueuedNotifications:
    """The change notifications of a legacy conversation, sent one after the other.

    While its client reads nothing only the newest of each is kept, so that the buffer is bounded.
    """

    def __init__(self, connection: Connection, tasks: SpawnsTasks) -> None:
        self._connection = connection
        self._tasks = tasks
        self._waiting: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._sending = False

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue a notification; never waits."""
        self._waiting[method, str(params.get("uri", ""))] = params
        if not self._sending:
            self._sending = True
            self._tasks.start_soon(self._send)

    async def _send(self) -> None:
        try:
            while self._waiting:
                topic = next(iter(self._waiting))
                await self._connection.notify(topic[0], self._waiting.pop(topic))
        finally:
            self._sending = False


class _SdkReplyChannel:
    """A reply channel through the SDK's dispatcher."""

    def __init__(self, outbound: DispatchContext[Any], ctx: ServerRequestContext[Any, Any]) -> None:
        self._outbound = outbound
        self._ctx = ctx

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._outbound.notify(method, writable(params))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        try:
            return await self._outbound.send_raw_request(method, writable(params))
        except MCPError as exc:
            raise RequestError(exc.message, code=exc.code, data=exc.data) from None

    async def release(self) -> None:
        if self._ctx.close_sse_stream is not None:
            await self._ctx.close_sse_stream()


def _refusal(error: RequestError) -> MCPError:
    """Return an error as the SDK sends it; `data` that is not JSON is left out."""
    try:
        data = writable(error.data)
    except (TypeError, ValueError):
        data = None
    return MCPError(code=error.code, message=writable(error.message), data=data)


def _parts(ctx: ServerRequestContext[Any, Any]) -> tuple[DispatchContext[Any], Connection]:
    """Return a request's own channel and its connection, which the SDK keeps private."""
    session = ctx.session
    return session._request_outbound, session._connection  # pyright: ignore[reportPrivateUsage]


def _conversation(connection: Connection) -> str:
    return connection.state.setdefault(_CONVERSATION, uuid4().hex)


def _client(ctx: ServerRequestContext[Any, Any], connection: Connection) -> Client:
    if ctx.protocol_version == MODERN_VERSION:
        meta = cast("Json", (ctx.params or {}).get("_meta") or {})
        declared = meta.get(CLIENT_CAPABILITIES)
        info = meta.get(CLIENT_INFO)
        conversation = None
    else:
        handshake = connection.state.get(_DECLARED, {})
        declared = handshake.get("capabilities")
        info = handshake.get("clientInfo")
        conversation = _conversation(connection) if connection.has_standalone_channel else None
    return Client(
        version=ctx.protocol_version,
        capabilities=cast("Json", declared) if isinstance(declared, dict) else {},
        info=cast("Json", info) if isinstance(info, dict) else None,
        principal=_principal(),
        conversation=conversation,
    )


def _principal() -> str | None:
    token = get_access_token()
    if token is None:
        return None
    return principal_of(*principal_components(token))


async def serve_stdio(served: McpServer) -> None:
    """Serve one client over standard input and output with the SDK's own loop."""
    server = sdk_server(served)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
