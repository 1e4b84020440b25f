"""One client of one library as it comes, driven: `player.py PEER`, with a scenario as JSON on standard input.

`{"servers": {NAME: {"command": [...]} or {"url": ...}}, "steps": [...], "sign_in": {...} or null}`, where a step is
`["list"]` or `["call", TOOL, ARGUMENTS]`. Prints, as JSON, what a model would be given at each step or the error, what
was logged and warned of, which pages a browser was sent to, and the most memory that the process had. Each library runs
in an environment of its own; this file needs nothing but it and `experiments.sign_in`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import warnings
import webbrowser
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from experiments.sign_in import REDIRECT, SECONDS, Person, sdk_sign_in

INNER = "10."
"""Addresses of a network that is not there: a connection to one comes out on this machine, where it is seen."""
PEAKS: list[int] = []
"""The most memory of another process in which a library works for its user, in megabytes."""


class Played(Protocol):
    """What a library's user has in hand."""

    async def tools(self) -> list[dict[str, Any]]:
        """Return the definitions as a model is given them."""
        ...

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool and return what a model reads."""
        ...


Scenario = Mapping[str, Any]
Opening = Callable[[Scenario, Person], Any]


def text_of(content: Any) -> str:
    """Return the text of a result's blocks."""
    return "\n".join(block.text for block in content if getattr(block, "text", None) is not None)


def defined(tool: Any) -> dict[str, Any]:
    """Return a definition of the SDK's type."""
    return tool.model_dump(mode="json", exclude_none=True)


