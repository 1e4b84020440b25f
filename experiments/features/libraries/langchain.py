"""LangChain's adapters: `MultiServerMCPClient`, with `create_agent` of langchain where an agent is needed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.features.player import Command, Opened
from experiments.sign_in import Person, sdk_sign_in

SIGN_IN_BY_CALLER = True
"""`auth` takes an object of httpx; what opens the page and reads the redirect is the caller's."""


class _Tools:
    def __init__(self, tools: Sequence[Any]) -> None:
        self._tools = tools

    async def offered(self) -> Mapping[str, str]:
        convert = import_module("langchain_core.utils.function_calling").convert_to_openai_tool
        functions = [convert(tool)["function"] for tool in self._tools]
        return {function["name"]: function["description"] for function in functions}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        (tool,) = (tool for tool in self._tools if tool.name == name)
        message = await tool.ainvoke({"type": "tool_call", "id": "call_1", "name": name, "args": dict(arguments)})
        content = message.content
        return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


def entry(command: Command) -> dict[str, Any]:
    """Return a connection."""
    return {"transport": "stdio", "command": command[0], "args": list(command[1:])}


async def tools_of(connections: Mapping[str, Any]) -> Sequence[Any]:
    """Return the tools that an agent would be made with."""
    return await import_module("langchain_mcp_adapters.client").MultiServerMCPClient(dict(connections)).get_tools()


@asynccontextmanager
async def opened(servers: Mapping[str, Command], **_: Any) -> AsyncGenerator[Opened]:
    """Get the tools once, as for an agent; each call has a session of its own."""
    yield _Tools(await tools_of({name: entry(command) for name, command in servers.items()}))


@asynccontextmanager
async def opened_file(path: str, inputs: Mapping[str, str]) -> AsyncGenerator[Opened]:
    """Pass the servers of the file as connections, as it reads no files."""
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    servers = {name: {"transport": one.pop("type"), **one} for name, one in content["servers"].items()}
    yield _Tools(await tools_of(servers))


@asynccontextmanager
async def signed_in(url: str, person: Person) -> AsyncGenerator[Opened]:
    """Connect with the provider of the MCP SDK."""
    connection = {"transport": "streamable_http", "url": url, "auth": sdk_sign_in(url, person)}
    yield _Tools(await tools_of({"api": connection}))


@asynccontextmanager
async def approving(server: Command, paths: Sequence[str], decide: Callable[[str], bool]) -> AsyncGenerator[None]:
    """Run an agent of langchain with its `HumanInTheLoopMiddleware`."""
    agents, middleware = import_module("langchain.agents"), import_module("langchain.agents.middleware")
    messages, types = import_module("langchain_core.messages"), import_module("langgraph.types")
    fake = import_module("langchain_core.language_models.fake_chat_models")
    saver = import_module("langgraph.checkpoint.memory").InMemorySaver()
    calls = [{"name": "delete", "args": {"path": path}, "id": path} for path in paths]
    turns = iter([messages.AIMessage(content="", tool_calls=calls), messages.AIMessage(content="done")])
    base: Any = fake.GenericFakeChatModel

    class Scripted(base):
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

    agent = agents.create_agent(
        Scripted(messages=turns),
        tools=await tools_of({"s": entry(server)}),
        middleware=[middleware.HumanInTheLoopMiddleware(interrupt_on={"delete": True})],
        checkpointer=saver,
    )
    thread = {"configurable": {"thread_id": "1"}}
    state = await agent.ainvoke({"messages": [messages.HumanMessage("Clean up.")]}, thread)
    for interrupt in state["__interrupt__"]:
        asked = [request["args"]["path"] for request in interrupt.value["action_requests"]]
        decisions = [{"type": "approve" if decide(path) else "reject"} for path in asked]
        await agent.ainvoke(types.Command(resume={"decisions": decisions}), thread)
    yield
