"""An MCP server in this process, for tests: the product's own, with a script before it; no socket and no process.

Three layers: `McpServer` offers and answers, in every revision, over its own in-process carrier. Before its endpoint is
the script (`script.py`): requests that fail, hang, crash it or are answered otherwise. Around the client's end is what
lies below the protocol: it notes what clients send, and sends what the test gives it as it is.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast, overload

import anyio

from toolweave._json_types import Json
from toolweave.connect import Channel
from toolweave.connect._channel import NotSent
from toolweave.errors import ConnectionLostError, ProtocolError, RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.jsonrpc import encode_notification
from toolweave.protocol.subscriptions import FILTERS
from toolweave.serve import create_mcp_server, prompt, resource
from toolweave.serve._changes import Topic
from toolweave.serve._duplex.inprocess import ClientEnd, InProcessSessions, Visit, in_process
from toolweave.serve._offers.prompts import PromptRegistry
from toolweave.serve._offers.resources import ResourceRegistry
from toolweave.testing._script import Reaction, ReactionScript, Received, ScriptedAnswer, ScriptedResponder
from toolweave.tools import FunctionTool, Tool, ToolCall, ToolSource, tool
from toolweave.tools.sources import with_registry

P = ParamSpec("P")
R = TypeVar("R")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_CALL = methods.TOOLS_CALL
_KEPT_MS = 300_000


class MemoryServer:
    """An MCP server in memory; `connect_mcp(server)` connects to it, as often as wanted.

        server = MemoryServer()

        @server.tool
        def add(a: int, b: int) -> int:
            return a + b

        async with connect_mcp(server) as connection:
            await connection.call_tool("add", {"a": 1, "b": 2})
        assert server.calls == [ToolCall(name="add", arguments={"a": 1, "b": 2})]

    It is what `create_mcp_server` makes, and more on request: `answer`, `fail_next`, `hang` and `crash` script what
    becomes of requests, before the server itself is asked; `notify`, `ask` and `send` are what a server says unasked.
    Clients that are connected are notified of changes at once, in the way of their era.

    Args:
        tools: Its tools: functions, tools, a toolset, or a sequence of them.
        name: Its name, also that of connections to it.
        version: Its own version.
        instructions: Its instructions for models.
        protocol: `"auto"` speaks every revision, `"legacy"` those with a handshake; else the one that it speaks.
        page_size: Entries on a page of a list; None is all on one.

    Attributes:
        requests: Everything that clients sent, notifications too, in order.
        conversations: The number of conversations; a client that reconnects begins another.

    Raises:
        ValueError: `protocol` is not a known revision.
    """

    def __init__(
        self,
        tools: ToolSource = (),
        *,
        name: str = "memory",
        version: str = "1.0.0",
        instructions: str | None = None,
        protocol: str = "auto",
        page_size: int | None = None,
    ) -> None:
        self.name = name
        self.requests: list[Received] = []
        self.conversations: int = 0
        self._registry, toolset = with_registry(tools)
        self._resources, self._prompts = ResourceRegistry(), PromptRegistry()
        self._server = create_mcp_server(
            name,
            version,
            instructions=instructions,
            tools=toolset,
            resources=self._resources,  # as sources, which are declared while they are empty too
            prompts=self._prompts,
            page_size=page_size,
            ttl_ms=_KEPT_MS,
            logging=True,
        )
        self._server.speak(protocol)
        # The pause spares clients of real servers. A test would only wait for it.
        self._server.changes.debounce = 0
        self._script = ReactionScript()
        self._responder = ScriptedResponder(self._server.endpoint, self._script, self._hang_up)
        self._visits = InProcessSessions(self._visit)
        self._open: dict[Visit, asyncio.AbstractEventLoop] = {}
        self._arrival = anyio.Event()

    # tools, resources and prompts

    @overload
    def tool(self, item: Callable[P, R], /) -> FunctionTool[P, R]: ...
    @overload
    def tool(self, item: Tool, /) -> Tool: ...
    @overload
    def tool(self, /, **options: Any) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
    def tool(self, item: Any = None, /, **options: Any) -> Any:
        """Offer a tool, replacing one of its name; also a decorator, with the options of `@tool`.

        Raises:
            SchemaError: The function's signature cannot be described.
        """
        if item is None:
            return functools.partial(self._tool, options)
        return self._registry.add(item, on_conflict="replace")

    def _tool(self, options: Mapping[str, Any], function: Callable[..., Any]) -> Tool:
        return self._registry.add(tool(function, **options), on_conflict="replace")

    def remove_tool(self, name: str) -> None:
        """Remove a tool, and notify clients that the list changed.

        Raises:
            KeyError: The server has no tool of this name that was given to it as a function or `Tool`.
        """
        self._registry.remove(name)

    def resource(
        self, uri: str, content: str | bytes | None = None, *, name: str | None = None, mime_type: str | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Offer a resource: a text or bytes, or, as a decorator, a function that returns the content when it is read.

        Doing it again replaces the content. As with `toolweave.serve.resource`, a template of URIs takes a function.

        Raises:
            SchemaError: The URI is not valid, or the function does not fit it.
        """
        make = resource(uri, name=name or uri, mime_type=mime_type)

        def put(made: FunctionT) -> FunctionT:
            self._resources.add(make(made), replace=True)
            return made

        if content is not None:

            async def fixed() -> str | bytes:
                return content

            self._resources.add(make(fixed), replace=True)
        return put

    def prompt(self, function: FunctionT) -> FunctionT:
        """Offer a prompt, replacing one that has its name; a decorator.

        The function takes and returns what one of `toolweave.serve.prompt` does, such as a text, or a list of messages
        as MCP has them.

        Raises:
            SchemaError: No string can be converted to one of the function's parameters.
        """
        self._prompts.add(prompt(function), replace=True)
        return function

    # how it behaves

    def answer(self, method: str, result: ScriptedAnswer, *, tool: str | None = None, times: int | None = None) -> None:
        """Answer requests of a method with this result, or with that of a function of their params.

        `tool` limits it to calls of one tool, `times` to the next so many requests. Limited answers come first, in
        the order of these calls; then the newest unlimited one. The members that every result of an era has are
        added.
        """
        self._script.add(Reaction(method=method, how="answer", answer=result, tool=tool, left=times))

    def fail_next(
        self,
        method: str = _CALL,
        message: str = "refused on purpose",
        *,
        code: int = INTERNAL_ERROR,
        data: Any = None,
        tool: str | None = None,
        times: int = 1,
    ) -> None:
        """Answer the next requests of a method with a JSON-RPC error."""
        error = {"code": code, "message": message, "data": data}
        self._script.add(Reaction(method=method, how="refuse", error=error, tool=tool, left=times))

    def hang(self, on: str = _CALL, *, tool: str | None = None, times: int | None = 1) -> None:
        """Never answer the next `times` requests of a method; None is for ever."""
        self._script.add(Reaction(method=on, how="hang", tool=tool, left=times))

    def crash(self, on: str | None = None, *, tool: str | None = None, times: int = 1) -> None:
        """End all conversations at once, or with `on` that in which the next request of this method comes.

        A client that connects again is served.
        """
        if on is not None:
            self._script.add(Reaction(method=on, how="crash", tool=tool, left=times))
            return
        self._hang_up(None)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification to every client; one that needs a subscription only to subscribers, in their form."""
        payload = params or {}
        if method in FILTERS:
            self._server.changes.publish(Topic(method, str(payload.get("uri", ""))), payload)
        else:
            self.send(encode_notification(method, payload))

    def send(self, message: Mapping[str, Any] | bytes) -> None:
        """Send every client one message as it is: JSON, or bytes that may be anything.

        Below the protocol: for what no server should say, such as what is not JSON, or an unrequested answer.

        Raises:
            TypeError, ValueError: The message is not JSON.
        """
        if isinstance(message, bytes):
            text = message
        else:
            text = json.dumps(dict(message), allow_nan=False).encode()
        for visit, loop in tuple(self._open.items()):
            _on(loop, visit.write, text)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        """Send a request, such as `sampling/createMessage`, to the client that connected last; return its result.

        Only the revisions before 2026-07-28 have such requests.

        Raises:
            ProtocolError: The client refused.
            ConnectionLostError: The client was gone before it answered.
            RuntimeError: No client is connected.
        """
        if not self._open:
            raise RuntimeError(f"no client is connected to server {self.name!r}")
        visit = tuple(self._open)[-1]
        try:
            return await visit.conversation.ask(method, params or {})
        except RequestError as exc:
            if visit.over:
                raise ConnectionLostError(exc.message, server=self.name, sent=True) from None
            raise ProtocolError(exc.message, server=self.name, code=exc.code, data=exc.data) from None

    # the recorded messages

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls that were received, in order, including those answered badly or not at all."""
        calls: list[ToolCall] = []
        for request in self.requests:
            if request.tool is not None:
                call = ToolCall(name=request.tool, arguments=request.params.get("arguments") or {})
                calls.append(call)
        return calls

    @property
    def methods(self) -> list[str]:
        """The methods of the received messages, in order."""
        return [one.method for one in self.requests]

    async def wait_for(self, method: str, count: int = 1) -> Received:
        """Return the `count`-th message of this method once it is received; the caller bounds the wait."""
        while True:
            found = [one for one in self.requests if one.method == method]
            if len(found) >= count:
                return found[count - 1]
            await self._arrival.wait()

    # the channel, for `connect_mcp`

    async def __aenter__(self) -> Channel:
        return await self._visits.enter()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._visits.leave(exc_type, exc, traceback)

    def __repr__(self) -> str:
        return f"<MemoryServer {self.name!r}, {len(self._server.tools.snapshot())} tools, {len(self._open)} clients>"

    @asynccontextmanager
    async def _visit(self) -> AsyncGenerator[Channel, None]:
        self.conversations += 1
        note = functools.partial(self._note, self.conversations)
        async with self._server.running(), in_process(self._responder, conversations=self._server.changes) as visit:
            self._open[visit] = asyncio.get_running_loop()
            try:
                yield _WatchedChannel(visit.client, note)
            finally:
                del self._open[visit]

    def _hang_up(self, conversation: str | None) -> None:
        # A copy, because a conversation that ends removes itself.
        for visit, loop in tuple(self._open.items()):
            if conversation in (None, visit.conversation.name):
                _on(loop, visit.hang_up)

    def _note(self, conversation: int, text: bytes) -> None:
        try:
            sent: Any = json.loads(text)
        except ValueError:
            return
        # A list is a batch, which clients of 2025-03-26 may send.
        for message in cast("list[Any]", sent) if isinstance(sent, list) else [sent]:
            if isinstance(message, dict) and "method" in message:
                members = cast("Json", message)
                params: Any = members.get("params")
                received = Received(
                    method=str(members["method"]),
                    params=cast("Json", params) if isinstance(params, dict) else {},
                    id=members.get("id"),
                    conversation=conversation,
                )
                self.requests.append(received)
        # Replaced before it is set: a waiter that does not find its message yet must wait for the next one.
        arrival = self._arrival
        self._arrival = anyio.Event()
        arrival.set()


class _WatchedChannel:
    """The client's end of a conversation; its messages are noted before they are sent."""

    def __init__(self, client: ClientEnd, note: Callable[[bytes], None]) -> None:
        self._client = client
        self._note = note

    async def send(self, message: bytes) -> None:
        # First, because the response may be there before `send` returns, and a test looks at `requests` then.
        self._note(message)
        try:
            await self._client.send(message)
        except BrokenPipeError as exc:
            raise NotSent(str(exc)) from None

    async def receive(self) -> bytes:
        return await self._client.receive()


def _on(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *args: Any) -> None:
    """Act on an event loop: now if it is this thread's, else soon; a plain tool runs in another thread."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        act(*args)
    else:
        loop.call_soon_threadsafe(act, *args)
