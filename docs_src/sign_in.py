"""A connection without a person says what to run, and goes on once somebody has."""

from __future__ import annotations

import asyncio

from toolweave import AuthRequiredError, connect_mcp, create_mcp_server
from toolweave.oauth import MemoryTokenStore, OAuth, TokenKey, TokenRecord, resource_of
from toolweave.serve import BearerAuth


def search(query: str) -> list[str]:
    """Find notes by their text."""
    return [text for text in ("water the plants", "call the bank") if query in text]


server = create_mcp_server(name="notes", version="1.0.0", tools=[search])
store = MemoryTokenStore()


async def main() -> None:
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    auth = BearerAuth(tokens={"the-token-of-ada": "ada"})
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve_http("127.0.0.1", 0, auth=auth, on_started=started.set_result))
        url = f"{await started}/mcp"
        notes = {"name": "notes", "url": url, "auth": OAuth(store=store)}

        try:
            await connect_mcp(notes)
        except AuthRequiredError as error:
            print(error.message)

        # a sign-in, perhaps in another process, keeps its token in the store
        key = TokenKey(issuer="https://login.example", resource=resource_of(url))
        await store.save(TokenRecord(key=key, access_token="the-token-of-ada"))

        async with connect_mcp(notes) as connection:
            print((await connection.list_tools()).names)
        serving.cancel()


asyncio.run(main())
