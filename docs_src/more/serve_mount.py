"""One server in another, below a namespace."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp, create_mcp_server

weather = create_mcp_server("weather")


@weather.tool
def now(city: str) -> str:
    """Return the weather of a city."""
    return f"sun in {city}"


@weather.resource("notes://{number}", name="note")
def weather_note(number: int) -> str:
    """A note about the weather."""
    return f"weather note {number}"


server = create_mcp_server("everything")


@server.resource("notes://{number}", name="note")
def note(number: int) -> str:
    """A note."""
    return f"note {number}"


server.mount(weather, "weather")


async def main() -> None:
    async with connect_mcp(server) as client:
        print((await client.list_tools()).names)
        print((await client.call_tool("weather_now", {"city": "Rome"})).text)
        print([each.uri_template for each in await client.list_resource_templates()])
        print((await client.read_resource("weather+notes://3"))[0].text)


asyncio.run(main())
