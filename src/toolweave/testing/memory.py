"""An MCP server in this process, for tests: real JSON-RPC in both eras, no socket and no process.

Offers what the test gives it, remembers what clients sent and misbehaves on request. Knows nothing of connections:
`connect_mcp` takes it as it takes any in-process server.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

import anyio

from toolweave.connect import Channel
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSION
from toolweave.testing.conversation import Conversation, Identity
from toolweave.testing.offer import Offer, PromptEntry, ResourceEntry
from toolweave.testing.script import Answer, Reaction, Received, Script
from toolweave.testing.shapes import Json
from toolweave.tools import FunctionTool, Tool, ToolCall, ToolSource, tool
from toolweave.tools.sources import with_registry

__all__ = ["MemoryServer"]

P = ParamSpec("P")
R = TypeVar("R")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_CALL = methods.TOOLS_CALL


class MemoryServer:
    """An MCP server in memory; `connect_mcp(server)` connects to it, as often as wanted.

        server = MemoryServer()

        @server.tool
        def add(a: int, b: int) -> int:
            return a + b

        async with connect_mcp(server) as connection:
            await connection.call_tool("add", {"a": 1, "b": 2})
        assert server.calls == [ToolCall(name="add", arguments={"a": 1, "b": 2})]

    What changes while clients are connected is told to them, in the way of their era.

    Args:
        tools: What it offers: functions, tools, a toolset, or a sequence of them.
        name: Its name, also that of connections to it.
        version: Its own version.
        instructions: What it tells models about itself.
        protocol: `"auto"` speaks every revision, `"legacy"` those with a handshake; else the one that it speaks.
        page_size: Entries on a page of a list; None is all on one.

    Attributes:
        requests: Everything that clients sent, notifications too, in order.
        conversations: How many were begun; a client that reconnects begins another.

    Raises:
        ValueError: `protocol` is no known revision.
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
        self.conversations = 0
        capabilities = {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "logging": {},
        }
        self._identity = Identity(
            info={"name": name, "version": version},
            versions=_versions(protocol),
            capabilities=capabilities,
            instructions=instructions,
        )
        self._registry, toolset = with_registry(tools)
        self._offer = Offer(toolset, page_size=page_size)
        self._script = Script()
        self._open: dict[int, tuple[AsyncExitStack, Conversation]] = {}
        self._heard = anyio.Event()
        toolset.subscribe(lambda _change: self.notify(methods.NOTIFICATIONS_TOOLS_LIST_CHANGED))

    # what it offers

    @overload
    def tool(self, item: Callable[P, R], /) -> FunctionTool[P, R]: ...
    @overload
    def tool(self, item: Tool, /) -> Tool: ...
    @overload
    def tool(self, /, **options: Any) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
    def tool(self, item: Any = None, /, **options: Any) -> Any:
        """Offer a tool, in the place of one that has its name; also a decorator, with the options of `@tool`.

        Raises:
            SchemaError: The function's signature cannot be described.
        """
        if item is None:
            return functools.partial(self._tool, options)
        return self._registry.add(item, on_conflict="replace")

    def _tool(self, options: Mapping[str, Any], function: Callable[..., Any]) -> Tool:
        return self._registry.add(tool(function, **options), on_conflict="replace")

    def remove_tool(self, name: str) -> None:
        """Take a tool away, and tell clients that the list changed.

        Raises:
            KeyError: The server has no tool of this name that was given to it as a function or `Tool`.
        """
        self._registry.remove(name)

    def resource(
        self, uri: str, content: str | bytes | None = None, *, name: str | None = None, mime_type: str | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Offer a resource: a text or bytes, or as a decorator what a function returns when it is read.

        Doing it again replaces the content.
        """

        def put(made: Any) -> Any:
            known = uri in self._offer.resources
            listed: Json = {"uri": uri, "name": name or uri}
            listed |= {} if mime_type is None else {"mimeType": mime_type}
            self._offer.resources[uri] = ResourceEntry(listed=listed, content=made)
            if known:
                self.notify(methods.NOTIFICATIONS_RESOURCES_UPDATED, {"uri": uri})
            else:
                self.notify(methods.NOTIFICATIONS_RESOURCES_LIST_CHANGED)
            return made

        if content is not None:
            put(content)
        return put

    def prompt(self, function: FunctionT) -> FunctionT:
        """Offer a prompt; a decorator: the function returns a text, or a list of messages as MCP has them."""
        arguments = [
            {"name": one.name, "required": one.default is inspect.Parameter.empty}
            for one in inspect.signature(function).parameters.values()
        ]
        name = function.__name__
        listed = {"name": name, "description": inspect.getdoc(function) or "", "arguments": arguments}
        self._offer.prompts[name] = PromptEntry(listed=listed, function=function)
        self.notify(methods.NOTIFICATIONS_PROMPTS_LIST_CHANGED)
        return function

    # how it behaves

    def answer(self, method: str, result: Answer, *, tool: str | None = None, times: int | None = None) -> None:
        """Answer requests of a method with this result, or with what a function makes of their params.

        `tool` limits it to calls of one tool, `times` to the next so many requests. What is limited goes first, in
        the order in which it was said; then counts what was said last. The members that every result of an era has
        are added.
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
        """Never answer the next requests of a method; None is for ever."""
        self._script.add(Reaction(method=on, how="hang", tool=tool, left=times))

    def crash(self, on: str | None = None, *, tool: str | None = None, times: int = 1) -> None:
        """End all conversations at once, or with `on` that in which the next request of this method comes.

        A client that connects again is served.
        """
        if on is not None:
            self._script.add(Reaction(method=on, how="crash", tool=tool, left=times))
            return
        for _, conversation in tuple(self._open.values()):
            conversation.hang_up()

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification to every client; where the era has subscriptions, to the subscribers of its topic."""
        for _, conversation in tuple(self._open.values()):
            conversation.notify(method, params or {})

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
        return await tuple(self._open.values())[-1][1].ask(method, params or {})

    # what it saw

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls that came, in order, those that were answered badly or not at all too."""
        return [
            ToolCall(name=one.tool, arguments=one.params.get("arguments") or {})
            for one in self.requests
            if one.tool is not None
        ]

    @property
    def methods(self) -> list[str]:
        """The methods of what came, in order."""
        return [one.method for one in self.requests]

    async def wait_for(self, method: str, count: int = 1) -> Received:
        """Return the `count`-th message of this method, once it came; the caller bounds the wait."""
        while True:
            found = [one for one in self.requests if one.method == method]
            if len(found) >= count:
                return found[count - 1]
            await self._heard.wait()

    # the channel, for `connect_mcp`

    async def __aenter__(self) -> Channel:
        self.conversations += 1
        conversation = Conversation(self.conversations, self._identity, self._offer, self._take)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._offer.tools)
            channel = await stack.enter_async_context(conversation.open())
            # each connection has a task of its own, in which it enters and leaves
            self._open[anyio.get_current_task().id] = (stack.pop_all(), conversation)
        return channel

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        stack, _ = self._open.pop(anyio.get_current_task().id)
        return await stack.__aexit__(exc_type, exc, traceback)

    def __repr__(self) -> str:
        return f"<MemoryServer {self.name!r}, {len(self._offer.tools.snapshot())} tools, {len(self._open)} clients>"

    def _take(self, message: Received) -> Reaction | None:
        self.requests.append(message)
        heard, self._heard = self._heard, anyio.Event()
        heard.set()
        return self._script.next_for(message) if message.id is not None else None


def _versions(protocol: str) -> tuple[str, ...]:
    if protocol == "auto":
        return (*HANDSHAKE_VERSIONS, MODERN_VERSION)
    if protocol == "legacy":
        return HANDSHAKE_VERSIONS
    if protocol not in (*HANDSHAKE_VERSIONS, MODERN_VERSION):
        known = ", ".join(("auto", "legacy", *HANDSHAKE_VERSIONS, MODERN_VERSION))
        raise ValueError(f"protocol {protocol!r} is unknown; there are {known}")
    return (protocol,)
