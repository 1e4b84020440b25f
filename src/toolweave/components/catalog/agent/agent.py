"""The agent: a model, functions and servers, and what a person has to allow."""

from __future__ import annotations

from toolweave import Agent, ToolSpec
from toolweave.models import ToolCallPart

from .settings import Settings
from .tools import TOOLS


def create_agent(settings: Settings | None = None) -> Agent:
    """Return the agent; in `async with agent` its servers stay open from run to run."""
    settings = settings or Settings()
    agent = Agent(
        settings.model,
        name=settings.name,
        system=settings.system,
        tools=TOOLS,
        max_steps=settings.max_steps,
        confirm=has_to_be_allowed,
    )
    if settings.servers.exists():
        agent.add_mcp_servers(settings.servers)
    return agent


def has_to_be_allowed(call: ToolCallPart, tool: ToolSpec) -> bool | None:
    """Return True to allow a call, False to refuse it, None to ask the user.

    What servers say about their own tools is not to be trusted: those are asked about.
    """
    hints = tool.annotations or {}
    return True if tool.server is None and hints.get("readOnlyHint") else None
