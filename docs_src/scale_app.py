"""A module that workers and those who submit share."""

from __future__ import annotations

from toolweave import Agent, Backend, ScriptedModel, create_mcp_server, tool, tool_call
from toolweave.models import ModelRequest

backend = Backend.from_environment()


@tool(annotations={"readOnlyHint": True})
def measure(room: str) -> str:
    """Measure a room."""
    return f"{room}: 12 square metres"


def answer(request: ModelRequest) -> object:
    """Stand in for a model: measure first, then say what was found."""
    if len(request.messages) == 1:
        return [tool_call("measure", {"room": "kitchen"})]
    return "The kitchen has 12 square metres."


agent = Agent(ScriptedModel(answer), name="surveyor", tools=[measure], backend=backend)
server = create_mcp_server(
    name="survey", version="1.0.0", tools=[measure], tasks={"measure": "optional"}, backend=backend
)
