"""kitn: tools and agents registered by name, tools of servers among them, and both offered as an MCP server."""

from __future__ import annotations

import asyncio

from toolweave import AgentRegistry, ToolRegistry, connect_mcp, connect_mcp_servers, create_mcp_server
from toolweave.models import ScriptedModel, tool_call

servers = [
    {"name": "notes", "transport": {"type": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}},
    {
        "name": "numbers",
        "transport": {"type": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]},
    },
]


def get_weather(city: str) -> dict[str, str]:
    """Return the weather of a city."""
    return {"city": city, "sky": "clear"}


async def main() -> None:
    # region agents
    tools = ToolRegistry()
    tools.add(get_weather)
    print((await tools.execute("get_weather", {"city": "Oslo"})).structured_content)

    model = ScriptedModel(
        [[tool_call("get_weather", {"city": "Oslo"}), tool_call("notes_add_note", {"text": "clear"})], "noted"]
    )
    async with connect_mcp_servers({"servers": servers}) as mcp:
        agents = AgentRegistry(model, tools=[tools, mcp])
        agents.register("dev-assistant", tool_names=["get_weather", "notes:add_note", "numbers:add"])
        agents.register("general", model=ScriptedModel(["I only talk"]))

        print((await agents.get("dev-assistant").send("Note what the weather is like in Oslo")).text)
        print([one.name for one in model.requests[0].tools])
        # endregion

        # region server
        server = create_mcp_server(
            name="my-service",
            version="1.0.0",
            tools=tools,
            agents=[agents.get("general")],
        )
        # `await server.serve_stdio()`, or `server.asgi_app()`; here a client in the same program
        async with connect_mcp(server) as client:
            print((await client.list_tools()).names)
            print((await client.call_tool("agent_general", {"message": "hello"})).text)
        # endregion


asyncio.run(main())
