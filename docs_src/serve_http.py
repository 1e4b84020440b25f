"""Over HTTP, with a token; here on a free port and with a client in the same program."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp, create_mcp_server
from toolweave.errors import AuthRequiredError
from toolweave.serve import BearerAuth

TOKENS = {"a-long-token-of-ada": "ada", "a-long-token-of-bob": "bob"}


def search(query: str) -> list[str]:
    """Find notes by their text."""
    return [text for text in ("water the plants", "call the bank") if query in text]


server = create_mcp_server(name="notes", version="1.0.0", tools=[search])


async def main() -> None:
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    auth = BearerAuth(tokens=TOKENS)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve_http("127.0.0.1", 0, auth=auth, on_started=started.set_result))
        url = f"{await started}/mcp"

        async with connect_mcp(url, auth="a-long-token-of-ada") as notes:
            print((await notes.list_tools()).names)
        try:
            await connect_mcp(url, auth="somebody-elses-token")
        except AuthRequiredError as error:
            print(error.status)
        serving.cancel()


asyncio.run(main())
