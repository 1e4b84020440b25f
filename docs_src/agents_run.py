"""An agent with a function and a server's command among its tools, in plain code."""

from __future__ import annotations

from toolweave import Agent, ScriptedModel, tool_call


def area(width: float, height: float) -> float:
    """Return the area of a rectangle, in square metres."""
    return width * height


# This model follows a script and needs no key. With a key, write "anthropic:claude-sonnet-4-5" or "openai:gpt-5.1".
model = ScriptedModel([[tool_call("area", {"width": 3, "height": 4})], "It has 12 square metres."])
agent = Agent(model, tools=[area, "python -m toolweave.cli.demo.numbers"])

print(agent.run_sync("How large is a room of 3 by 4 metres?").text)
