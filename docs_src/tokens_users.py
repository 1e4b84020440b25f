"""A server whose users are signed in to another one: each call goes there as its caller."""

from __future__ import annotations

import asyncio

from toolweave import CallContext, McpPool, connect_mcp, create_mcp_server, tool
from toolweave.config import server_config
from toolweave.oauth import OAuth, SharedTokenStore
from toolweave.state import open_store

KEY = "bm90IGEga2V5IHRvIHVzZTogbWFrZSBvbmUgb2YgeW8="  # `openssl rand -base64 32` prints one

# region users
tokens = SharedTokenStore(open_store("memory://"), key=KEY)  # of many machines: redis://...
notes = server_config({"url": "https://notes.example/mcp", "auth": OAuth(store=tokens)}, name="notes")
pool = McpPool(max_connections=500)


@tool
async def my_notes(ctx: CallContext) -> str:
    """List the notes of the caller."""
    async with pool.lease(notes, principal=ctx.principal) as api:
        return (await api.call_tool("list")).text


server = create_mcp_server(name="desk", version="1.0.0", tools=[my_notes])
# endregion


async def main() -> None:
    async with connect_mcp(server) as connection:  # in this process, where nobody is authorized
        print((await connection.call_tool("my_notes")).text)


asyncio.run(main())
