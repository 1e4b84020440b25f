"""Tasks in the background, given and looked after by the model."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel, spawn_tools, tool_call
from toolweave.agent import run_tree
from toolweave.models import ModelRequest
from toolweave.state import MemoryStore


def work(request: ModelRequest) -> str:
    return f"done after {len(request.messages)} message"


async def main() -> None:
    store = MemoryStore()
    worker = Agent(ScriptedModel(work), name="worker")
    lead = Agent(
        ScriptedModel(
            [
                [tool_call("spawn", {"prompt": "read"})],
                [tool_call("spawn", {"prompt": "write"})],
                [tool_call("spawn_await")],
                "Both are done.",
            ]
        ),
        name="lead",
        tools=[spawn_tools(worker, store)],
        store=store,
    )
    run = lead.send("Read and write.")
    print((await run).text)

    tree = await run_tree(store, run.id)
    for level, one in tree.walk() if tree else ():
        print("  " * level + one.record.agent, one.status, one.record.prompt)


asyncio.run(main())
