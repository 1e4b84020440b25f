"""Pydantic AI: an agent with an `MCPToolset` for each server, and a model that is a function."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from experiments.features.player import Command, Opened
from experiments.sign_in import Person


class _Tools:
    def __init__(self, toolsets: Sequence[Any]) -> None:
        ai, function = import_module("pydantic_ai"), import_module("pydantic_ai.models.function")
        self._messages = import_module("pydantic_ai.messages")
        self._turns: list[Any] = []
        self._offered: Mapping[str, str] = {}
        self.agent = ai.Agent(function.FunctionModel(self._answer), toolsets=toolsets)

    async def _answer(self, messages: Any, info: Any) -> Any:
        self._offered = {tool.name: tool.description for tool in info.function_tools}
        part = self._turns.pop(0) if self._turns else self._messages.TextPart("done")
        return self._messages.ModelResponse(parts=[part])

    async def offered(self) -> Mapping[str, str]:
        await self.agent.run("What can you do?")
        return self._offered

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        self._turns = [self._messages.ToolCallPart(name, dict(arguments))]
        result = await self.agent.run("Call it.")
        returned = [
            part
            for message in result.all_messages()
            for part in message.parts
            if part.part_kind in ("tool-return", "retry-prompt")
        ]
        return str(returned[-1].content)


def toolset(name: str, command: Command, **how: Any) -> Any:
    """Return a toolset of a local server."""
    transport = import_module("fastmcp.client.transports").StdioTransport
    return import_module("pydantic_ai.mcp").MCPToolset(
        transport(command=command[0], args=list(command[1:])), id=name, **how
    )


@asynccontextmanager
async def opened(servers: Mapping[str, Command], *, row: str, **_: Any) -> AsyncGenerator[Opened]:
    """Enter an agent; `cache_tools=False` where tools change, `instrument_all` where spans are looked for."""
    if row == "spans":
        import_module("pydantic_ai").Agent.instrument_all()
    how = {"cache_tools": False} if row == "changes" else {}
    toolsets = [toolset(name, command, **how).prefixed(name) for name, command in servers.items()]
    tools = _Tools(toolsets)
    async with tools.agent:
        yield tools


@asynccontextmanager
async def opened_file(path: str, inputs: Mapping[str, str]) -> AsyncGenerator[Opened]:
    """Load a file; there is no parameter for inputs."""
    tools = _Tools(import_module("pydantic_ai.mcp").load_mcp_toolsets(path))
    async with tools.agent:
        yield tools


@asynccontextmanager
async def signed_in(url: str, person: Person) -> AsyncGenerator[Opened]:
    """Connect with `auth="oauth"`, which opens the browser and listens for the redirect."""
    tools = _Tools([import_module("pydantic_ai.mcp").MCPToolset(url, auth="oauth")])
    async with tools.agent:
        yield tools


@asynccontextmanager
async def approving(server: Command, paths: Sequence[str], decide: Callable[[str], bool]) -> AsyncGenerator[None]:
    """Run an agent whose toolset is `approval_required`, and answer its deferred calls."""
    ai, messages = import_module("pydantic_ai"), import_module("pydantic_ai.messages")
    function = import_module("pydantic_ai.models.function")
    calls = [messages.ToolCallPart("delete", {"path": path}, tool_call_id=path) for path in paths]
    turns = [messages.ModelResponse(parts=calls), messages.ModelResponse(parts=[messages.TextPart("done")])]

    async def answer(_: Any, __: Any) -> Any:
        return turns.pop(0)

    agent = ai.Agent(
        function.FunctionModel(answer),
        toolsets=[toolset("s", server).approval_required()],
        output_type=[str, ai.DeferredToolRequests],
    )
    async with agent:
        result = await agent.run("Clean up.")
        decisions = {call.tool_call_id: decide(call.args["path"]) for call in result.output.approvals}
        answers = ai.DeferredToolResults(approvals=decisions)
        await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
    yield
