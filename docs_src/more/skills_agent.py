"""An agent that loads a skill of a server, once somebody has agreed."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from toolweave import Agent, Hub, create_mcp_server
from toolweave.connect import Skill
from toolweave.hub import skill_tools
from toolweave.models import ScriptedModel, tool_call
from toolweave.serve import skills

folder = Path(tempfile.mkdtemp())
(folder / "refunds").mkdir()
(folder / "refunds" / "SKILL.md").write_text(
    "---\nname: refunds\ndescription: Refund a customer.\n---\nAsk for the number of the order.\n"
)
hub = Hub({"shop": {"server": create_mcp_server("shop", resources=[skills(folder)])}})


def approve(skill: Skill) -> bool:
    print(f"use {skill.name} of {skill.server}, {skill.description} yes")
    return True


async def main() -> None:
    script = [tool_call("load_skill", {"skill": "shop/refunds"}), "What is the number of your order?"]
    async with Agent(ScriptedModel(script), tools=[hub, skill_tools(hub, approve=approve)]) as agent:
        print((await agent.send("I want my money back.")).text)


asyncio.run(main())
