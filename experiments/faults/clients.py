"""The clients that the battery can be played against, each reduced to what the judge needs; imported when made.

`toolweave` is ours, `defaults` the same without any setting, `gateway` the same through a gateway that has none either;
`sdk` and `fastmcp` are the peers with the bound of the row and no other setting, but for the end of FastMCP's
processes; `naive` is the bare minimum that a program needs to talk to a server, with no defence at all; `brittle` has
defences that can be taken out one by one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any, cast

import anyio.to_thread

from experiments.faults.brittle import Brittle
from experiments.faults.judge import Client

__all__ = ["CLIENTS", "Careless", "Defaults", "Fastmcp", "InProcessGateway", "Naive", "Ours", "Sdk", "bounds"]

Target = list[str] | str
Json = dict[str, Any]


def bounds(seconds: float) -> dict[str, float]:
    """Return our bounds for a row: every wait, and a short farewell."""
    return {"connect": seconds, "probe": seconds / 3, "list": seconds, "call": seconds, "read": seconds, "close": 1}


def entry(target: Target) -> dict[str, Any]:
    """Return the entry of a server in a config."""
    return {"url": target} if isinstance(target, str) else {"command": target[0], "args": target[1:]}


class Ours:
    """`toolweave.connect_mcp`, one kept connection."""

    def __init__(self, target: Target, seconds: float, **options: Any) -> None:
        self.target, self.seconds, self.options = entry(target), seconds, options
        self.connection: Any = None  # a McpConnection; its module is not imported for the other clients

    async def open(self) -> None:
        from toolweave import connect_mcp

        self.connection = await connect_mcp(self.target, timeout=bounds(self.seconds), **self.options)

    async def tools(self) -> Iterable[str]:
        return {tool.name for tool in await self.connection.list_tools()}

    async def call(self, text: str) -> str:
        result = await self.connection.call_tool("echo", {"text": text})
        if result.is_error:
            raise RuntimeError(result.text)
        return str(result.text)

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()


class Defaults(Ours):
    """The same as it comes, without a single setting."""

    async def open(self) -> None:
        from toolweave import connect_mcp

        self.connection = await connect_mcp(self.target)


class InProcessGateway(Ours):
    """Our client, without a setting of its own, on a gateway in this process; its server has the bounds of the row."""

    async def open(self) -> None:
        from toolweave import connect_mcp
        from toolweave.gateway import create_gateway

        upstream = {**self.target, "timeout": bounds(self.seconds), "tool_prefix": "", **self.options}
        gateway = create_gateway({"odd": upstream})
        self.connection = await connect_mcp(gateway)
        error = gateway.hub.errors.get("odd")
        if error is not None:  # which a gateway tells whoever runs it
            await self.close()
            raise error


def through_gateway(target: Target, seconds: float) -> Client:
    """Return our client behind a gateway in a process of its own, without any setting; only the client has a bound."""
    from experiments.faults.through_gateway import SoleBehind

    return SoleBehind(target, seconds)


class Peer:
    """A client of the SDK's shape, entered by hand so that it is kept over the calls."""

    def __init__(self, target: Target, seconds: float) -> None:
        self.target, self.seconds = target, seconds
        self.stack = contextlib.AsyncExitStack()
        self.client: Any = None

    def make(self) -> Any:  # a client with the methods of the SDK's
        raise NotImplementedError

    async def open(self) -> None:
        self.client = await self.stack.enter_async_context(self.make())

    async def tools(self) -> Iterable[str]:
        listed = await self.client.list_tools()
        return {tool.name for tool in getattr(listed, "tools", listed)}

    async def call(self, text: str) -> str:
        result = await self.client.call_tool("echo", {"text": text})
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        if getattr(result, "is_error", False):
            raise RuntimeError(text)
        return text

    async def close(self) -> None:
        await self.stack.aclose()


class Sdk(Peer):
    """`mcp.Client` with a read timeout."""

    def make(self) -> Any:
        mcp = importlib.import_module("mcp")
        target: Any = self.target
        if not isinstance(target, str):
            target = mcp.StdioServerParameters(command=target[0], args=target[1:])
        return mcp.Client(target, read_timeout_seconds=self.seconds)


class Fastmcp(Peer):
    """`fastmcp.Client` with every documented timeout."""

    def make(self) -> Any:
        fastmcp = importlib.import_module("fastmcp")
        target: Any = self.target
        if not isinstance(target, str):
            transports = importlib.import_module("fastmcp.client.transports")
            target = transports.StdioTransport(command=target[0], args=target[1:], keep_alive=False)
        return fastmcp.Client(target, timeout=self.seconds, init_timeout=self.seconds)


class Naive:
    """What stands in every tutorial: write a line, read a line; post, read the body. No bound, no check, no restart."""

    def __init__(self, target: Target, seconds: float = 0) -> None:
        self.target = target
        self.process: subprocess.Popen[bytes] | None = None
        self.session: str | None = None
        self.number = 0

    async def open(self) -> None:
        if not isinstance(self.target, str):
            self.process = subprocess.Popen(self.target, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        info = {"name": "naive", "version": "0"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        await self.ask("initialize", hello)
        await self.ask("notifications/initialized", None)
        await self.tools()

    async def tools(self) -> Iterable[str]:
        return [tool["name"] for tool in (await self.ask("tools/list", {}))["result"]["tools"]]

    async def call(self, text: str) -> str:
        answer = await self.ask("tools/call", {"name": "echo", "arguments": {"text": text}})
        return cast("str", answer["result"]["content"][0]["text"])

    async def close(self) -> None:
        if self.process is not None and self.process.stdin is not None and self.process.stdout is not None:
            self.process.stdin.close()
            await anyio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)
            self.process.stdout.close()

    async def ask(self, method: str, params: Json | None) -> Json:
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            self.number += 1
            message |= {"id": self.number, "params": params}
        exchange = self.over_http if self.process is None else self.over_pipes
        return await anyio.to_thread.run_sync(exchange, message, abandon_on_cancel=True)

    def over_pipes(self, message: Json) -> Json:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline()) if "id" in message else {}

    def over_http(self, message: Json) -> Json:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if self.session:
            headers["mcp-session-id"] = self.session
        request = urllib.request.Request(str(self.target), json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request) as response:
            self.session = response.headers.get("mcp-session-id") or self.session
            body = response.read()
        return json.loads(body.partition(b"data: ")[2] or body) if "id" in message else {}


class Careless(Naive):
    """The same with every error swallowed: a failed call looks like one with nothing to say."""

    async def open(self) -> None:
        with contextlib.suppress(Exception):
            await super().open()

    async def tools(self) -> Iterable[str]:
        with contextlib.suppress(Exception):
            return await super().tools()
        return []

    async def call(self, text: str) -> str:
        with contextlib.suppress(Exception):
            return await super().call(text)
        return ""


CLIENTS: dict[str, Callable[[Target, float], Client]] = {
    "toolweave": Ours,
    "defaults": Defaults,
    "gateway": through_gateway,
    "sdk": Sdk,
    "fastmcp": Fastmcp,
    "naive": Naive,
    "careless": Careless,
    "brittle": Brittle,
}