class _Sdk:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        return [defined(tool) for tool in (await self._client.list_tools()).tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return text_of((await self._client.call_tool(name, arguments)).content)


class _SdkGroup:
    def __init__(self, group: Any) -> None:
        self._group = group

    async def tools(self) -> list[dict[str, Any]]:
        return [{**defined(tool), "name": name} for name, tool in self._group.tools.items()]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return text_of((await self._group.call_tool(name, arguments)).content)


@asynccontextmanager
async def sdk(scenario: Scenario, person: Person) -> AsyncGenerator[Played]:
    """The official SDK: `Client`, and `ClientSessionGroup` for several servers."""
    mcp = import_module("mcp")
    servers = scenario["servers"]
    async with AsyncExitStack() as stack:
        if len(servers) > 1:
            group = await stack.enter_async_context(mcp.ClientSessionGroup())
            for server in servers.values():
                command = server["command"]
                await group.connect_to_server(mcp.StdioServerParameters(command=command[0], args=command[1:]))
            yield _SdkGroup(group)
            return
        (server,) = servers.values()
        if "url" in server:
            httpx, streams = import_module("httpx2"), import_module("mcp.client.streamable_http")
            given = scenario["sign_in"]
            provider = None if given is None else sdk_sign_in(server["url"], person, given)
            client = await stack.enter_async_context(httpx.AsyncClient(auth=provider, timeout=SECONDS))
            target: Any = streams.streamable_http_client(server["url"], http_client=client)
        else:
            command = server["command"]
            target = mcp.StdioServerParameters(command=command[0], args=command[1:])
        yield _Sdk(await stack.enter_async_context(mcp.Client(target)))


class _FastMcp:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        return [defined(tool) for tool in await self._client.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return text_of((await self._client.call_tool(name, arguments, raise_on_error=False)).content)


@asynccontextmanager
async def fastmcp(scenario: Scenario, person: Person) -> AsyncGenerator[Played]:
    """FastMCP's `Client` on a config, or with its `OAuth`."""
    module = import_module("fastmcp")
    servers, given = scenario["servers"], scenario["sign_in"]
    webbrowser.open = person.open  # its sign-in calls this
    if given is not None:
        (server,) = servers.values()
        oauth = import_module("fastmcp.client.auth").OAuth(**given)
        client: Any = module.Client(server["url"], auth=oauth, timeout=SECONDS)
    else:
        entries = {
            name: one if "url" in one else {"command": one["command"][0], "args": one["command"][1:]}
            for name, one in servers.items()
        }
        client = module.Client({"mcpServers": entries}, timeout=SECONDS)
    async with client:
        yield _FastMcp(client)


class _Agents:
    def __init__(self, agent: Any) -> None:
        self._agent = agent

    async def _tools(self) -> Any:
        context = import_module("agents").RunContextWrapper(None)
        return await self._agent.get_mcp_tools(context)

    async def tools(self) -> list[dict[str, Any]]:
        return [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.params_json_schema}
            for tool in await self._tools()
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        text = json.dumps(arguments)
        context = import_module("agents.tool_context").ToolContext(
            None, tool_name=name, tool_call_id="call_1", tool_arguments=text
        )
        tool = {one.name: one for one in await self._tools()}[name]
        result = await tool.on_invoke_tool(context, text)
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


@asynccontextmanager
async def openai_agents(scenario: Scenario, person: Person) -> AsyncGenerator[Played]:
    """An agent of openai-agents with its servers."""
    agents, mcp = import_module("agents"), import_module("agents.mcp")
    async with AsyncExitStack() as stack:
        opened: list[Any] = []
        for name, one in scenario["servers"].items():
            params = {"command": one["command"][0], "args": one["command"][1:]}
            server = mcp.MCPServerStdio(params=params, name=name, client_session_timeout_seconds=SECONDS)
            opened.append(await stack.enter_async_context(server))
        yield _Agents(agents.Agent(name="a", mcp_servers=opened))


class _Langchain:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        convert = import_module("langchain_core.utils.function_calling").convert_to_openai_tool
        return [convert(tool)["function"] for tool in await self._client.get_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        tool = {one.name: one for one in await self._client.get_tools()}[name]
        message = await tool.ainvoke({"type": "tool_call", "id": "call_1", "name": name, "args": arguments})
        content = message.content
        return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


@asynccontextmanager
async def langchain(scenario: Scenario, person: Person) -> AsyncGenerator[Played]:
    """The `MultiServerMCPClient` of langchain-mcp-adapters, whose tools are asked for anew each time."""
    entries = {
        name: {"transport": "stdio", "command": one["command"][0], "args": one["command"][1:]}
        for name, one in scenario["servers"].items()
    }
    yield _Langchain(import_module("langchain_mcp_adapters.client").MultiServerMCPClient(entries))


class _Toolweave:
    def __init__(self, hub: Any, tools: Any) -> None:
        self._hub = hub
        self._exported = import_module("toolweave.providers").AnthropicTools(tools)

    async def tools(self) -> list[dict[str, Any]]:
        for text in self._hub.warnings:
            logging.getLogger("hub").warning("%s", text)
        return self._exported.definitions()

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return await dispatched(self._exported, name, arguments)


async def dispatched(exported: Any, name: str, arguments: dict[str, Any]) -> str:
    """Run a tool as a model asks for it; return what the model reads."""
    asked = {"content": [{"type": "tool_use", "id": "call_1", "name": name, "input": arguments}]}
    (block,) = await exported.dispatch(asked)
    content = block["content"]
    return content if isinstance(content, str) else "\n".join(one.get("text", "") for one in content)


def own_entries(scenario: Scenario, person: Person) -> dict[str, Any]:
    """Return the servers as entries of ours."""
    entries: dict[str, Any] = {}
    for name, one in scenario["servers"].items():
        entries[name] = one if "url" in one else {"command": one["command"][0], "args": one["command"][1:]}
        if scenario["sign_in"] is not None:
            oauth, agent = import_module("toolweave.oauth"), import_module("experiments.attacks.visitor")
            settings = {"store": oauth.MemoryTokenStore(), "user_agent": agent.Visitor(person, REDIRECT)}
            entries[name] = {**one, "auth": oauth.OAuth(**settings, **scenario["sign_in"])}
        if len(scenario["servers"]) == 1:
            entries[name] = {**entries[name], "tool_prefix": ""}
    return entries


@asynccontextmanager
async def toolweave(scenario: Scenario, person: Person) -> AsyncGenerator[Played]:
    """A `Hub` of ours, exported for a model."""
    module = import_module("toolweave")
    async with module.connect_mcp_servers(own_entries(scenario, person), on_error="raise") as hub:
        yield _Toolweave(hub, hub)


class _Caller:
    def __init__(self, caller: Any) -> None:
        self._caller = caller
        self._exported = import_module("toolweave.providers").AnthropicTools(caller.connection)

    async def tools(self) -> list[dict[str, Any]]:
        await self._caller.look()
        return self._exported.definitions()

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return await self._caller.call(name, arguments)


class _Model(_Caller):
    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return await dispatched(self._exported, self._caller.named(name), arguments)


@asynccontextmanager
async def toolweave_gateway(scenario: Scenario, person: Person) -> AsyncGenerator[Played]:
    """A caller of a gateway of ours, a process of its own; what the gateway says to whoever runs it counts as said."""
    module = import_module("experiments.attacks.through_gateway")
    given = scenario["sign_in"]
    async with module.calling(scenario["servers"], given, person, PEAKS) as caller:
        yield _Model(caller) if given is None else _Caller(caller)
        for text in caller.said:
            logging.getLogger("gateway").warning("%s", text)


PEERS: dict[str, Opening] = {
    "toolweave": toolweave,
    "toolweave-gateway": toolweave_gateway,
    "sdk": sdk,
    "fastmcp": fastmcp,
    "openai-agents": openai_agents,
    "langchain": langchain,
}


def _warned(said: list[str], message: Warning | str, *_: Any, **__: Any) -> None:
    said.append(str(message))


class _Said(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record.getMessage())


def see_inner_addresses() -> None:
    """Let connections to inner addresses come out on this machine."""
    loop: Any = import_module("asyncio.selector_events").BaseSelectorEventLoop
    connect: Any = loop.sock_connect

    async def sock_connect(self: Any, sock: Any, address: Any) -> Any:
        if str(address[0]).startswith(INNER):
            address = ("127.0.0.1", address[1])
        return await connect(self, sock, address)

    loop.sock_connect = sock_connect


def root_of(error: BaseException) -> BaseException:
    """Return the first error in a group of them."""
    group: Any = error
    return root_of(group.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def play(peer: str, scenario: Scenario) -> dict[str, Any]:
    """Play a scenario."""
    said: list[str] = []
    logging.getLogger().addHandler(_Said(said))
    logging.getLogger("fastmcp").addHandler(_Said(said))
    warnings.showwarning = partial(_warned, said)
    person, steps = Person(), list[dict[str, Any]]()
    try:
        async with asyncio.timeout(2 * SECONDS), PEERS[peer](scenario, person) as played:
            for step in scenario["steps"]:
                try:
                    if step[0] == "list":
                        steps.append({"tools": await played.tools()})
                    else:
                        steps.append({"text": await played.call(step[1], step[2])})
                except Exception as exc:  # boundary: it is what is looked at
                    steps.append({"error": f"{type(root_of(exc)).__name__}: {root_of(exc)}"})
                await asyncio.sleep(scenario.get("pause", 0))
    except Exception as exc:  # boundary: the same
        steps.append({"error": f"{type(root_of(exc)).__name__}: {root_of(exc)}", "connecting": True})
    return {"steps": steps, "said": said, "opened": person.opened, "megabytes": max(most_memory(), *PEAKS, 0)}


def most_memory() -> int:
    """Return the most memory that this process had, in megabytes.

    Where `/proc` is, it tells; `ru_maxrss` would begin with what the process that started this one had.
    """
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) // 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    see_inner_addresses()
    outcome = asyncio.run(play(sys.argv[1], json.load(sys.stdin)))
    sys.stdout.write("\n" + json.dumps(outcome) + "\n")
