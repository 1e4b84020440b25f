"""Clients of others that sign in by themselves: `signing_in.py python-sdk|fastmcp URL`; prints what they saw as JSON.

`BROWSER` names the person who is sent to the pages.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PERSON = Path(__file__).parent.parent / "person.py"


async def fastmcp(url: str) -> dict[str, Any]:
    """Sign in with FastMCP's client, which opens a browser and listens for it."""
    module = import_module("fastmcp")
    async with module.Client(url, auth="oauth", timeout=60) as client:
        tools = [tool.name for tool in await client.list_tools()]
        result = await client.call_tool("add", {"a": 2, "b": 3})
    return {"tools": tools, "sum": result.content[0].text}


class _Memory:
    """A store of tokens that is gone with the process."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def get_tokens(self) -> Any:
        return self.kept.get("tokens")

    async def set_tokens(self, tokens: Any) -> None:
        self.kept["tokens"] = tokens

    async def get_client_info(self) -> Any:
        return self.kept.get("client")

    async def set_client_info(self, client_info: Any) -> None:
        self.kept["client"] = client_info


async def python_sdk(url: str) -> dict[str, Any]:
    """Sign in with the official SDK, whose program listens for the browser itself."""
    auth, shared = import_module("mcp.client.auth"), import_module("mcp.shared.auth")
    answers: asyncio.Queue[str] = asyncio.Queue()

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        answers.put_nowait(line.split(" ")[1])

    listener = await asyncio.start_server(heard, "127.0.0.1", 0)
    redirect = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/callback"

    async def show(address: str) -> None:
        await asyncio.to_thread(subprocess.run, [sys.executable, str(PERSON), "ada", address], check=True, timeout=60)

    async def answer() -> Any:
        told = {name: values[0] for name, values in parse_qs(urlsplit(await answers.get()).query).items()}
        return auth.AuthorizationCodeResult(code=told["code"], state=told.get("state"), iss=told.get("iss"))

    store = _Memory()
    provider = auth.OAuthClientProvider(
        server_url=url,
        client_metadata=shared.OAuthClientMetadata(
            client_name="SDK", redirect_uris=[redirect], token_endpoint_auth_method="none"
        ),
        storage=store,
        redirect_handler=show,
        callback_handler=answer,
    )
    httpx2, http = import_module("httpx2"), import_module("mcp.client.streamable_http")
    mcp, transport = import_module("mcp"), http.streamable_http_client
    async with (
        listener,
        httpx2.AsyncClient(auth=provider, timeout=60) as client,
        mcp.Client(transport(url, http_client=client)) as session,
    ):
        tools = [tool.name for tool in (await session.list_tools()).tools]
        result = await session.call_tool("add", {"a": 2, "b": 3})
    return {"tools": tools, "sum": result.content[0].text, "refreshes": bool(store.kept["tokens"].refresh_token)}


if __name__ == "__main__":
    sign_in = {"fastmcp": fastmcp, "python-sdk": python_sdk}[sys.argv[1]]
    print(json.dumps(asyncio.run(sign_in(sys.argv[2]))))
