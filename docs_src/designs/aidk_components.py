"""AIDK, declarative: components of two servers, one of them with the token of the user at hand."""

from __future__ import annotations

import asyncio
from typing import Any

from toolweave import Agent, McpPool, McpTools, create_mcp_server, tool
from toolweave.agent import Run
from toolweave.models import ScriptedModel, tool_call
from toolweave.serve import BearerAuth

TOKENS = {"a-long-token-of-ada": "ada", "a-long-token-of-bob": "bob"}
NOTES = {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}


@tool
def orders() -> str:
    """List the orders."""
    return "2 orders"


@tool
def admin_delete() -> str:
    """Delete everything."""
    return "gone"


# region components
def my_agent(user_token: str, api: dict[str, Any], pool: McpPool) -> list[McpTools]:
    """Return what this user's runs work with."""
    return [
        McpTools("notes", NOTES, include=["search_notes", "read_note"], tool_prefix="n_"),
        McpTools(
            "api",
            {"transport": "http", "connection": api},
            runtime_config={"auth": {"type": "bearer", "token": user_token}},
            exclude=["admin_delete"],
            client=pool,  # one connection for each user, kept between their runs
            on_tick_start=tick,
        ),
    ]


async def tick(run: Run, step: int) -> None:
    print("step", step)


# endregion


async def main() -> None:
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = create_mcp_server(name="api", version="1.0.0", tools=[orders, admin_delete])
    async with asyncio.TaskGroup() as tasks, McpPool() as pool:
        auth = BearerAuth(tokens=TOKENS)
        serving = tasks.create_task(server.serve_http("127.0.0.1", 0, auth=auth, on_started=started.set_result))
        api = {"url": f"{await started}/mcp"}

        # region execute
        model = ScriptedModel([tool_call("orders"), "you have 2 orders"])
        agent = Agent(model)
        result = await agent.send("What did I order?", tools=my_agent("a-long-token-of-ada", api, pool))
        print(result.text)
        print([one.name for one in model.requests[0].tools])
        # endregion

        # region update
        async with McpTools("api", api, runtime_config={"auth": "a-long-token-of-ada"}) as component:
            print(component.tools.names)
            await component.update({"auth": "a-long-token-of-bob"})  # unmounts, and mounts as bob
            print((await component.tools["orders"].execute()).text)
        print(component.tools.names)
        # endregion
        serving.cancel()


asyncio.run(main())
