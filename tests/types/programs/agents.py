"""The type of an agent's answer."""

from __future__ import annotations

from typing import Any, assert_type

from pydantic import BaseModel

from toolweave import Agent, Prompt, Run, RunResult, ScriptedModel


class City(BaseModel):
    """A city."""

    name: str


async def ask() -> None:
    """Ask agents."""
    model = ScriptedModel([])
    agent = Agent(model, output_type=City)
    assert_type(agent, Agent[City])
    assert_type(agent.send("Where?"), Run[City])
    result = await agent.run("Where?")
    assert_type(result, RunResult[City])
    assert_type(result.output, City)
    assert_type(result.check().output.name, str)
    assert_type((await agent.run(Prompt("Where?", output_type=int))).output, Any)
    assert_type(agent.run_sync("Where?").output, City)
    numbers = await Agent(model, output_type=list[int], name="numbers").run("Which?")
    assert_type(numbers.output, list[int])
    assert_type((await Agent(model).run("What?")).output, None)
    assert_type((await Agent(model, output_type={"type": "object"}).run("What?")).output, Any)
