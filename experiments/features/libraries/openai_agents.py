"""OpenAI's Agents SDK: an agent with an `MCPServerStdio` for each server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.features.player import Command, Opened
from experiments.sign_in import Person, sdk_sign_in

SIGN_IN_BY_CALLER = True
"""`auth` takes an object of httpx2; what opens the page and reads the redirect is the caller's."""


class _Tools:
    def __init__(self, servers: Sequence[Any]) -> None:
        self._agents = import_module("agents")
        config = {"include_server_in_tool_names": True}
        self._agent = self._agents.Agent(name="a", mcp_servers=list(servers), mcp_config=config)

    async def _tools(self) -> Sequence[Any]:
        return await self._agent.get_mcp_tools(self._agents.RunContextWrapper(None))

    async def offered(self) -> Mapping[str, str]:
        return {tool.name: tool.description for tool in await self._tools()}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        text = json.dumps(arguments)
        (tool,) = (tool for tool in await self._tools() if tool.name == name)
        context = import_module("agents.tool_context").ToolContext(
            None, tool_name=name, tool_call_id="call_1", tool_arguments=text
        )
        result: Any = await tool.on_invoke_tool(context, text)
        return result if isinstance(result, str) else result["text"]


def params(command: Command) -> dict[str, Any]:
    """Return what starts a server."""
    return {"command": command[0], "args": list(command[1:])}


@asynccontextmanager
async def opened(servers: Mapping[str, Command], *, row: str, **_: Any) -> AsyncGenerator[Opened]:
    """Connect with a manager, which leaves out what fails; a failed call is tried again."""
    mcp = import_module("agents.mcp")
    made = [
        mcp.MCPServerStdio(params=params(command), name=name, max_retry_attempts=3 if row == "restart" else 0)
        for name, command in servers.items()
    ]
    async with mcp.MCPServerManager(made) as manager:
        yield _Tools(manager.active_servers)


@asynccontextmanager
async def opened_file(path: str, inputs: Mapping[str, str]) -> AsyncGenerator[Opened]:
    """Pass the entries of the file as parameters, as it reads no files."""
    mcp = import_module("agents.mcp")
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    async with AsyncExitStack() as stack:
        made = [mcp.MCPServerStdio(params=one, name=name) for name, one in content["servers"].items()]
        yield _Tools([await stack.enter_async_context(server) for server in made])


@asynccontextmanager
async def signed_in(url: str, person: Person) -> AsyncGenerator[Opened]:
    """Connect with the provider of the MCP SDK."""
    server = import_module("agents.mcp").MCPServerStreamableHttp(params={"url": url, "auth": sdk_sign_in(url, person)})
    async with server:
        yield _Tools([server])


@asynccontextmanager
async def approving(server: Command, paths: Sequence[str], decide: Callable[[str], bool]) -> AsyncGenerator[None]:
    """Run an agent whose server has `require_approval`, and answer its interruptions."""
    agents, mcp = import_module("agents"), import_module("agents.mcp")
    responses = import_module("openai.types.responses")
    base: Any = import_module("agents.models.interface").Model
    calls = [
        responses.ResponseFunctionToolCall(
            type="function_call", call_id=path, name="delete", arguments=json.dumps({"path": path})
        )
        for path in paths
    ]
    done = responses.ResponseOutputMessage(
        id="1",
        type="message",
        role="assistant",
        status="completed",
        content=[responses.ResponseOutputText(type="output_text", text="done", annotations=[])],
    )
    turns = [calls, [done]]

    class Scripted(base):
        async def get_response(self, *_: Any, **__: Any) -> Any:
            return agents.ModelResponse(output=turns.pop(0), usage=agents.Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    agents.set_tracing_disabled(True)
    async with mcp.MCPServerStdio(params=params(server), name="s", require_approval="always") as connected:
        agent = agents.Agent(name="a", model=Scripted(), mcp_servers=[connected])
        result = await agents.Runner.run(agent, "Clean up.")
        state = result.to_state()
        for one in result.interruptions:
            answer = state.approve if decide(json.loads(one.arguments)["path"]) else state.reject
            answer(one)
        await agents.Runner.run(agent, state)
    yield
