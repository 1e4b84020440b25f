"""What is offered changes while a client is connected: new tools, old names, updated resources."""

from __future__ import annotations

import asyncio
from datetime import date

from toolweave import ToolsChanged, connect_mcp, create_mcp_server

server = create_mcp_server(name="changing", version="2.0.0")


# region offers
@server.tool
def report_v2(month: str) -> str:
    """Write a report."""
    return f"report for {month}"


server.alias("report", "report_v2", sunset=date(2027, 6, 30))


@server.resource("report://latest")
def latest() -> str:
    return "nothing yet"


# endregion


async def main() -> None:
    async with connect_mcp(server) as client:
        changed, updated = asyncio.Event(), asyncio.Event()

        @client.on("tools_changed")
        def show(change: ToolsChanged) -> None:  # pyright: ignore[reportUnusedFunction]
            print("added:", change.added)
            changed.set()

        await client.subscribe_resource("report://latest", lambda update: updated.set())

        @server.tool
        def forecast(month: str) -> str:  # pyright: ignore[reportUnusedFunction]
            """Forecast a month."""
            return f"forecast for {month}"

        await changed.wait()
        server.notify_resource_updated("report://latest")
        await updated.wait()

        print((await client.call_tool("report", {"month": "May"})).text)
        print(server.aliases["report"].uses)


asyncio.run(main())
