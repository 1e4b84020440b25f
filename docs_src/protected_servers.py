"""A server whose tools need scopes, and tokens that have more or less of them."""

from __future__ import annotations

import asyncio
import time

import jwt

from toolweave import connect_mcp, create_mcp_server, tool
from toolweave.errors import AuthRequiredError
from toolweave.serve import JwtAuth, ScopeRules

SECRET = "a secret of thirty-two bytes or more, from your settings"
ISSUER, ENDPOINT = "https://login.example", "https://notes.example/mcp"


@tool
def search(query: str) -> str:
    """Find notes by their text."""
    return f"no note has {query!r}"


@tool(scopes=["notes:delete"])
def wipe() -> str:
    """Delete all notes."""
    return "all gone"


def token_of(user: str, scope: str) -> str:
    """Make a token as an issuer does."""
    claims = {"iss": ISSUER, "aud": ENDPOINT, "sub": user, "client_id": "docs", "exp": time.time() + 600}
    return jwt.encode({**claims, "scope": scope}, SECRET, "HS256")


async def main() -> None:
    auth = JwtAuth(
        issuer=ISSUER,
        audience=ENDPOINT,
        key=SECRET,
        algorithms=["HS256"],
        required_scopes=["notes"],
        scopes=ScopeRules(includes=lambda scope: ["notes:delete"] if scope == "notes:admin" else []),
    )
    server = create_mcp_server("notes", tools=[search, wipe], auth=auth)
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve_http("127.0.0.1", 0, on_started=started.set_result))
        url = f"{await started}/mcp"
        async with connect_mcp(url, auth=token_of("ada", "notes notes:admin")) as ada:
            print((await ada.call_tool("wipe")).text)
        try:
            async with connect_mcp(url, auth=token_of("bob", "notes")) as bob:
                print((await bob.call_tool("search", {"query": "milk"})).text)
                (await bob.call_tool("wipe")).raise_for_error()
        except AuthRequiredError as error:
            print(error.status)
        serving.cancel()


asyncio.run(main())
